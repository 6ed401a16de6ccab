"""The summary adds up, and its pass rates are the unbiased ones."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_core.run.record import Outcome
from rollout_core.run.summary import Tally, pass_at_k, summary_lines


def outcome(prompt: int, sample: int, status: str = "completed", reward: float | None = None, **more: Any) -> Outcome:
    values: dict[str, Any] = {"finish_reason": "stop", "prompt_tokens": 10, "response_tokens": 4}
    values |= {"reward_error": None, "error": None, **more}
    return Outcome(prompt, sample, status, reward=reward, **values)


@given(passes=st.lists(st.booleans(), min_size=1, max_size=7), data=st.data())
def test_pass_at_k_is_the_share_of_draws_of_k_with_a_pass(passes: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(passes)))
    draws = [any(draw) for draw in combinations(passes, k)]
    assert pass_at_k(len(passes), sum(passes), k) == pytest.approx(sum(draws) / len(draws))


def test_counts_add_up_to_the_plan() -> None:
    tally = Tally(n=2, planned=6)
    for sample in (outcome(0, 0), outcome(0, 1, "failed"), outcome(1, 0, "aborted")):
        tally.add(sample)
    counts = tally.counts()
    assert sum(value for name, value in counts.items() if name != "planned") == counts["planned"] == 6
    assert not tally.complete


def test_missing_samples_are_those_that_were_not_added() -> None:
    tally = Tally(n=4, planned=8)
    tally.add(outcome(0, 2))
    assert tally.missing(0) == [0, 1, 3]
    assert tally.missing(1) == [0, 1, 2, 3]


def test_rewards_leave_prompts_with_too_few_samples_out_of_pass_at_n() -> None:
    tally = Tally(n=2, planned=4)
    for sample in (outcome(0, 0, reward=1.0), outcome(0, 1, reward=0.0), outcome(1, 0, reward=0.5)):
        tally.add(sample)
    tally.add(outcome(1, 1, reward_error="boom"))
    assert tally.rewards() == {"mean": 0.5, "scored": 3, "errors": 1, "pass@1": 0.25, "pass@2": 1.0}


def test_without_rewards_the_summary_has_none() -> None:
    tally = Tally(n=1, planned=1)
    tally.add(outcome(0, 0))
    assert tally.summary()["reward"] is None


def test_only_the_first_few_errors_that_differ_are_kept() -> None:
    tally = Tally(n=1, planned=100)
    for i in range(50):
        tally.add(outcome(i, 0, "failed", error=f"error {i % 10}"))
    assert tally.summary()["errors"] == {f"error {i}": 5 for i in range(5)}


def test_the_summary_reads_well() -> None:
    tally = Tally(n=2, planned=2)
    tally.add(outcome(0, 0, reward=1.0))
    tally.add(outcome(0, 1, "failed", error="engine-0 was lost", finish_reason="error"))
    session = {"tokens_per_s": 12.34, "wall_s": 5.0, "first_sample_s": 0.5}
    lines = "\n".join(summary_lines({**tally.summary(), "session": session}))
    assert "2 planned, 1 completed, 1 failed" in lines
    assert "12.3 tokens/s over 5.0 s, first sample after 0.5 s" in lines
    assert "mean 1.000 of 1, pass@1 1.000" in lines
    assert "1 x engine-0 was lost" in lines
