"""The control calls of trainers: pause and memory; and what follows when a trainer is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rollout_core.control.leases import TrainerLeases
from rollout_core.control.messages import Lease, Nothing, TrainerStatus
from rollout_core.control.updates import UpdateDesk
from rollout_core.controller import Controller, PauseReport
from rollout_core.errors import RolloutError
from rollout_core.types import Health, MemoryPart, PauseMode

__all__ = ["TrainerDesk"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_LANES = 16
"""Control calls at once; they wait for each other in the controller anyway."""


class TrainerDesk:
    """Speaks for the trainers of other processes. Its methods run in the server's loop."""

    def __init__(self, controller: Controller) -> None:
        """No trainer yet."""
        self._controller = controller
        self._config = controller.plugins.config
        self._leases = TrainerLeases(self._config.trainer_lease_s)
        self._lanes = ThreadPoolExecutor(_LANES, "rollout-trainer")
        self.updates = UpdateDesk(controller, self._leases, self._lanes)

    @property
    def notice(self) -> str:
        """What became of the trainer that was lost last."""
        return self._leases.notice

    def status(self) -> tuple[TrainerStatus, ...]:
        """All trainers."""
        return self._leases.status(self._controller.view.paused is not None)

    async def attach(self, pid: int) -> Lease:
        """Add the trainer of a process."""
        trainer = self._leases.attach(pid)
        return Lease(trainer.name, trainer.lease_s)

    async def renew(self, trainer: str) -> Nothing:
        """Hear a sign of life."""
        self._leases.renew(trainer)
        return Nothing()

    async def detach(self, trainer: str) -> Nothing:
        """Forget a trainer; a pause that it still holds ends as if it was lost."""
        self.updates.give_up(trainer, "the trainer has left")
        if self._leases.forget(trainer):
            await self._end_pause("the trainer left while it held the pause")
        return Nothing()

    async def pause_generation(self, trainer: str, mode: PauseMode) -> PauseReport:
        """Pause for this trainer. A pause of the controller's own process stays its own, and has no lease."""
        self._leases.renew(trainer)
        if self._controller.view.paused is None or self._leases.holder is not None:
            self._leases.holder = trainer
        try:
            return await self._run(lambda: self._controller.pause_generation(mode))
        finally:
            self._note_pause()

    async def continue_generation(self, trainer: str) -> Nothing:
        """Undo a pause, whoever holds it."""
        self._leases.renew(trainer)
        try:
            await self._run(self._controller.continue_generation)
        finally:
            self._note_pause()
        return Nothing()

    async def offload(self, trainer: str, parts: Sequence[MemoryPart], discard_weights: bool) -> frozenset[MemoryPart]:
        """Give memory to the trainer."""
        self._leases.renew(trainer)
        return await self._run(lambda: self._controller.offload(parts, discard_weights=discard_weights))

    async def onload(self, trainer: str, parts: Sequence[MemoryPart]) -> frozenset[MemoryPart]:
        """Take memory back."""
        self._leases.renew(trainer)
        return await self._run(lambda: self._controller.onload(parts))

    async def verify(self, within: float) -> dict[str, tuple[float, ...]]:
        """Compare the engines."""
        return await self._run(lambda: self._controller.verify(within))

    async def abort_requests(self, request_ids: Sequence[str] | None) -> int:
        """Abort some requests, or all."""
        return await self._run(lambda: self._controller.abort_requests(request_ids))

    async def health(self) -> dict[str, Health]:
        """Ask every engine how it feels."""
        return await self._run(self._controller.health)

    async def watch_leases(self) -> None:
        """Look after the leases until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self._leases.lease_s / 4))
            for trainer in self._leases.expired():
                reason = f"the trainer (process {trainer.pid}) gave no sign of life for {trainer.lease_s:g} s"
                self.updates.give_up(trainer.name, reason)
                if self._leases.forget(trainer.name, reason):
                    await self._end_pause(reason)

    def close(self) -> None:
        """Take no more calls."""
        self.updates.close()
        self._lanes.shutdown(wait=False)

    async def _end_pause(self, reason: str) -> None:
        """The holder of the pause is gone."""
        if self._config.lost_trainer == "stay_paused":
            outcome = "generation stays paused until another trainer continues it"
        else:
            outcome = await self._resume()
        self._leases.notice = f"{reason}; {outcome}"
        _LOG.warning("%s", self._leases.notice)

    async def _resume(self) -> str:
        try:
            await self._run(self._load_and_continue)
        except RolloutError as error:
            return f"generation cannot go on: {error}"
        return "generation went on"

    def _load_and_continue(self) -> None:
        self._controller.onload()
        self._controller.continue_generation()

    def _note_pause(self) -> None:
        if self._controller.view.paused is None:
            self._leases.holder = None

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._lanes, call)
