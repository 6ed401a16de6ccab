"""The embedded engine beside two ways of the transformers library, on the same model and prompts.

    python benchmarks/engine.py --model FOLDER [--prompts FILE.jsonl --prompt-field question] [--rounds 3]

Prints, as ratios of medians over rounds that take the contenders in turn: tokens per second at 32 concurrent
requests; how much sooner 16 samples of one 300-token prompt finish than samples of 16 distinct prompts; and the
largest difference of a returned log-probability from a fresh teacher-forced forward.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import statistics
from pathlib import Path

from contenders import Contender, Work

CONCURRENT, MAX_TOKENS = 32, 64
GROUP, PROMPT_TOKENS = 16, 300
RIVALS = ("embedded", "generate", "continuous_batching")


def read_prompts(file: Path, field: str, model: str) -> list[list[int]]:
    """Token ids of the prompts that are texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    with file.open(encoding="utf-8") as lines:
        texts = [text for line in lines if isinstance(text := json.loads(line)[field], str)]
    return [tokenizer(text)["input_ids"] for text in texts]


def throughput(contenders: list[Contender], prompts: list[list[int]], temperature: float, rounds: int) -> None:
    """Compare tokens per second at 32 concurrent requests."""
    batch = list(itertools.islice(itertools.cycle(prompts), CONCURRENT))
    work = Work(batch, MAX_TOKENS, temperature)
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        for contender in contenders:
            rate = contender.run(work)
            if number:  # the first round warms up
                rates[contender.name].append(rate)
    print(f"\n{CONCURRENT} concurrent, {MAX_TOKENS} new tokens, temperature {temperature:g}, fp32:")
    ours = rates["embedded"]
    for name, theirs in rates.items():
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(f"  {name:20} {statistics.median(theirs):6.0f} tokens/s   embedded is {ratio:.2f} times as fast")


def group_prefill(engine: Contender, vocab: list[int], rounds: int) -> None:
    """Compare a group of 16 samples with 16 distinct prompts of the same length."""
    for max_tokens in (1, 16, MAX_TOKENS):
        ratios = []
        for _ in range(rounds):
            distinct = [random.choices(vocab, k=PROMPT_TOKENS) for _ in range(GROUP)]
            shared = [random.choices(vocab, k=PROMPT_TOKENS)] * GROUP
            slow = engine.run(Work(distinct, max_tokens, 1.0))
            fast = engine.run(Work(shared, max_tokens, 1.0, group=True))
            ratios.append(fast / slow)
        print(
            f"{GROUP} samples of one {PROMPT_TOKENS}-token prompt, {max_tokens:2} new tokens, finish "
            f"{statistics.median(ratios):.2f} times sooner than {GROUP} distinct prompts"
        )


def logprob_error(model: str, prompts: list[list[int]]) -> None:
    """The largest difference from a fresh forward over prompt and response, for 32 concurrent samples."""
    import asyncio

    import torch
    from transformers import AutoModelForCausalLM

    from rollout_core import Controller, GenerateRequest, Plugins, RolloutClient, RolloutConfig, SampleParams

    async def draw(controller: Controller) -> list[tuple[list[int], tuple[int, ...], tuple[float, ...]]]:
        params = SampleParams(max_tokens=MAX_TOKENS, temperature=1.0)
        async with RolloutClient(controller) as client:
            requests = [GenerateRequest(tuple(ids), params) for ids in prompts[:CONCURRENT]]
            results = await asyncio.gather(*map(client.generate, requests))
        return [(list(result.prompt_ids), result.token_ids, result.logprobs or ()) for result in results]

    with Controller(Plugins.load(RolloutConfig(model_path=model, dtype="float32"))) as controller:
        drawn = asyncio.run(draw(controller))
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    worst = 0.0
    with torch.inference_mode():
        for prompt, tokens, logprobs in drawn:
            logits = reference(torch.tensor([prompt + list(tokens)])).logits[0].log_softmax(-1)
            places = torch.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
            expected = logits[places, torch.tensor(tokens)]
            worst = max(worst, float((expected - torch.tensor(logprobs)).abs().max()))
    print(f"log-probabilities differ from a fresh teacher-forced forward by at most {worst:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of SmolLM2-135M-Instruct (examples/make_demo_model.py)")
    parser.add_argument("--prompts", type=Path, default=Path("examples/prompts.jsonl"))
    parser.add_argument("--prompt-field", default="prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="torch threads of each contender")
    parser.add_argument("--only", action="append", choices=["throughput", "groups", "logprobs"])
    options = parser.parse_args()
    random.seed(0)
    prompts = read_prompts(options.prompts, options.prompt_field, options.model)
    parts = options.only or ["throughput", "groups", "logprobs"]
    if "throughput" in parts:
        with contextlib.ExitStack() as stack:
            contenders = [stack.enter_context(Contender(name, options.model, options.threads)) for name in RIVALS]
            for temperature in (1.0, 0.0):
                throughput(contenders, prompts, temperature, options.rounds)
    if "groups" in parts:
        # Every prompt of a round is new, so nothing but the group itself is shared.
        with Contender("embedded_groups", options.model, options.threads) as engine:
            group_prefill(engine, sorted({token for prompt in prompts for token in prompt}), options.rounds)
    if "logprobs" in parts:
        logprob_error(options.model, prompts)


if __name__ == "__main__":
    main()
