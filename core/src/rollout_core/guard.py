"""Runs one server so that no process of it can outlive the driver. Started as a script, by its path.

Usage: guard.py LIFELINE_FD GRACE_SECONDS COMMAND...

The guard adopts orphans of its descendants (a child subreaper), so it knows every process that the command ever
started, also those that left its process group. It ends them all when the command ends, when it is asked to
(SIGTERM), and when the driver dies: the driver holds the other end of the lifeline pipe, which the kernel closes
whatever the driver dies of. Only the standard library, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.02
ORPHANED_GRACE_S = 2.0
"""A driver that died promises an empty machine soon, so its servers get less time to end."""

statuses: dict[int, int] = {}
"""Exit codes of the direct and adopted children that were reaped."""


def main(lifeline: int, grace_s: float, command: list[str]) -> int:
    """Run the command to its end, the driver's end, or a SIGTERM; return the command's exit code."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeups = catch_signals()
    child = start(command)
    while child not in statuses:
        ready, _, _ = select.select([lifeline, wakeups], [], [])
        if lifeline in ready:
            grace_s = min(grace_s, ORPHANED_GRACE_S)
            break
        if signal.SIGTERM in os.read(wakeups, 256):
            break
        reap()
    end_all(child, grace_s)
    code = statuses.get(child, -signal.SIGKILL)
    return code if code >= 0 else 128 - code


def catch_signals() -> int:
    """Turn SIGTERM and SIGCHLD into bytes on a pipe, and leave Ctrl-C to the driver."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def start(command: list[str]) -> int:
    """Start the command with default signals; it dies with the guard."""
    pid = os.fork()
    if pid:
        return pid
    # The guard has one thread, so the parent-death signal means the guard's death, not a thread's.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", flush=True)
    os._exit(127)


def end_all(child: int, grace_s: float) -> None:
    """Ask the command to end, wait for ``grace_s`` seconds, then kill every descendant that is left."""
    deadline = time.monotonic() + grace_s
    if child not in statuses:
        send(child, signal.SIGTERM)
    while child not in statuses and time.monotonic() < deadline:
        time.sleep(POLL_S)
        reap()
    while left := descendants(os.getpid()):
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def descendants(root: int) -> list[int]:
    """Living descendants of a process; zombies of ours are reaped first."""
    reap()
    children: dict[int, list[int]] = {}
    for pid, parent in process_table():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, ())
    return found


def process_table() -> list[tuple[int, int]]:
    """(pid, parent pid) of every process that is not a zombie."""
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False)
        rows = [line.split() for line in listing.stdout.splitlines()]
        return [(int(pid), int(parent)) for pid, parent in rows]
    table = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The command name is in parentheses and may hold anything: count fields after the last one.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            table.append((int(name), int(parent)))
    return table


def reap() -> None:
    """Collect every child that ended, adopted ones too."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may already be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def prctl(option: int, value: int) -> None:
    """Set a process attribute, where the kernel is Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
