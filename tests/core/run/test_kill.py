"""A run that is killed at any moment, again and again, still ends with every sample once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from rollout_core.run.record import Outcome
from rollout_core.run.sink import open_sink

PROMPTS, N = 150, 3
DRIVER = f"""
import asyncio, random, sys
from pathlib import Path
from rollout_core import Plugins, RolloutConfig
from rollout_core.run.job import Job
from rollout_core.run.output import OutputFolder
from rollout_core.run.plan import Plan
from rollout_core.run.progress import QuietProgress
from rollout_core.run.prompt import Prompt
from rollout_core.run.record import Outcome
from rollout_core.run.reward import Scorer
from rollout_core.run.sink import open_sink
from rollout_core.run.summary import Tally
from rollout_core.types import FinishReason, GenerateResult, SampleParams, Status
from rollout_transformers import plugin

class Client:
    async def generate(self, request):
        await asyncio.sleep(random.uniform(0.001, 0.02))
        lost = random.random() < 0.05
        return GenerateResult(
            request.request_id, request.prompt_ids, token_ids=(5,) * 50, logprobs=(-0.5,) * 50,
            weight_versions=(0,) * 50, finish_reason=FinishReason.ERROR if lost else FinishReason.STOP,
            status=Status.FAILED if lost else Status.COMPLETED,
        )

class Renderer:
    def render(self, prompt):
        return tuple(prompt)

folder, kind = Path(sys.argv[1]), sys.argv[2]
output = OutputFolder.open(folder, {{"run": 1}}, {{}}, resume=True)
sink, tally = open_sink(folder, kind), Tally({N}, {PROMPTS * N})
if kind == "parquet":
    sink._roll_bytes = 40_000
for record in sink.kept():
    tally.add(Outcome.of(record))
print("ready", flush=True)
job = Job(
    Plan(SampleParams(), {N}, 8), [Prompt(i, "", [i]) for i in range({PROMPTS})], client=Client(), renderer=Renderer(),
    scorer=Scorer(Plugins.from_objects(RolloutConfig(model_path="m"), plugin)), sink=sink, tally=tally,
    progress=QuietProgress(),
)
asyncio.run(job.run())
sink.close()
sys.exit(0 if tally.complete else 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path, kind: str) -> None:
    random.seed(kind)
    status, kept = 1, 0
    for attempt in range(60):
        with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path), kind], stdout=subprocess.PIPE) as driver:
            assert driver.stdout is not None
            driver.stdout.readline()
            if attempt < 5:
                time.sleep(random.uniform(0.0, 0.3))
                driver.kill()
            status = driver.wait()
        now = samples(tmp_path, kind)
        assert not [sample for sample, count in now.items() if count > 1]
        assert len(now) >= kept, "a sample that was there is gone"
        kept = len(now)
        if status == 0:
            break
    assert status == 0
    assert set(samples(tmp_path, kind)) == {(p, s) for p in range(PROMPTS) for s in range(N)}


def samples(folder: Path, kind: str) -> Counter[tuple[int, int]]:
    """The completed samples, and how often each is there; opening a sink repairs it, as a resume does."""
    outcomes = (Outcome.of(record) for record in open_sink(folder, kind).kept())
    return Counter((outcome.prompt_index, outcome.sample_index) for outcome in outcomes)
