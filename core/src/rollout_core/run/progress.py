"""Shows how far a run is: a live display on a terminal, plain lines elsewhere, nothing when quiet.

All of it goes to standard error, so that standard output has only the result.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from rollout_core.controller import EngineEvent, EngineState

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rollout_core.run.summary import Tally

__all__ = ["LineProgress", "LiveProgress", "Progress", "QuietProgress", "open_progress"]

LINE_INTERVAL_S = 5.0
RATE_WINDOW_S = 30.0


class Progress(Protocol):
    """What a run tells of itself. Engine events come from any thread."""

    def engine(self, event: EngineEvent) -> None:
        """An engine changed, or is still starting."""

    def begin(self, tally: Tally) -> None:
        """Samples are drawn from now on; ``tally`` counts them."""

    def update(self, in_flight: int) -> None:
        """Called about once a second, and never from two threads at once."""

    def note(self, message: str) -> None:
        """Say something; not when quiet."""

    def warn(self, message: str) -> None:
        """Say that something went wrong."""

    def close(self) -> None:
        """Leave the terminal as it was; twice is harmless."""


def open_progress(*, quiet: bool) -> Progress:
    """The display that suits standard error."""
    if quiet:
        return QuietProgress()
    return LiveProgress() if sys.stderr.isatty() else LineProgress()


class QuietProgress:
    """Says nothing but that an engine failed."""

    def engine(self, event: EngineEvent) -> None:
        """Failures only."""
        if event.state is EngineState.FAILED:
            self.warn(_engine_line(event))

    def begin(self, tally: Tally) -> None:
        """Nothing to say."""

    def update(self, in_flight: int) -> None:
        """Nothing to say."""

    def note(self, message: str) -> None:
        """Nothing to say."""

    def warn(self, message: str) -> None:
        """Errors are told even so."""
        print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing to undo."""


class _Pace:
    """Tokens per second of the last half minute, and the time left at this pace."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.began = time.monotonic()
        self._at_start = tally.samples
        self._points: deque[tuple[float, int]] = deque([(self.began, tally.response_tokens)])

    def measure(self) -> None:
        """Take a point."""
        moment = time.monotonic()
        self._points.append((moment, self.tally.response_tokens))
        while len(self._points) > 2 and moment - self._points[0][0] > RATE_WINDOW_S:
            self._points.popleft()

    @property
    def tokens_per_s(self) -> float:
        (start, before), (end, after) = self._points[0], self._points[-1]
        return (after - before) / (end - start) if end > start else 0.0

    @property
    def left_s(self) -> float | None:
        """None until the first sample of this session is there."""
        fresh = self.tally.samples - self._at_start
        if fresh < 1:
            return None
        return (time.monotonic() - self.began) / fresh * (self.tally.planned - self.tally.samples)

    def line(self, in_flight: int) -> str:
        """All of it in words."""
        counts = self.tally.counts()
        left = f", {_clock(self.left_s)} left" if self.left_s is not None else ""
        return (
            f"{counts['completed']}/{counts['planned']} done, {counts['failed']} failed, {in_flight} in flight, "
            f"{self.tokens_per_s:.0f} tokens/s{left}"
        )


class LineProgress:
    """A line every few seconds, for logs."""

    def __init__(self) -> None:
        """Nothing is printed yet."""
        self._pace: _Pace | None = None
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def engine(self, event: EngineEvent) -> None:
        """Changes at once, signs of life at intervals."""
        with self._lock:
            waiting = event.state is EngineState.STARTING and event.seconds > 0
            if waiting and time.monotonic() - self._last < LINE_INTERVAL_S:
                return
            self._last = time.monotonic()
        if event.state is not EngineState.STOPPED:
            self.note(_engine_line(event))

    def begin(self, tally: Tally) -> None:
        """Start to count."""
        self._pace, self._last = _Pace(tally), time.monotonic()

    def update(self, in_flight: int) -> None:
        """Print when the last line is old enough."""
        if self._pace is None:
            return
        self._pace.measure()
        if time.monotonic() - self._last >= LINE_INTERVAL_S:
            self._last = time.monotonic()
            self.note(self._pace.line(in_flight))

    def note(self, message: str) -> None:
        """Print a line."""
        print(message, file=sys.stderr, flush=True)

    def warn(self, message: str) -> None:
        """Print a line."""
        self.note(message)

    def close(self) -> None:
        """Nothing to undo."""


class LiveProgress:
    """A few lines at the foot of the terminal, redrawn in place."""

    def __init__(self) -> None:
        """Take the terminal until :meth:`close`."""
        from rich.console import Console
        from rich.live import Live

        self._engines: dict[str, tuple[EngineEvent, float]] = {}
        self._pace: _Pace | None = None
        self._in_flight = 0
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def engine(self, event: EngineEvent) -> None:
        """Failures stay on the screen."""
        self._engines = {**self._engines, event.engine: (event, time.monotonic())}
        if event.state is EngineState.FAILED:
            self.warn(_engine_line(event))

    def begin(self, tally: Tally) -> None:
        """From engines to samples."""
        self._pace = _Pace(tally)

    def update(self, in_flight: int) -> None:
        """The display redraws itself."""
        self._in_flight = in_flight
        if self._pace is not None:
            self._pace.measure()

    def note(self, message: str) -> None:
        """Print above the display."""
        self._console.print(message, markup=False)

    def warn(self, message: str) -> None:
        """Print above the display, to be seen."""
        self._console.print(message, markup=False, style="yellow")

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        if self._pace is None:
            return Group(*(Text(self._starting(*seen)) for seen in self._engines.values()))
        tally = self._pace.tally
        bar = ProgressBar(total=max(1, tally.planned), completed=tally.samples, width=40)
        return Group(bar, Text(self._pace.line(self._in_flight)))

    def _starting(self, event: EngineEvent, heard: float) -> str:
        if event.state is not EngineState.STARTING:
            return _engine_line(event)
        return f"{event.engine} is starting, {event.detail} ({event.seconds + time.monotonic() - heard:.0f} s)"


def _engine_line(event: EngineEvent) -> str:
    # The whole of a failure, with the end of the log, is in the error that ends the run or fails the samples.
    detail = f": {event.detail.splitlines()[0]}" if event.detail else ""
    return f"{event.engine} is {event.state.value}{detail} ({event.seconds:.1f} s)"


def _clock(seconds: float | None) -> str:
    """``0:12``, ``3:04`` or ``2:00:59``."""
    minutes, rest = divmod(round(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
