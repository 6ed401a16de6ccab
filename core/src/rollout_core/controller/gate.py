"""The gate of all clients: closing it is a barrier, passed when every client has said that it sends nothing more.

A client joins with a lease, which each acknowledgement renews. A client whose lease has ended is not waited for: it is
dead, or it will see the closed gate before it sends again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Gate", "Member"]


@dataclass
class Member:
    """A client that has joined."""

    lease_s: float
    """Without a sign of life for so many seconds it is taken for dead."""
    on_change: Callable[[], None]
    """Called from any thread after a change of the view; must not block."""
    pid: int | None = None
    """Process id; None for a client of this process."""
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen_at: float = field(default_factory=time.monotonic)
    acknowledged: int = 0
    """The latest epoch that the client has acted on."""
    in_flight: int = 0
    """Requests that it had sent and not got back at its last acknowledgement."""

    @property
    def expired(self) -> bool:
        """Whether its lease has ended."""
        return time.monotonic() - self.seen_at > self.lease_s


class Gate:
    """Counts epochs: every change of what clients must know begins a new one."""

    def __init__(self) -> None:
        """No member, epoch 0."""
        self._changed = threading.Condition()
        self._members: dict[str, Member] = {}
        self.epoch = 0

    def join(self, member: Member) -> Member:
        """Add a client; it has seen nothing yet."""
        with self._changed:
            self._members[member.name] = member
            return member

    def leave(self, name: str) -> None:
        """Remove a client; unknown names are passed over."""
        with self._changed:
            self._members.pop(name, None)
            self._changed.notify_all()

    def acknowledge(self, name: str, epoch: int, in_flight: int) -> bool:
        """Hear that a client has acted on everything up to ``epoch``; False when it is unknown and must join again."""
        with self._changed:
            member = self._members.get(name)
            if member is None:
                return False
            member.acknowledged = max(member.acknowledged, epoch)
            member.in_flight = in_flight
            member.seen_at = time.monotonic()
            self._changed.notify_all()
            return True

    def members(self) -> list[Member]:
        """The clients, those of this process freshly asked; without dead ones of other processes."""
        with self._changed:
            members = [m for m in self._members.values() if m.pid is None or not m.expired]
        for member in members:
            if member.pid is None:
                member.on_change()
        return members

    def advance(self) -> int:
        """Begin a new epoch and tell everybody."""
        with self._changed:
            self.epoch += 1
            epoch, members = self.epoch, list(self._members.values())
            self._changed.notify_all()
        for member in members:
            member.on_change()
        return epoch

    def wait_acknowledged(self, epoch: int) -> tuple[list[Member], list[Member]]:
        """Wait until every living client has acted on ``epoch``.

        Returns:
            The clients that have, and those whose lease ended first; the latter are forgotten.
        """
        with self._changed:
            while behind := [m for m in self._members.values() if m.acknowledged < epoch and not m.expired]:
                leases = [member.seen_at + member.lease_s - time.monotonic() for member in behind]
                self._changed.wait(max(0.001, min(leases)))
            dead = [member for member in self._members.values() if member.acknowledged < epoch]
            for member in dead:
                del self._members[member.name]
            return list(self._members.values()), dead
