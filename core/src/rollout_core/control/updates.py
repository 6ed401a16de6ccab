"""The control calls with which trainers bring weights: from a folder, or bucket by bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from rollout_core.control.leases import TrainerLeases
from rollout_core.control.messages import Nothing, Plan, Updated, Wish
from rollout_core.control.relay import Relay
from rollout_core.controller import Controller, UpdateReport
from rollout_core.errors import StateError
from rollout_core.types import Bucket, Capability, WeightUpdate
from rollout_core.weights import FromFolder, WeightSource

__all__ = ["UpdateDesk"]


@dataclass(frozen=True, slots=True)
class _Options:
    version: int | None
    keep_cache: bool
    refuse_non_finite: bool
    verify_within: float | None


class UpdateDesk:
    """Brings weights of trainers in other processes to the engines. Its methods run in the server's loop."""

    def __init__(self, controller: Controller, leases: TrainerLeases, lanes: Executor) -> None:
        """Updates run in ``lanes``."""
        self._controller = controller
        self._leases = leases
        self._lanes = lanes
        self._running: dict[str, tuple[Relay, asyncio.Future[UpdateReport]]] = {}

    async def update_from_folder(self, trainer: str, folder: str, options: _Options) -> Updated:
        """Bring weights from a folder to all engines."""
        self._leases.renew(trainer)
        return _updated(await self._update(FromFolder(folder), options))

    async def begin_update(self, trainer: str, capability: Capability, options: _Options) -> Plan:
        """Begin an update whose weights the trainer brings; returns when they can be described."""
        self._leases.renew(trainer)
        if trainer in self._running:
            raise StateError("this trainer's update is running already")
        relay = Relay(capability)
        update, plan = self._update(relay, options), asyncio.ensure_future(relay.plan())
        self._running[trainer] = relay, update
        await asyncio.wait((update, plan), return_when=asyncio.FIRST_COMPLETED)
        if not plan.done():
            plan.cancel()
            del self._running[trainer]
            await update  # raises why it did not begin
        return await plan

    async def describe_weights(self, trainer: str, updates: Sequence[WeightUpdate]) -> Nothing:
        """Hear what each target will get; the data follows."""
        self._relay(trainer).describe(updates)
        return Nothing()

    async def next_wish(self, trainer: str, target: int) -> Wish:
        """Wait until a target wants something."""
        return await self._relay(trainer).wish(target)

    async def give_bucket(self, trainer: str, target: int, bucket: Bucket | None, failure: str | None) -> Wish:
        """Hand a target its next bucket, and wait for its next wish."""
        return await self._relay(trainer).give(target, bucket, failure)

    async def end_update(self, trainer: str, failure: str | None) -> Updated:
        """Everything was brought, or the trainer gave up; returns what came of it."""
        relay = self._relay(trainer)
        _, update = self._running.pop(trainer)
        relay.end(failure)
        return _updated(await update)

    def give_up(self, trainer: str, reason: str) -> None:
        """The trainer is gone: an update that it had begun fails."""
        if trainer in self._running:
            relay, update = self._running.pop(trainer)
            update.add_done_callback(lambda done: done.exception())  # nobody is left to hear of it
            relay.end(reason)

    def close(self) -> None:
        """End what trainers have begun."""
        for trainer in list(self._running):
            self.give_up(trainer, "the controller has ended")

    def _relay(self, trainer: str) -> Relay:
        self._leases.renew(trainer)
        if trainer not in self._running:
            raise StateError("this trainer has begun no update")
        return self._running[trainer][0]

    def _update(self, source: WeightSource, options: _Options) -> asyncio.Future[UpdateReport]:
        return asyncio.get_running_loop().run_in_executor(
            self._lanes,
            lambda: self._controller.update_weights(
                source,
                version=options.version,
                keep_cache=options.keep_cache,
                refuse_non_finite=options.refuse_non_finite,
                verify_within=options.verify_within,
            ),
        )


def _updated(report: UpdateReport) -> Updated:
    return Updated(report.version, report.engines, report.quarantined, report.seconds)
