"""Writing to disk so that neither a kill nor a full disk leaves half a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rollout_core.errors import OutputError

__all__ = ["TEMPORARY", "disk_errors", "replace_file", "sync"]

TEMPORARY = ".tmp"
"""Suffix of files that are not finished; what is left of them after a kill is worth nothing."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk refuses into an OutputError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL or "No space left" in reason:
            raise OutputError(
                f"{path} cannot be written, the disk or a quota is full ({reason}); every sample that was counted is "
                f"safe: free some space and run the same command with --resume"
            ) from error
        raise OutputError(f"{path} cannot be written: {reason}") from error


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write; on success it takes the place of ``path``, on failure it is removed.

    Raises:
        OutputError: the disk refuses.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    with disk_errors(path):
        try:
            yield temporary
            sync(temporary)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def sync(path: Path) -> None:
    """Wait until the file is on the disk itself, so that it outlives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
