"""No process outlives the driver, whatever the driver dies of."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollout_core.errors import LaunchError
from rollout_core.process import GuardedProcess, log_tail

# A server that starts a helper in a session of its own, as engines do, and prints both process ids.
FAMILY = """
import subprocess, sys, os, time
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), helper.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time, os
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""
DRIVER = """
import sys, time
from pathlib import Path
from rollout_core.process import GuardedProcess
process = GuardedProcess([sys.executable, "-c", sys.argv[2]], {}, Path(sys.argv[1]), 30.0)
print("started", flush=True)
time.sleep(600)
"""


def start(code: str, log: Path, grace_s: float = 5.0) -> GuardedProcess:
    return GuardedProcess([sys.executable, "-c", code], {"COLOUR": "red"}, log, grace_s)


def pids_in(log: Path) -> list[int]:
    """Wait until the family has printed its process ids."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if log.exists() and (text := log.read_text()).endswith("\n"):
            return [int(word) for word in text.split()]
        time.sleep(0.02)
    raise AssertionError("the server did not start")


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_gone(pids: list[int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def test_stop_ends_the_command_and_a_child_that_left_its_group(tmp_path: Path) -> None:
    process = start(FAMILY, tmp_path / "log")
    pids = pids_in(tmp_path / "log")
    process.stop()
    assert wait_gone(pids, 0) == []
    process.stop()


def test_a_command_that_ignores_the_request_to_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    process = start(STUBBORN, tmp_path / "log", grace_s=0.3)
    pids = pids_in(tmp_path / "log")
    process.stop()
    assert wait_gone(pids, 0) == []


def test_children_are_ended_when_the_command_is_killed(tmp_path: Path) -> None:
    process = start(FAMILY, tmp_path / "log")
    server, helper = pids_in(tmp_path / "log")
    os.kill(server, signal.SIGKILL)
    assert wait_gone([server, helper], 5) == []
    process.stop()
    assert process.poll() == 128 + signal.SIGKILL


@pytest.mark.parametrize("code", [FAMILY, STUBBORN])
def test_nothing_is_left_five_seconds_after_the_driver_is_killed(tmp_path: Path, code: str) -> None:
    log = tmp_path / "log"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(log), code], stdout=subprocess.PIPE)
    pids = pids_in(log)
    driver.kill()
    driver.communicate()
    assert wait_gone(pids, 5) == []


def test_nothing_is_left_when_the_guard_itself_is_killed(tmp_path: Path) -> None:
    process = start(STUBBORN, tmp_path / "log")
    pids = pids_in(tmp_path / "log")
    os.kill(process.pid, signal.SIGKILL)
    assert wait_gone(pids, 5) == []
    process.stop()


def test_exit_status_output_and_environment_are_the_commands(tmp_path: Path) -> None:
    process = start("import os, sys; print(os.environ['COLOUR']); sys.exit(3)", tmp_path / "log")
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() == 3
    assert log_tail(tmp_path / "log") == "red"
    process.stop()


def test_a_command_that_does_not_exist_says_so_in_the_log(tmp_path: Path) -> None:
    process = GuardedProcess(["/no/such/server"], {}, tmp_path / "log", 1.0)
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() == 127
    assert "cannot start /no/such/server" in log_tail(tmp_path / "log")
    process.stop()


def test_a_log_that_cannot_be_written_is_a_launch_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match="cannot start"):
        GuardedProcess(["true"], {}, tmp_path / "file" / "log", 1.0)


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {i}\n" for i in range(100)))
    assert log_tail(tmp_path / "log", 2) == "line 98\nline 99"
    assert "no log" in log_tail(tmp_path / "missing")
