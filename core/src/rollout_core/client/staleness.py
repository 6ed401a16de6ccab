"""How old a result is, in weight versions, and whether that is too old."""

from __future__ import annotations

from dataclasses import replace

from rollout_core.controller import View
from rollout_core.types import GenerateResult, Status

__all__ = ["aged", "is_too_old"]

_KEPT = (Status.COMPLETED, Status.ABORTED)


def aged(result: GenerateResult, view: View, max_staleness: int | None) -> GenerateResult:
    """The result with its lag behind the served version; ``expired`` when that is above the limit."""
    lag = _lag(result, view)
    expired = result.status in _KEPT and is_too_old(result, view, max_staleness)
    status = Status.EXPIRED if expired else result.status
    return replace(result, lag=lag, cache_policy=view.cache_policy, status=status)


def is_too_old(result: GenerateResult, view: View, max_staleness: int | None) -> bool:
    """Whether the oldest token is further behind than allowed."""
    return max_staleness is not None and _lag(result, view) > max_staleness


def _lag(result: GenerateResult, view: View) -> int:
    oldest = result.oldest_version
    return 0 if oldest is None else max(0, view.weight_version - oldest)
