"""Counters of the engine and their Prometheus text form."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Metrics"]


@dataclass
class Metrics:
    """Totals since the start; written by the engine's thread, read by the HTTP thread."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    generated_tokens: int = 0
    steps: int = 0
    evicted: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Requests by finish reason."""

    @property
    def progress(self) -> int:
        """Tokens that went through the model; stands still only when nothing runs."""
        return self.prefilled_tokens + self.generated_tokens

    def render(self, running: int, waiting: int) -> str:
        """Prometheus exposition text."""
        counters = {
            "prompt_tokens": (self.prompt_tokens, "Prompt tokens of admitted requests."),
            "cached_tokens": (self.cached_tokens, "Prompt tokens whose K/V was copied."),
            "prefilled_tokens": (self.prefilled_tokens, "Tokens computed in prefill passes."),
            "generated_tokens": (self.generated_tokens, "Tokens generated."),
            "steps": (self.steps, "Forward passes."),
            "evicted": (self.evicted, "Samples sent back to the queue for lack of K/V room."),
            "aborted": (self.finished["abort"], "Requests aborted."),
        }
        lines = []
        for name, (value, text) in counters.items():
            lines += _series(f"rollout_{name}_total", "counter", text, [("", value)])
        by_reason = [(f'{{finish_reason="{reason}"}}', count) for reason, count in sorted(self.finished.items())]
        lines += _series("rollout_requests_total", "counter", "Requests answered.", by_reason)
        lines += _series("rollout_running", "gauge", "Samples that occupy a row.", [("", running)])
        lines += _series("rollout_waiting", "gauge", "Samples in the queue.", [("", waiting)])
        return "\n".join(lines) + "\n"


def _series(name: str, kind: str, text: str, values: list[tuple[str, int]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{labels} {value}" for labels, value in values]
