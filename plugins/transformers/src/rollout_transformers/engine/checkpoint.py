"""A folder of safetensors files, looked at before it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

__all__ = ["Checkpoint", "CheckpointError"]


class CheckpointError(Exception):
    """The folder is not a whole checkpoint; the message names the file."""


@dataclass(frozen=True)
class Checkpoint:
    """The names and shapes in a folder's files, from their headers."""

    folder: Path
    files: tuple[Path, ...]
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the headers.

        Raises:
            CheckpointError: no file, a file that is cut short, or one that the index names and that is not there.
        """
        files = tuple(sorted(folder.glob("*.safetensors")))
        if not files:
            raise CheckpointError(f"{folder} has no .safetensors file")
        shapes: dict[str, tuple[int, ...]] = {}
        for file in files:
            try:
                with safe_open(file, framework="pt") as tensors:
                    shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
            except (SafetensorError, OSError) as err:
                raise CheckpointError(f"{file} is not a whole safetensors file: {err}") from err
        for name, file_name in _index(folder).items():
            if name not in shapes:
                raise CheckpointError(f"{folder} is half written: {name} should be in {file_name}")
        return cls(folder, files, shapes)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors, one after the other, as views of the files."""
        for file in self.files:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    yield name, tensors.get_tensor(name)

    def require_finite(self) -> None:
        """Look at every value.

        Raises:
            CheckpointError: naming the first tensor with a NaN or an infinity.
        """
        for name, tensor in self.tensors():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(f"{name} in {self.folder} has NaN or infinite values")


def _index(folder: Path) -> dict[str, str]:
    file = folder / "model.safetensors.index.json"
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text())["weight_map"])
    except (ValueError, KeyError, OSError) as err:
        raise CheckpointError(f"{file} is not a checkpoint's index: {err}") from err
