"""Samples as JSON lines.

Records are appended as whole lines in one write, so a kill tears at most the last line; opening the file again cuts
that line off. A power cut loses at most the last seconds: the file is synced at intervals.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import Any

import orjson

from rollout_core.run.disk import disk_errors, replace_file, sync
from rollout_core.run.record import Outcome, encode_record

__all__ = ["JsonlSink"]

SYNC_INTERVAL_S = 5.0


class JsonlSink:
    """One file of JSON lines, open for appending."""

    def __init__(self, path: Path, known: Mapping[int, int] | None = None) -> None:
        """Open the file, repaired and without the samples that are to be drawn again.

        Args:
            path: the file; made when it is not there.
            known: samples that are kept elsewhere, and dropped here: the bits of sample indices by prompt index.

        Raises:
            OutputError: the disk refuses.
        """
        self.path = path
        with disk_errors(path):
            if path.exists():
                _repair(path, known or {})
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self.size = os.fstat(self._file).st_size
        self._synced = time.monotonic()

    def kept(self) -> Iterator[Mapping[str, Any]]:
        """The records in the file."""
        for line in _lines(self.path):
            yield orjson.loads(line)

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append the records; all of them or, when the disk refuses, none."""
        data = b"".join(map(encode_record, records))
        with disk_errors(self.path):
            try:
                self._append(data)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, self.size)
                raise
            self.size += len(data)
            if time.monotonic() - self._synced > SYNC_INTERVAL_S:
                os.fsync(self._file)
                self._synced = time.monotonic()

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def close(self) -> None:
        """Sync and close the file; twice is harmless."""
        if self._file < 0:
            return
        descriptor, self._file = self._file, -1
        with disk_errors(self.path):
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines; a torn end is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


def _repair(path: Path, known: Mapping[int, int]) -> None:
    """Cut the torn end off; write the file anew only where lines in it must go, for it may be huge."""
    seen = dict(known)
    keep = [_keep(line, seen) for line in _lines(path)]
    if not all(keep):
        with replace_file(path) as temporary, temporary.open("wb") as file:
            file.writelines(compress(_lines(path), keep))
        return
    whole = sum(map(len, _lines(path)))
    if whole < path.stat().st_size:
        os.truncate(path, whole)
        sync(path)


def _keep(line: bytes, seen: dict[int, int]) -> bool:
    """Whether a line is a completed sample that was not seen before; it is then marked as seen."""
    try:
        outcome = Outcome.of(orjson.loads(line))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False  # a power cut can leave rubbish
    bit = 1 << outcome.sample_index
    if not outcome.kept or seen.get(outcome.prompt_index, 0) & bit:
        return False
    seen[outcome.prompt_index] = seen.get(outcome.prompt_index, 0) | bit
    return True
