"""A controller in another process, for a trainer: the methods of :class:`rollout_core.Controller`, and a lease."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rollout_core.control.address import Address, Connection
from rollout_core.control.delivery import Delivery
from rollout_core.control.link import Link
from rollout_core.control.messages import Lease, Nothing, RunStatus, Updated
from rollout_core.control.wire import GoneError
from rollout_core.controller import PauseReport, UpdateReport
from rollout_core.errors import RolloutError, StateError
from rollout_core.types import Health, MemoryPart, PauseMode
from rollout_core.weights import FromFolder, WeightSource

__all__ = ["RemoteController"]

T = TypeVar("T")
_RENEWALS_PER_LEASE = 3
_LEAVE_S = 1.0


class RemoteController:
    """A trainer's handle of a controller in another process; its methods block and are safe to call from any thread.

    It renews its lease while it is open. When the trainer dies between pause and continue, the controller does what
    ``lost_trainer`` says.

    ``with RemoteController.connect("out") as controller, controller.paused(): train()``
    """

    def __init__(self, link: Link, lease: Lease) -> None:
        """Use :meth:`connect`."""
        self._link = link
        self._lease = lease
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="rollout-lease", daemon=True)
        self._thread.start()

    @classmethod
    def connect(cls, where: str | Path | Connection) -> Self:
        """Connect to the controller at a connection file, or at a folder that has one.

        Raises:
            ControlError: nobody answers there, or it refuses this process.
        """
        link = Link(Address(where).read())
        try:
            return cls(link, _attach(link))
        except BaseException:
            link.close()
            raise

    def close(self) -> None:
        """Give the lease back; a pause that is still held ends as ``lost_trainer`` says. Twice is harmless."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with suppress(RolloutError):
            self._link.call("detach", Nothing, trainer=self._lease.trainer)
        self._thread.join(_LEAVE_S)
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def status(self) -> RunStatus:
        """How the run stands."""
        return self._link.call("status", RunStatus)

    def health(self) -> dict[str, Health]:
        """Ask every ready engine how it feels."""
        return self._long("health", dict[str, Health])

    def pause_generation(self, mode: PauseMode | str = PauseMode.ABORT) -> PauseReport:
        """Stop generation, in this trainer's name; see :meth:`rollout_core.Controller.pause_generation`."""
        mode = PauseMode(mode)
        try:
            return self._long("pause_generation", PauseReport, trainer=self._lease.trainer, mode=mode)
        except GoneError:
            self._lease = _attach(self._link)
            return self._long("pause_generation", PauseReport, trainer=self._lease.trainer, mode=mode)

    def continue_generation(self) -> None:
        """Undo a pause; see :meth:`rollout_core.Controller.continue_generation`.

        Raises:
            StateError: the lease had ended, and the pause with it.
        """
        self._leased("continue_generation", Nothing)

    @contextmanager
    def paused(self, mode: PauseMode | str = PauseMode.ABORT) -> Iterator[PauseReport]:
        """Pause for the length of a ``with`` block; generation continues whatever the block raises."""
        report = self.pause_generation(mode)
        try:
            yield report
        finally:
            self.onload()
            self.continue_generation()

    def offload(
        self, parts: Iterable[MemoryPart | str] = tuple(MemoryPart), *, discard_weights: bool = False
    ) -> frozenset[MemoryPart]:
        """Take the engines' memory; see :meth:`rollout_core.Controller.offload`."""
        asked = sorted(map(MemoryPart, parts))
        return self._leased("offload", frozenset[MemoryPart], parts=asked, discard_weights=discard_weights)

    def onload(self, parts: Iterable[MemoryPart | str] = tuple(MemoryPart)) -> frozenset[MemoryPart]:
        """Give memory back; see :meth:`rollout_core.Controller.onload`."""
        return self._leased("onload", frozenset[MemoryPart], parts=sorted(map(MemoryPart, parts)))

    def onload_weights(self) -> None:
        """Give the memory of the weights back."""
        self.onload([MemoryPart.WEIGHTS])

    def onload_kvcache(self) -> None:
        """Give the memory of the K/V cache back."""
        self.onload([MemoryPart.KV_CACHE])

    def update_weights(
        self,
        source: WeightSource,
        *,
        version: int | None = None,
        keep_cache: bool = False,
        refuse_non_finite: bool = False,
        verify_within: float | None = None,
    ) -> UpdateReport:
        """Bring new weights to all engines; see :meth:`rollout_core.Controller.update_weights`."""
        options = {
            "version": version,
            "keep_cache": keep_cache,
            "refuse_non_finite": refuse_non_finite,
            "verify_within": verify_within,
        }
        if isinstance(source, FromFolder):
            updated = self._leased("update_from_folder", Updated, folder=str(source.folder), options=options)
        else:
            updated = self._told_gone(lambda: Delivery(self._link, self._lease.trainer, source).bring(options))
        return UpdateReport(updated.version, updated.engines, updated.quarantined, seconds=updated.seconds)

    def verify(self, within: float = 1e-3) -> dict[str, tuple[float, ...]]:
        """Compare the engines; see :meth:`rollout_core.Controller.verify`."""
        return self._long("verify", dict[str, tuple[float, ...]], within=within)

    def abort_requests(self, request_ids: Sequence[str] | None = None) -> int:
        """Abort the given requests, or all; returns how many the engines aborted."""
        return self._long("abort_requests", int, request_ids=request_ids)

    def _leased(self, name: str, kind: type[T], **arguments: Any) -> T:
        return self._told_gone(lambda: self._long(name, kind, trainer=self._lease.trainer, **arguments))

    def _told_gone(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except GoneError as error:
            raise StateError(f"{error}; its pause is over, and pause_generation() begins a new one") from error

    def _long(self, name: str, kind: type[T], **arguments: Any) -> T:
        # No deadline here: the controller has one for each engine, and its end closes the connection.
        return self._link.call(name, kind, timeout_s=None, **arguments)

    def _renew(self) -> None:
        while not self._stopping.wait(self._lease.lease_s / _RENEWALS_PER_LEASE):
            # A failure that lasts is told by the trainer's next call.
            with suppress(RolloutError, GoneError):
                self._link.call("renew", Nothing, timeout_s=self._lease.lease_s, trainer=self._lease.trainer)


def _attach(link: Link) -> Lease:
    return link.call("attach", Lease, pid=os.getpid())
