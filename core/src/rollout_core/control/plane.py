"""The control plane as a client in another process sees it: a copy of the view, kept fresh by a thread.

The client's own lease begins when it asks and the controller's when it hears, so the client stops sending before the
controller stops waiting for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from rollout_core.config import RolloutConfig
from rollout_core.control.address import Address, Connection
from rollout_core.control.link import Link
from rollout_core.control.messages import Greeting, Joined, Nothing
from rollout_core.control.wire import GoneError
from rollout_core.controller import Member, View
from rollout_core.errors import ControlError, RolloutError, StateError
from rollout_core.model import ModelInfo
from rollout_core.plugins import Plugins
from rollout_core.types import PauseMode

__all__ = ["RemotePlane"]

_WATCHES_PER_LEASE = 3
_RETRY_S = 0.2
_LEAVE_S = 1.0


class RemotePlane:
    """What one :class:`rollout_core.RolloutClient` needs of a controller in another process."""

    def __init__(self, address: Address, link: Link, greeting: Greeting, plugins: Plugins) -> None:
        """Use :meth:`connect`."""
        self.plugins = plugins
        self.model: ModelInfo = greeting.model
        self.context_length = greeting.context_length
        self._address = address
        self._link = link
        self._greeting = greeting
        self._view = View((), {})
        self._member: Member | None = None
        self._valid_until = 0.0
        self._trouble = ""
        """Why the controller was not heard of last time."""
        self._forgotten = False
        self._lost = False
        """It does not answer, and the lease has ended."""
        self._succeeded: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._reports = ThreadPoolExecutor(1, "rollout-reports")

    @classmethod
    def connect(cls, where: str | Path | Connection) -> Self:
        """Ask a controller what it serves, and load the same plugins here. Blocks for a moment.

        Raises:
            ControlError: nobody answers there, or it refuses this process.
            PluginError: the run's plugins cannot be loaded here.
        """
        address = Address(where)
        connection = address.read()
        with closing(Link(connection)) as link:
            greeting = link.call("hello", Greeting)
        plugins = Plugins.load(RolloutConfig.model_validate(greeting.config))
        return cls(address, Link(connection), greeting, plugins)

    @property
    def view(self) -> View:
        """The engines as they were told last.

        Once the lease has ended the gate is closed, until it is known whether the controller is lost; then there are
        no engines.
        """
        if self._member is None or time.monotonic() < self._valid_until:
            return self._view
        if not self._lost:
            return replace(self._view, paused=self._view.paused or PauseMode.KEEP)
        silent_s = time.monotonic() - self._valid_until + self._member.lease_s
        reason = f"not heard of for {silent_s:.1f} s: {self._trouble}"
        return replace(self._view, endpoints=(), states={}, reasons={"controller": reason}, paused=None)

    def join(self, on_change: Callable[[], None]) -> Member:
        """Join the controller's clients.

        Raises:
            ControlError: the controller does not answer.
            StateError: a client has joined already.
        """
        if self._member is not None:
            raise StateError("this connection has its client; connect() once for each client")
        joined = self._enter(self._link)
        self._member = Member(joined.lease_s, on_change, os.getpid(), joined.member)
        self._thread = threading.Thread(target=self._watch, args=(self._member,), name="rollout-watch", daemon=True)
        self._thread.start()
        return self._member

    def acknowledge(self, member: Member, epoch: int, in_flight: int) -> None:
        """Remember what the next call tells the controller."""
        member.acknowledged, member.in_flight = epoch, in_flight

    def leave(self, member: Member) -> None:
        """Leave the controller's clients; one that does not answer finds out by itself."""
        self._stopping.set()
        self._reports.shutdown(wait=False, cancel_futures=True)
        with suppress(RolloutError, GoneError):
            self._link.call("leave", Nothing, timeout_s=_LEAVE_S, member=member.name)
        if self._thread is not None:
            self._thread.join(_LEAVE_S)
        self._link.close()

    def report_success(self, engine_name: str) -> None:
        """An engine answered; told with the next call, because only a fault makes it matter."""
        self._succeeded.add(engine_name)

    def report_fault(self, engine_name: str, reason: str) -> None:
        """An engine failed a request by its own fault."""
        with suppress(RuntimeError):  # the client has left
            self._reports.submit(self._report_fault, engine_name, reason, self._take_succeeded())

    def _report_fault(self, engine: str, reason: str, succeeded: list[str]) -> None:
        with suppress(RolloutError):
            self._link.call("report_fault", Nothing, engine=engine, reason=reason, succeeded=succeeded)

    def _take_succeeded(self) -> list[str]:
        taken, self._succeeded = self._succeeded, set()
        return list(taken)

    def _watch(self, member: Member) -> None:
        """Keep the view fresh and the lease alive until the client leaves."""
        while not self._stopping.is_set():
            try:
                self._ask(member)
            except RolloutError as error:
                self._trouble = str(error)
                self._lost = time.monotonic() >= self._valid_until
                self._stopping.wait(_RETRY_S)
            except GoneError as error:
                self._trouble, self._forgotten = str(error), True
            if not self._stopping.is_set():
                member.on_change()

    def _ask(self, member: Member) -> None:
        if self._trouble:
            self._meet_again(member)
        asked_at, wait_s = time.monotonic(), member.lease_s / _WATCHES_PER_LEASE
        left_s = self._valid_until - asked_at
        self._view = self._link.call(
            "watch",
            View,
            timeout_s=left_s if left_s > 0 else member.lease_s,
            member=member.name,
            epoch=member.acknowledged,
            in_flight=member.in_flight,
            succeeded=self._take_succeeded(),
            wait_s=wait_s,
        )
        self._valid_until = asked_at + member.lease_s
        self._trouble, self._lost = "", False

    def _meet_again(self, member: Member) -> None:
        """After trouble: join anew where the controller has forgotten us, or is another one."""
        connection = self._address.read()
        if connection == self._link.connection and not self._forgotten:
            return
        with closing(Link(connection)) as link:
            if _served(link.call("hello", Greeting)) != _served(self._greeting):
                raise ControlError(f"the controller at {self._address} serves something else now; connect() anew")
        link = Link(connection)
        try:
            joined = self._enter(link)
        except BaseException:
            link.close()
            raise
        member.name, member.acknowledged = joined.member, 0
        self._link, before = link, self._link
        before.close()
        self._forgotten = False

    def _enter(self, link: Link) -> Joined:
        asked_at = time.monotonic()
        joined = link.call("join", Joined, pid=os.getpid())
        self._view, self._valid_until = joined.view, asked_at + joined.lease_s
        return joined


def _served(greeting: Greeting) -> tuple[object, ...]:
    """What a client relies on."""
    config = greeting.config
    return greeting.model, greeting.context_length, config["backend"], config["backend_options"], config["api_keys"]
