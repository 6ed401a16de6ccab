"""The control calls of clients: they join, ask for changes of the view, and report faults."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from rollout_core.control.messages import Greeting, Joined, Nothing
from rollout_core.control.wire import GoneError, reveal
from rollout_core.controller import Controller, Member, View

__all__ = ["ClientDesk"]

LONGEST_WAIT_S = 60.0
_FORGOTTEN = "the controller has forgotten this client"


class _Remote:
    """A member, and what wakes the call in which its client waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.changed = asyncio.Event()
        self._loop = loop

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.changed.set)


class ClientDesk:
    """Speaks for the clients of other processes. Its methods run in the server's loop."""

    def __init__(self, controller: Controller) -> None:
        """No client yet."""
        self._controller = controller
        self._remotes: dict[str, tuple[Member, _Remote]] = {}

    async def hello(self) -> Greeting:
        """What a client needs to build its plugins; the only call that gives secrets away."""
        controller = self._controller
        return Greeting(reveal(controller.plugins.config), controller.model, controller.context_length)

    async def join(self, pid: int) -> Joined:
        """Add the client of a process."""
        self._remotes = {name: (m, r) for name, (m, r) in self._remotes.items() if not m.expired}
        remote = _Remote(asyncio.get_running_loop())
        member = self._controller.join(remote.wake, pid)
        self._remotes[member.name] = (member, remote)
        return Joined(member.name, member.lease_s, self._controller.view)

    async def watch(self, member: str, epoch: int, in_flight: int, succeeded: Sequence[str], wait_s: float) -> View:
        """Wait for a view that the client has not acted on; renews its lease.

        Args:
            member: the client.
            epoch: of the view that it has acted on.
            in_flight: its requests in flight.
            succeeded: engines that answered since it was last heard of.
            wait_s: seconds after which the present view is answered.
        """
        known, remote = self._known(member)
        remote.changed.clear()
        if not self._controller.acknowledge(known, epoch, in_flight):
            del self._remotes[member]
            raise GoneError(_FORGOTTEN)
        for engine in succeeded:
            self._controller.report_success(engine)
        if self._controller.view.epoch == epoch:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(remote.changed.wait(), min(wait_s, LONGEST_WAIT_S))
        return self._controller.view

    async def report_fault(self, engine: str, reason: str, succeeded: Sequence[str]) -> Nothing:
        """An engine failed a request by its own fault; ``succeeded`` are engines that answered before."""
        for name in succeeded:
            self._controller.report_success(name)
        # In a thread: taking an engine out of service calls extensions.
        await asyncio.to_thread(self._controller.report_fault, engine, reason)
        return Nothing()

    async def leave(self, member: str) -> Nothing:
        """Forget a client."""
        if member in self._remotes:
            known, remote = self._remotes.pop(member)
            self._controller.leave(known)
            remote.changed.set()
        return Nothing()

    def close(self) -> None:
        """Let all waiting calls return."""
        for _, remote in self._remotes.values():
            remote.changed.set()

    def _known(self, member: str) -> tuple[Member, _Remote]:
        if member not in self._remotes:
            raise GoneError(_FORGOTTEN)
        return self._remotes[member]
