"""Rewards that can be checked: `rollout run ... --reward examples/rewards.py:gsm8k`.

A reward is a function from a sample to a number; `sample.fields` has the other fields of the prompt's line, and
`sample.result` the response. A sample passes with a reward of 1.
"""

import re

from rollout_core.types import Sample

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def gsm8k(sample: Sample) -> float:
    """1 when the last number of the response is the answer of the line (`answer`, after `####` in GSM8K)."""
    expected = _last_number(str(sample.fields["answer"]).rpartition("####")[2])
    return float(expected is not None and _last_number(sample.result.text) == expected)


def contains(sample: Sample) -> float | None:
    """1 when the text of the field `answer` is in the response, in any case; no reward for lines without one."""
    answer = sample.fields.get("answer")
    return None if answer is None else float(str(answer).lower() in sample.result.text.lower())


def _last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None
