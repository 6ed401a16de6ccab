"""The examples are what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollout_core.run.prompt_file import PromptFile
from rollout_core.run.reward import load_reward
from rollout_core.types import GenerateResult, Sample

EXAMPLES = Path(__file__).parents[3] / "examples"


def sample(text: str, **fields: Any) -> Sample:
    return Sample("0-0", 0, 0, "", fields, GenerateResult("r", (1,), text=text))


def test_the_prompts_are_texts_and_chats_and_none_is_broken() -> None:
    scan = PromptFile(EXAMPLES / "prompts.jsonl").scan()
    assert scan.prompts >= 36
    assert scan.broken_count == 0
    assert 0 < scan.chats < scan.prompts


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ("so she has 18 dollars", "... = 9\n#### 18", 1.0),
        ("It is $1,200.50.", "#### 1200.5", 1.0),
        ("18 or 19", "#### 18", 0.0),
        ("no idea", "#### 18", 0.0),
        ("The answer is 26.", "26", 1.0),
    ],
)
def test_gsm8k_compares_the_last_number(text: str, answer: str, reward: float) -> None:
    assert load_reward(f"{EXAMPLES}/rewards.py:gsm8k").score_sample(sample(text, answer=answer)) == reward


def test_contains_has_no_opinion_on_lines_without_an_answer() -> None:
    contains = load_reward(f"{EXAMPLES}/rewards.py:contains")
    assert contains.score_sample(sample("It is LISBON.", answer="Lisbon")) == 1.0
    assert contains.score_sample(sample("It is Porto.", answer="Lisbon")) == 0.0
    assert contains.score_sample(sample("It is Porto.")) is None
