"""Server processes: started under a guard, in a process group of their own, and surely ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_core import guard
from rollout_core.errors import LaunchError

__all__ = ["GuardedProcess", "Spawner", "log_tail"]

_GUARD_S = 5.0
"""For the guard to kill what the grace left over."""


class GuardedProcess:
    """A command and everything that it starts. It dies with this process, whatever this process dies of."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log_path: Path, grace_s: float) -> None:
        """Start ``argv`` with ``env`` laid over this process's environment; its output goes to ``log_path``.

        Raises:
            LaunchError: the log cannot be written, or the guard cannot be started.
        """
        lifeline, self._lifeline = os.pipe()
        self._grace_s = grace_s
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with log_path.open("ab") as log:
                self._guard = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, str(lifeline), str(grace_s), *argv],
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lifeline,),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(self._lifeline)
            raise LaunchError(f"cannot start {argv[0]} with its log in {log_path}: {error}") from error
        finally:
            os.close(lifeline)

    @property
    def pid(self) -> int:
        """Of the guard, which leads the process group."""
        return self._guard.pid

    def poll(self) -> int | None:
        """The command's exit code (128 + the signal that killed it), or None while it runs."""
        return self._guard.poll()

    def stop(self) -> None:
        """End the command and its descendants, and return when none is left; twice is harmless."""
        if self.poll() is None:
            self._guard.terminate()
            try:
                self._guard.wait(self._grace_s + _GUARD_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._guard.pid, signal.SIGKILL)
                self._guard.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


class Spawner:
    """The ``spawn`` that a backend's ``launch_server`` gets: it knows the launch's log and grace."""

    def __init__(self, log_path: Path, grace_s: float, env: Mapping[str, str]) -> None:
        """``env`` is the user's; it wins over what the backend sets."""
        self._log_path, self._grace_s, self._env = log_path, grace_s, env

    def __call__(self, argv: Sequence[str], env: Mapping[str, str]) -> GuardedProcess:
        return GuardedProcess(argv, {**env, **self._env}, self._log_path, self._grace_s)


def log_tail(log_path: Path, lines: int = 20) -> str:
    """The last lines of a server's log, for error messages."""
    try:
        with log_path.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, lines)).rstrip()
    except OSError as error:
        return f"(no log: {error})"
