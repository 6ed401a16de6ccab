"""Health checks of whole engines."""

from __future__ import annotations

from collections.abc import Sequence

from rollout_core.controller.engine import ManagedEngine
from rollout_core.errors import EngineError
from rollout_core.types import Health
from rollout_core.worker import Worker

__all__ = ["check_engine", "combined"]


def check_engine(engine: ManagedEngine) -> list[Health]:
    """One health check of each server that takes requests; one that does not answer is not alive."""
    return [_check(worker) for worker in engine.entry_workers]


def combined(healths: Sequence[Health]) -> Health:
    """Of an engine with several servers: dead if one is dead, its counters added up."""
    if len(healths) == 1:
        return healths[0]
    return Health(
        alive=all(health.alive for health in healths),
        progress=sum(health.progress for health in healths),
        running=sum(health.running for health in healths),
        waiting=sum(health.waiting for health in healths),
        sleeping=any(health.sleeping for health in healths),
        weight_version=min((h.weight_version for h in healths if h.weight_version is not None), default=None),
        detail="; ".join(health.detail for health in healths if health.detail),
    )


def _check(worker: Worker) -> Health:
    try:
        return worker.check_health()
    except EngineError as error:
        return Health(alive=False, detail=str(error))
