"""How old a result is, in weight versions, and whether that is too old."""

from __future__ import annotations

from rollout_core.controller import View
from rollout_core.types import GenerateResult, Status

__all__ = ["aged_status", "lag_of"]

_KEPT = (Status.COMPLETED, Status.ABORTED)


def lag_of(result: GenerateResult, view: View) -> int:
    """How many versions the oldest token is behind what is served."""
    oldest = result.oldest_version
    return 0 if oldest is None else max(0, view.weight_version - oldest)


def aged_status(status: Status, lag: int, max_staleness: int | None) -> Status:
    """``expired`` in the place of a status whose tokens would be used, when they are too old."""
    too_old = max_staleness is not None and lag > max_staleness
    return Status.EXPIRED if too_old and status in _KEPT else status
