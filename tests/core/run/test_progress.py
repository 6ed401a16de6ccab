"""Lines where there is no terminal, a live display where there is one, nothing but failures when quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from rollout_core.controller import EngineEvent, EngineState
from rollout_core.run import progress
from rollout_core.run.progress import LineProgress, QuietProgress, open_progress
from rollout_core.run.record import Outcome
from rollout_core.run.summary import Tally

FAILED = EngineEvent("engine-0", EngineState.FAILED, "it ended with status 1\nthe log\nof it", 2.0)


def tally_of(done: int, planned: int) -> Tally:
    tally = Tally(1, planned)
    for index in range(done):
        tally.add(Outcome(index, 0, "completed", "stop", 1, 10, None, None, None))
    return tally


def test_quiet_tells_failures_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = open_progress(quiet=True)
    assert isinstance(quiet, QuietProgress)
    quiet.engine(EngineEvent("engine-0", EngineState.READY, "", 1.0))
    quiet.begin(tally_of(0, 1))
    quiet.update(1)
    quiet.note("stopping")
    assert capsys.readouterr().err == ""
    quiet.engine(FAILED)
    assert capsys.readouterr().err == "engine-0 is failed: it ended with status 1 (2.0 s)\n"


def test_lines_come_at_intervals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = open_progress(quiet=False)
    assert isinstance(lines, LineProgress)
    lines.engine(EngineEvent("engine-0", EngineState.STARTING, "launching", 0.0))
    lines.engine(EngineEvent("engine-0", EngineState.STARTING, "loading", 1.0))
    lines.engine(EngineEvent("engine-0", EngineState.READY, "", 3.0))
    lines.begin(tally_of(3, 10))
    lines.update(2)
    assert capsys.readouterr().err == "engine-0 is starting: launching (0.0 s)\nengine-0 is ready (3.0 s)\n"
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    lines.update(2)
    assert capsys.readouterr().err == "3/10 done, 0 failed, 2 in flight, 0 tokens/s\n"


def test_speed_and_time_left_count_this_session_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    tally = tally_of(4, 10)
    pace = progress._Pace(tally)
    tally.add(Outcome(5, 0, "completed", "stop", 1, 100, None, None, None))
    tally.add(Outcome(6, 0, "completed", "stop", 1, 100, None, None, None))
    clock[0] = 120.0
    pace.measure()
    assert (pace.tokens_per_s, pace.left_s) == (10.0, 40.0)
    assert pace.line(3).endswith("3 in flight, 10 tokens/s, 0:40 left")


CODE = """
import time
from rollout_core.controller import EngineEvent, EngineState
from rollout_core.run.progress import LiveProgress, open_progress
from rollout_core.run.summary import Tally
progress = open_progress(quiet=False)
assert isinstance(progress, LiveProgress)
progress.engine(EngineEvent("engine-0", EngineState.STARTING, "loading", 1.0))
time.sleep(0.4)
progress.begin(Tally(1, 8))
progress.update(3)
time.sleep(0.4)
progress.warn("a [red] warning")
progress.close()
progress.close()
"""


def test_the_live_display_draws_on_a_terminal_and_gives_it_back() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", CODE], stderr=theirs, check=True, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    drawn = b""
    try:
        while chunk := os.read(ours, 65536):
            drawn += chunk
    except OSError:  # Linux ends a closed terminal so
        os.close(ours)
    text = drawn.decode()
    assert "engine-0 is starting, loading (1 s)" in text
    assert "0/8 done, 0 failed, 3 in flight" in text
    assert "a [red] warning" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is still hidden"
