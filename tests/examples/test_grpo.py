"""The GRPO example runs, publishes every step and draws its curve; that it learns is shown by the run in its README."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpo_cpu"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--no-publish"]], ids=["published", "control"])
def test_a_few_steps(tmp_path: Path, arguments: list[str]) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(EXAMPLE / "train.py"), "--steps", "3", "--output", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [0, 1, 2]
    assert all(0 < step["reward"] < 1 for step in steps)
    # Groups that were begun before an update and finished after it have tokens of both versions.
    assert max(step["lag"] for step in steps) > 0 if not arguments else {step["lag"] for step in steps} == {0}
    assert (tmp_path / "steps.png").stat().st_size > 10_000


def test_the_example_is_one_short_file() -> None:
    assert len((EXAMPLE / "train.py").read_text().splitlines()) < 200
