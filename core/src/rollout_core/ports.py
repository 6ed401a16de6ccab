"""Leases TCP ports by binding them, so that launches side by side never get the same one.

A lease is a lock file per port, held by the kernel for as long as the process lives, and a bind that shows the port
to be free. The range lies outside the kernel's ephemeral ports, so that no outgoing connection takes a leased port
between the lease and the server's own bind.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from rollout_core.errors import LaunchError

__all__ = ["PortLease"]


class PortLease:
    """One leased port; released by :meth:`release`, at the end of a ``with`` block, or with the process."""

    def __init__(self, host: str, port: int, lock_fd: int) -> None:
        """Use :meth:`acquire`."""
        self.host = host
        self.port = port
        self._lock_fd: int | None = lock_fd

    @classmethod
    def acquire(cls, host: str, port_range: tuple[int, int]) -> PortLease:
        """Lease a free port of the range, both ends included.

        Raises:
            LaunchError: no port of the range is free.
        """
        first, last = port_range
        ports = list(range(first, last + 1))
        # A random start keeps launches side by side from trying the same ports in turn.
        start = random.randrange(len(ports))
        for port in ports[start:] + ports[:start]:
            lock_fd = _lock(port)
            if lock_fd is None:
                continue
            if _free(host, port):
                return cls(host, port, lock_fd)
            os.close(lock_fd)
        raise LaunchError(f"no free port on {host} between {first} and {last}; widen port_range")

    def release(self) -> None:
        """Give the port back; twice is harmless."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _lock(port: int) -> int | None:
    """An open, locked lock file of the port, or None when another launch has it."""
    folder = Path(tempfile.gettempdir()) / f"rollout-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections are still in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
