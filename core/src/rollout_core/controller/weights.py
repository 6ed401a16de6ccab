"""Brings new weights to all engines at once, and finds out which have them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from rollout_core.controller.engine import ManagedEngine
from rollout_core.errors import WeightUpdateError
from rollout_core.types import Ack, WeightUpdate
from rollout_core.weights import UpdateOptions, WeightSource
from rollout_core.weights.feed import NothingSentError
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
    refusal: str | None = None
    """Why the weights were refused; then nothing was written, and the engines serve what they had."""
    broken: Exception | None = None
    """What broke on the trainer's side, if anything did."""
    seconds: float = 0.0
    """Of the transfer, without the pause."""


def transfer(engines: Sequence[ManagedEngine], source: WeightSource, options: UpdateOptions) -> UpdateReport:
    """Update every server that holds ranks, side by side.

    Raises:
        WeightUpdateError: the source has no weights that could be sent.
    """
    started = time.monotonic()
    targets = [(engine, worker) for engine in engines for worker in engine.weight_workers]
    updates = source.updates(options, [len(worker.spec.update_ranks) for _, worker in targets])
    with ThreadPoolExecutor(max_workers=len(targets), thread_name_prefix="rollout-weights") as lane:
        answers = [
            lane.submit(_update, worker, update, source, number)
            for number, ((_, worker), update) in enumerate(zip(targets, updates, strict=True))
        ]
        broken = _produce(source)
    failures = _failures(targets, answers, options.version)
    served = tuple(engine.name for engine in engines if engine.name not in failures)
    refusal = None if served else _refusal(failures)
    in_doubt = {name: error for name, error in failures.items() if refusal is None or not _is_refusal(error)}
    return UpdateReport(
        version=options.version,
        engines=served,
        quarantined={name: str(error) for name, error in in_doubt.items()},
        refusal=refusal,
        broken=broken,
        seconds=time.monotonic() - started,
    )


def _produce(source: WeightSource) -> Exception | None:
    """Bring the data; an error is looked at when it is known which engines it leaves in doubt."""
    try:
        source.produce()
    except Exception as error:
        return error
    return None


def _update(worker: Worker, update: WeightUpdate, source: WeightSource, number: int) -> Ack:
    refused = False
    try:
        return worker.update_weights(update)
    except WeightUpdateError:
        refused = True
        raise
    finally:
        source.leave(number, refused)


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
        if error is not None and (engine.name not in failures or not _is_refusal(error)):
            failures[engine.name] = error
    return failures


def _is_refusal(error: BaseException) -> bool:
    """Whether the engine goes on with the weights it had."""
    return isinstance(error, WeightUpdateError)


def _refusal(failures: Mapping[str, BaseException]) -> str | None:
    """The reason of an engine that refused, rather than of one that heard of it."""
    refusals = sorted(filter(_is_refusal, failures.values()), key=lambda error: isinstance(error, NothingSentError))
    return str(refusals[0]) if refusals else None
