"""Ctrl-C and SIGTERM: the first ends the run in good order, the second at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which the signals are heard; use it in the main thread.

    Until :meth:`during` the first signal raises KeyboardInterrupt; in it, the given function is called; after it, the
    first signal is only noted, because the run is ending anyway.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        """``at_once`` is called before the process ends by a second signal, and must be quick."""
        self.count = 0
        self._at_once = at_once
        self._first: Callable[[], None] = _raise
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def during(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """From now on the first signal calls ``stop`` in the loop."""
        self._first = stop
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._hear)

    def after(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop is about to end."""
        self._first = _ignore
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._hear()

    def _hear(self) -> None:
        self.count += 1
        if self.count > 1:
            self._at_once()
            # Nothing is lost: samples are on disk before they are counted, and the engines end with this process.
            os._exit(1)
        self._first()


def _raise() -> None:
    raise KeyboardInterrupt


def _ignore() -> None:
    return
