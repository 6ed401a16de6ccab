"""The output folder of a run: whose it is, and that only one process writes to it.

It holds ``samples.jsonl`` or ``samples/*.parquet``, ``manifest.json``, ``summary.json`` and the engines' ``logs/``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rollout_core.errors import OutputError
from rollout_core.run.disk import TEMPORARY, disk_errors
from rollout_core.run.manifest import Manifest, now, write_json

__all__ = ["OutputFolder"]

_LOCK = ".lock"


class OutputFolder:
    """A folder that this process has for itself until :meth:`close`."""

    def __init__(self, path: Path, manifest: Manifest, lock: int) -> None:
        """Use :meth:`open`."""
        self.path = path
        self.manifest = manifest
        self._lock = lock

    @property
    def log_dir(self) -> Path:
        """Folder of the engines' logs."""
        return self.path / "logs"

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any], facts: Mapping[str, Any], *, resume: bool) -> OutputFolder:
        """Take the folder for a new run, or for the rest of an earlier one.

        Args:
            path: made when it is not there.
            identity: what the run is; a resume must match it.
            facts: for the manifest.
            resume: finish the run that is there; without one the run simply starts.

        Raises:
            OutputError: the folder cannot be written, is in use, or belongs to something else.
        """
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = _lock(path)
        try:
            manifest = Manifest(identity, facts, started_at=now())
            earlier = check_folder(path, identity, resume=resume)
            if earlier is not None:
                manifest = replace(manifest, started_at=earlier.started_at, sessions=earlier.sessions + 1)
            manifest.write(path)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, manifest, lock)

    def finish(self, status: str, counts: Mapping[str, int], summary: Mapping[str, Any]) -> None:
        """Write how the run ended. Raises OutputError."""
        self.manifest = replace(self.manifest, status=status, counts=counts, finished_at=now())
        write_json(self.path / "summary.json", summary)
        self.manifest.write(self.path)

    def close(self) -> None:
        """Let others have the folder."""
        os.close(self._lock)


def check_folder(path: Path, identity: Mapping[str, Any], *, resume: bool) -> Manifest | None:
    """The manifest of the earlier run in a folder that the run may use; nothing is written.

    Raises:
        OutputError: the folder belongs to something else, or to a run that was not asked to go on.
    """
    if not path.exists():
        _check_parent(path)
        return None
    with disk_errors(path):
        names = {entry.name for entry in path.iterdir() if entry.suffix != TEMPORARY} - {_LOCK}
    earlier = Manifest.read(path)
    if earlier is None:
        if names:
            raise OutputError(
                f"{path} is not empty and holds no run of rollout (found {', '.join(sorted(names)[:3])}); "
                f"choose an empty folder for --output"
            )
        return None
    if not _has_samples(path):
        # Its engines never started, say: nothing would be lost, so what was wrong may be put right.
        return None
    if differences := earlier.differences(identity):
        raise OutputError(
            f"{path} belongs to another run ({'; '.join(differences)}); "
            f"choose another folder for --output, or run it as it was"
        )
    if not resume:
        raise OutputError(
            f"{path} holds this run already (status {earlier.status}); add --resume to finish it, "
            f"or choose another folder for --output"
        )
    return earlier


def _has_samples(path: Path) -> bool:
    files = [path / "samples.jsonl", *(path / "samples").glob("*")]
    return any(file.exists() and file.stat().st_size for file in files)


def _check_parent(path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(f"{path} cannot be made: {parent} is no folder that you may write to")


def _lock(path: Path) -> int:
    """Lock the folder; the kernel unlocks it when the process ends, whatever it dies of."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise OutputError(f"another rollout (process {holder}) writes to {path}; wait for it to end") from error
    except BaseException:
        os.close(lock)
        raise
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock
