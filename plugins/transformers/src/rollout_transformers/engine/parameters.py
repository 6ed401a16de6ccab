"""Where the model's parameters are: in memory, set aside, or dropped.

Offloading empties the parameters' storage and keeps the `Parameter` objects, so that tied weights stay tied. On CPU
the values go to an unnamed file, because a copy in memory would free nothing; from an accelerator they go to the host.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

__all__ = ["ParameterMemory"]

_DISK = Path("/var/tmp")
"""Where a memory file system is unlikely, unlike in `/tmp`."""


class ParameterMemory:
    """Gives the memory of a model's parameters to the system, and takes it back."""

    def __init__(self, model: Any, folder: Path | None = None) -> None:
        """`folder` takes the values of a CPU engine while they are offloaded."""
        self._parameters: list[torch.nn.Parameter] = list(model.parameters())
        self._folder = folder or (_DISK if _DISK.is_dir() else None)
        self._shapes = [parameter.shape for parameter in self._parameters]
        self._kept: _File | _Host | None = None
        self.offloaded = False
        self.dropped = False
        """The values were discarded, and have to be written before anything is computed."""

    def offload(self, discard: bool) -> None:
        """Free the memory of all parameters, setting the values aside unless `discard`.

        Raises:
            OSError: the values cannot be written to disk; then nothing was freed.
        """
        if not discard:
            on_host = bool(self._parameters) and self._parameters[0].device.type == "cpu"
            self._kept = _File(self._data(), self._folder) if on_host else _Host(self._data())
        for parameter in self._parameters:
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        self.offloaded, self.dropped = True, self.dropped or discard
        release_free_memory()

    def onload(self) -> None:
        """Allocate the parameters again, with the values that were set aside."""
        fill: Callable[[Tensor], object] = torch.Tensor.zero_ if self._kept is None else self._kept.restore
        for parameter, shape in zip(self._parameters, self._shapes, strict=True):
            data = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
            fill(data)
            parameter.data = data
        self._kept, self.offloaded = None, False

    def _data(self) -> Iterator[Tensor]:
        return (parameter.data for parameter in self._parameters)


class _File:
    """Values on disk, in order; the file has no name, so nothing is left of it after a kill."""

    def __init__(self, tensors: Iterator[Tensor], folder: Path | None) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it lives until onload
        try:
            for tensor in tensors:
                self._file.write(_bytes(tensor.contiguous()))
            self._file.seek(0)
        except OSError:
            self._file.close()
            raise

    def restore(self, tensor: Tensor) -> None:
        """Read the next tensor."""
        self._file.readinto(_bytes(tensor))  # type: ignore[attr-defined]  # BinaryIO lacks it, files have it


class _Host:
    """Values in the memory of the host, in order."""

    def __init__(self, tensors: Iterator[Tensor]) -> None:
        self._tensors = iter([tensor.to("cpu") for tensor in tensors])

    def restore(self, tensor: Tensor) -> None:
        """Copy the next tensor back."""
        tensor.copy_(next(self._tensors))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def release_free_memory() -> None:
    """Give freed memory back to the system instead of keeping it for the next allocation."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
