"""A client's side of the barrier: while generation is paused nothing is sent, and the controller knows it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from rollout_core.client.plane import ControlPlane

__all__ = ["ClientGate"]


class ClientGate:
    """Counts what is in flight and lets nothing through while the view says paused. Needs a running loop."""

    def __init__(self, controller: ControlPlane) -> None:
        """Join the controller's clients."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        # The view changes in other threads: looking at it and counting a request is one step under this lock.
        self._lock = threading.Lock()
        self._in_flight = 0
        self._opened = asyncio.Event()
        with self._lock:  # a change that comes at once waits until the membership is known
            self._member = controller.join(self._changed)
        self._changed()

    @property
    def in_flight(self) -> int:
        """Requests that were let through and have not come back."""
        return self._in_flight

    async def wait_open(self) -> None:
        """Return once generation is not paused."""
        while self._controller.view.paused is not None:
            self._opened.clear()
            if self._controller.view.paused is not None:
                await self._opened.wait()

    @contextlib.contextmanager
    def passing(self) -> Iterator[bool]:
        """Count a request for the length of the block; yields False when the gate is closed."""
        with self._lock:
            passed = self._controller.view.paused is None
            self._in_flight += passed
        try:
            yield passed
        finally:
            with self._lock:
                self._in_flight -= passed

    def close(self) -> None:
        """Leave the controller's clients."""
        self._controller.leave(self._member)

    def _changed(self) -> None:
        """Act on a new view and say so; called from any thread, also by one that blocks the loop."""
        with self._lock:
            view = self._controller.view
            self._controller.acknowledge(self._member, view.epoch, self._in_flight)
        if view.paused is None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._opened.set)
