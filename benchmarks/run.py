"""``rollout run`` end to end, beside the same requests sent straight to the same kind of engine.

    python benchmarks/run.py --model FOLDER [--prompts FILE.jsonl --prompt-field question] [--rounds 3]

Both draw the same number of samples with the same prompts and parameters from a freshly started embedded engine;
starting it is not counted. Directly means a bare aiohttp loop that posts ready-made bodies and reads the replies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from rollout_core import Controller, GenerateRequest, Plugins, RolloutConfig, SampleParams

MAX_TOKENS = 64


def end_to_end(options: argparse.Namespace, output: Path) -> float:
    """Tokens per second of ``rollout run``, as its summary says."""
    command = [sys.executable, "-m", "rollout_core", "run", "--backend", "transformers", "--quiet", "--ignore-eos"]
    command += ["--model", options.model, "--prompts", str(options.prompts), "--prompt-field", options.prompt_field]
    command += ["--limit", str(options.limit), "-n", str(options.n), "--max-tokens", str(MAX_TOKENS)]
    command += ["--concurrency", str(options.concurrency), "--output", str(output)]
    subprocess.run([*command, "--set", f"max_batch_size={options.batch}"], check=True)
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return float(summary["session"]["tokens_per_s"])


def directly(options: argparse.Namespace, output: Path) -> float:
    """Tokens per second of a bare loop over the prompts that the run before has sent."""
    with (output / "samples.jsonl").open(encoding="utf-8") as lines:
        samples = sorted((json.loads(line) for line in lines), key=lambda sample: sample["prompt_index"])
    config = RolloutConfig(model_path=options.model, max_batch_size=options.batch)
    plugins = Plugins.load(config)
    params = SampleParams(max_tokens=MAX_TOKENS, ignore_eos=True)
    bodies = [
        orjson.dumps(plugins.backend.build_payload(GenerateRequest(tuple(sample["prompt_ids"]), params)).body)
        for sample in samples
    ]
    with Controller(plugins) as controller:
        return uvloop.run(drive(controller.view.endpoints[0].url + "/generate", bodies, options.concurrency))


async def drive(url: str, bodies: list[bytes], concurrency: int) -> float:
    """Send the bodies with so many in flight at any time."""
    todo = iter(bodies)
    tokens = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout()) as http:

        async def lane() -> None:
            nonlocal tokens
            for body in todo:
                async with http.post(url, data=body) as reply:
                    tokens += len(orjson.loads(await reply.read())["token_ids"])

        started = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(concurrency)))
        return tokens / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of SmolLM2-135M-Instruct (examples/make_demo_model.py)")
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.jsonl"))
    parser.add_argument("--prompt-field", default="prompt")
    parser.add_argument("--limit", type=int, default=64, help="prompts")
    parser.add_argument("-n", type=int, default=2, help="samples of each")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="samples that the engine runs at once")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: list[tuple[float, float]] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as scratch:
            run = end_to_end(options, Path(scratch) / "out")
            rates.append((run, directly(options, Path(scratch) / "out")))
    for name, values in zip(("rollout run", "driven directly"), zip(*rates, strict=True), strict=True):
        print(f"{name:16} {statistics.median(values):6.0f} tokens/s")
    print(f"rollout run reaches {statistics.median(run / direct for run, direct in rates):.2f} of the direct rate")


if __name__ == "__main__":
    main()
