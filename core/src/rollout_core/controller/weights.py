"""Brings new weights to all engines at once, and finds out which have them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from rollout_core.controller.engine import ManagedEngine
from rollout_core.errors import WeightUpdateError
from rollout_core.types import Ack, WeightUpdate
from rollout_core.weights import UpdateOptions, WeightSource
from rollout_core.worker import Worker

__all__ = ["UpdateReport", "transfer"]


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What came of an update."""

    version: int
    engines: tuple[str, ...]
    """The engines that serve it."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """The engines that do not, and why; they get no requests until an update succeeds."""
    seconds: float = 0.0
    """Of the transfer, without the pause."""


def transfer(engines: Sequence[ManagedEngine], source: WeightSource, options: UpdateOptions) -> UpdateReport:
    """Update every server that holds ranks, side by side.

    Raises:
        WeightUpdateError: every engine refused the weights before it wrote anything, or the source did.
    """
    started = time.monotonic()
    targets = [(engine, worker) for engine in engines for worker in engine.weight_workers]
    updates = source.updates(options, [len(worker.spec.update_ranks) for _, worker in targets])
    with ThreadPoolExecutor(max_workers=len(targets), thread_name_prefix="rollout-weights") as lane:
        answers = [
            lane.submit(_update, worker, update, source, number)
            for number, ((_, worker), update) in enumerate(zip(targets, updates, strict=True))
        ]
        source.produce()
    failures = _failures(targets, answers, options.version)
    refused = [f for f in failures.values() if isinstance(f, WeightUpdateError)]
    if len(refused) == len(engines):
        raise WeightUpdateError(f"version {options.version} was refused, nothing was written: {refused[0]}")
    return UpdateReport(
        version=options.version,
        engines=tuple(engine.name for engine in engines if engine.name not in failures),
        quarantined={name: str(failure) for name, failure in failures.items()},
        seconds=time.monotonic() - started,
    )


def _update(worker: Worker, update: WeightUpdate, source: WeightSource, number: int) -> Ack:
    try:
        return worker.update_weights(update)
    finally:
        source.leave(number)


def _failures(
    targets: Sequence[tuple[ManagedEngine, Worker]], answers: Sequence[Future[Ack]], version: int
) -> dict[str, BaseException]:
    """By engine: why it does not serve the version. An acknowledgement of another version is a failure too."""
    failures: dict[str, BaseException] = {}
    for (engine, worker), answer in zip(targets, answers, strict=True):
        error = answer.exception()
        if error is None and answer.result().weight_version != version:
            error = ValueError(f"{worker.spec.name} says that it serves version {answer.result().weight_version}")
        # Of an engine with several servers, one that is half written counts for more than one that refused.
        if error is not None and (engine.name not in failures or not isinstance(error, WeightUpdateError)):
            failures[engine.name] = error
    return failures
