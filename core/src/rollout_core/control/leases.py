"""The leases of trainers in other processes, and which of them holds the pause."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from rollout_core.control.messages import TrainerStatus
from rollout_core.control.wire import GoneError

__all__ = ["Trainer", "TrainerLeases"]


@dataclass
class Trainer:
    """A trainer that is attached."""

    pid: int
    lease_s: float
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen_at: float = field(default_factory=time.monotonic)

    @property
    def expired(self) -> bool:
        """Whether its lease has ended."""
        return time.monotonic() - self.seen_at > self.lease_s


class TrainerLeases:
    """Used in the server's loop only."""

    def __init__(self, lease_s: float) -> None:
        """No trainer yet."""
        self.lease_s = lease_s
        self.holder: str | None = None
        """Name of the trainer for which generation is paused."""
        self.notice = ""
        """What became of the trainer that was lost last."""
        self._trainers: dict[str, Trainer] = {}
        self._lost: dict[str, str] = {}

    def attach(self, pid: int) -> Trainer:
        """Add a trainer."""
        trainer = Trainer(pid, self.lease_s)
        self._trainers[trainer.name] = trainer
        return trainer

    def renew(self, name: str) -> None:
        """Hear a sign of life.

        Raises:
            GoneError: the lease has ended.
        """
        if name not in self._trainers:
            reason = self._lost.get(name, "the controller does not know this trainer; it was started anew")
            raise GoneError(reason)
        self._trainers[name].seen_at = time.monotonic()

    def expired(self) -> list[Trainer]:
        """Those whose lease has ended."""
        return [trainer for trainer in self._trainers.values() if trainer.expired]

    def forget(self, name: str, reason: str = "") -> bool:
        """Remove a trainer, with what to tell it should it come back; returns whether it held the pause."""
        self._trainers.pop(name, None)
        if reason:
            self._lost[name] = reason
        held = self.holder == name
        if held:
            self.holder = None
        return held

    def status(self, paused: bool) -> tuple[TrainerStatus, ...]:
        """All trainers."""
        now = time.monotonic()
        return tuple(
            TrainerStatus(t.pid, now - t.seen_at, t.lease_s, paused and t.name == self.holder)
            for t in self._trainers.values()
        )
