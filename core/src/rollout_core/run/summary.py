"""What a run came to: counted while it goes, over the samples of earlier sessions too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollout_core.run.record import Outcome

__all__ = ["PASS_REWARD", "Tally", "pass_at_k", "summary_lines"]

PASS_REWARD = 1.0
"""A sample passes when its reward is at least this."""

_ERRORS = 5


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """Chance that at least one of ``k`` samples passes, drawn without replacement from ``samples``.

    The unbiased estimator of https://arxiv.org/abs/2107.03374: 1 - C(samples - passed, k) / C(samples, k).
    """
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


@dataclass(slots=True)
class Tally:
    """Counts of samples that are on disk."""

    n: int
    """Samples of one prompt."""
    planned: int
    """Samples of the whole run."""
    status: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    response_tokens: int = 0
    reward_sum: float = 0.0
    reward_errors: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Of failed samples: the first few messages that differ, and how often each came."""
    _done: dict[int, int] = field(default_factory=dict)
    """By prompt index: a bit for every sample that is there."""
    _scored: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By prompt index: samples with a reward, and how many of them passed."""

    def add(self, outcome: Outcome) -> None:
        """Count a sample."""
        self._done[outcome.prompt_index] = self._done.get(outcome.prompt_index, 0) | 1 << outcome.sample_index
        self.status[outcome.status] += 1
        self.finish_reasons[outcome.finish_reason or "none"] += 1
        self.prompt_tokens += outcome.prompt_tokens
        self.response_tokens += outcome.response_tokens
        if outcome.error and (outcome.error in self.errors or len(self.errors) < _ERRORS):
            self.errors[outcome.error] += 1
        self.reward_errors += outcome.reward_error is not None
        if outcome.reward is not None:
            self.reward_sum += outcome.reward
            scored, passed = self._scored.get(outcome.prompt_index, (0, 0))
            self._scored[outcome.prompt_index] = (scored + 1, passed + (outcome.reward >= PASS_REWARD))

    @property
    def samples(self) -> int:
        """Samples counted, whatever came of them."""
        return self.status.total()

    def missing(self, prompt_index: int) -> list[int]:
        """Sample indices of a prompt that are not there."""
        bits = self._done.get(prompt_index, 0)
        return [index for index in range(self.n) if not bits >> index & 1]

    @property
    def complete(self) -> bool:
        """Whether every planned sample completed."""
        return self.status["completed"] >= self.planned

    def counts(self) -> dict[str, int]:
        """Samples by status; the parts add up to ``planned``."""
        by_status = {name: self.status[name] for name in ("completed", "failed", "aborted")}
        return {"planned": self.planned, **by_status, "not_started": max(0, self.planned - self.samples)}

    def rewards(self) -> dict[str, Any] | None:
        """Mean reward and pass rates; None when nothing was scored and nothing failed to be.

        Prompts with fewer than k scored samples are left out of pass@k.
        """
        scored = sum(count for count, _ in self._scored.values())
        if not scored and not self.reward_errors:
            return None
        rates = {f"pass@{k}": self._pass_rate(k) for k in sorted({1, self.n})}
        return {
            "mean": self.reward_sum / scored if scored else None,
            "scored": scored,
            "errors": self.reward_errors,
            **rates,
        }

    def _pass_rate(self, k: int) -> float | None:
        rates = [pass_at_k(scored, passed, k) for scored, passed in self._scored.values() if scored >= k]
        return sum(rates) / len(rates) if rates else None

    def summary(self) -> dict[str, Any]:
        """Everything counted, as JSON."""
        return {
            "samples": self.counts(),
            "samples_per_prompt": self.n,
            "finish_reasons": dict(self.finish_reasons.most_common()),
            "errors": dict(self.errors.most_common()),
            "prompt_tokens": self.prompt_tokens,
            "response_tokens": self.response_tokens,
            "mean_response_tokens": self.response_tokens / self.samples if self.samples else 0.0,
            "reward": self.rewards(),
        }


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary of a run, for people."""
    samples, session, reward = summary["samples"], summary["session"], summary["reward"]
    parts = ", ".join(f"{samples[name]} {name.replace('_', ' ')}" for name in samples if samples[name])
    reasons = ", ".join(f"{name} {count}" for name, count in summary["finish_reasons"].items())
    lines = [
        f"samples    {parts}",
        f"finish     {reasons or 'none'}",
        f"tokens     {summary['response_tokens']} sampled, {summary['mean_response_tokens']:.1f} a sample; "
        f"{summary['prompt_tokens']} of prompts",
        f"speed      {session['tokens_per_s']:.1f} tokens/s over {session['wall_s']:.1f} s"
        + (f", first sample after {first:.1f} s" if (first := session["first_sample_s"]) is not None else ""),
    ]
    if reward is not None:
        rates = ", ".join(f"{k} {value:.3f}" for k, value in reward.items() if "@" in k and value is not None)
        mean = "none" if reward["mean"] is None else f"{reward['mean']:.3f}"
        failed = f"; {reward['errors']} could not be scored" if reward["errors"] else ""
        lines.append(f"reward     mean {mean} of {reward['scored']}{', ' if rates else ''}{rates}{failed}")
    lines += [f"error      {count} x {message}" for message, count in summary["errors"].items()]
    return lines
