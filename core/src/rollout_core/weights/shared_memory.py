"""Buckets in shared memory: files on a memory file system, which engines of the same machine map too."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rollout_core.errors import WeightUpdateError

if TYPE_CHECKING:
    import torch

__all__ = ["Segment"]

_MEMORY_FOLDER = Path("/dev/shm")


class Segment:
    """One bucket's memory. It stays mapped over updates, so that its pages are touched for the first time only once."""

    def __init__(self, size: int) -> None:
        """Set ``size`` bytes aside.

        Raises:
            WeightUpdateError: the memory file system is full.
        """
        self.size = size
        folder = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
        descriptor, self.path = tempfile.mkstemp(prefix="rollout-weights-", dir=folder)
        try:
            # Allocated, not only sized: a full memory file system is an error here and not a bus error later.
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        except OSError as error:
            Path(self.path).unlink()
            raise WeightUpdateError(
                f"cannot set {size} bytes aside in {Path(self.path).parent}: {error}; lower bucket_bytes"
            ) from error
        finally:
            os.close(descriptor)

    def tensor(self) -> torch.Tensor:
        """The bytes as a tensor of ``uint8``."""
        import torch

        return torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        """Give the memory back; twice is harmless."""
        Path(self.path).unlink(missing_ok=True)
