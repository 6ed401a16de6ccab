"""Writes new weights into the model, in place: everything is checked first, then written bucket by bucket."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rollout_core.weights import copy_tensor
from rollout_transformers.engine.checkpoint import Checkpoint, CheckpointError

__all__ = ["IncomingTensor", "WeightWriter", "WeightsRefused"]

_SHOWN = 3
"""How many names an error lists."""


class WeightsRefused(Exception):
    """The weights do not fit the model; nothing was written."""


@dataclass(frozen=True)
class IncomingTensor:
    """A tensor that will come, or that lies in a bucket."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    """Where its bytes begin in the bucket."""


class Receiver(Protocol):
    """One end of a distributed group."""

    def receive(self, buffer: Tensor) -> None:
        """Fill the buffer with what the trainer broadcasts."""

    def close(self) -> None:
        """Leave the group."""


@dataclass
class OpenUpdate:
    """An update between its check and its end."""

    left: set[str]
    """Canonical names of what was not written yet."""
    started: bool = False
    maps: dict[str, Tensor] = field(default_factory=dict)
    """Buckets in shared memory, by their files."""
    receiver: Receiver | None = None


class WeightWriter:
    """The model's tensors by name. Tied weights have several names, of which an update needs one."""

    def __init__(self, model: Any, checkpoint: Path, trust_remote_code: bool) -> None:
        """`checkpoint` is the folder that the model was loaded from."""
        self._model = model
        self._checkpoint = checkpoint
        self._trust_remote_code = trust_remote_code
        self._tensors: dict[str, Tensor] = dict(model.state_dict(keep_vars=True))
        first: dict[int, str] = {}
        self._canonical = {name: first.setdefault(id(tensor), name) for name, tensor in self._tensors.items()}
        self._update: OpenUpdate | None = None

    @property
    def half_written(self) -> bool:
        """Whether an update began to write and did not finish."""
        return self._update is not None and self._update.started

    def check(self, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str] | None = None) -> None:
        """Compare with the model.

        Raises:
            WeightsRefused: a name is missing or unexpected, or a tensor has another shape or kind of dtype.
        """
        _refuse_names(shapes, self._tensors, self._canonical)
        for name, shape in shapes.items():
            own = tuple(self._shape(name))
            if tuple(shape) != own:
                raise WeightsRefused(f"{name} has shape {list(shape)}, the model's is {list(own)}")
            dtype = getattr(torch, (dtypes or {}).get(name, "float32"), None)
            if not isinstance(dtype, torch.dtype):
                raise WeightsRefused(f"{name} has the unknown dtype {(dtypes or {})[name]!r}")
            if dtypes is not None and dtype.is_floating_point != self._tensors[name].is_floating_point():
                raise WeightsRefused(f"{name} has dtype {dtypes[name]}, the model's is {self._tensors[name].dtype}")

    def begin(self, tensors: Sequence[IncomingTensor]) -> None:
        """Check what will come and expect it. An earlier update that did not finish is given up.

        Raises:
            WeightsRefused: as `check`.
        """
        self.check({t.name: t.shape for t in tensors}, {t.name: t.dtype for t in tensors})
        started = self.half_written
        self.close()
        self._update = OpenUpdate({self._canonical[t.name] for t in tensors}, started)

    def join(self, receiver: Receiver) -> None:
        """Take the data of the following buckets from a group."""
        self._open().receiver = receiver

    def write(self, tensors: Sequence[IncomingTensor], shared_memory: str | None, size: int = 0) -> None:
        """Copy one bucket's tensors into the model, converting them to its dtypes."""
        update = self._open()
        data = self._bucket(update, shared_memory, size)
        update.started = True
        for incoming in tensors:
            dtype: torch.dtype = getattr(torch, incoming.dtype)
            target = self._tensors[incoming.name]
            end = incoming.offset + target.numel() * dtype.itemsize
            copy_tensor(target.data, data[incoming.offset : end].view(dtype).view(target.shape))
            update.left.discard(self._canonical[incoming.name])

    def load(self, folder: Path, refuse_non_finite: bool) -> None:
        """Write a whole checkpoint.

        Raises:
            WeightsRefused: the folder is not whole, or does not fit the model.
        """
        try:
            checkpoint = Checkpoint.open(folder)
            if refuse_non_finite:
                checkpoint.require_finite()
            converted = self._is_converted()
            if converted is not None:
                _refuse_names(checkpoint.shapes, converted.shapes, {})
        except CheckpointError as err:
            raise WeightsRefused(str(err)) from err
        if converted is None:
            self.check(checkpoint.shapes)
        self.close()
        self._update = OpenUpdate(set(), started=True)
        self._copy(checkpoint.tensors() if converted is None else self._load_converted(folder))

    def finish(self) -> None:
        """End the update; raises `RuntimeError` when something did not come."""
        update = self._open()
        if update.left:
            raise RuntimeError(f"the update ended before {_some(update.left)} came")
        self.close()

    def cancel(self) -> None:
        """Give up an update that has not written anything."""
        if not self.half_written:
            self.close()

    def close(self) -> None:
        """Forget the update, its maps and its group."""
        if self._update is not None and self._update.receiver is not None:
            self._update.receiver.close()
        self._update = None

    def _open(self) -> OpenUpdate:
        if self._update is None:
            raise RuntimeError("no update was begun")
        return self._update

    def _shape(self, name: str) -> torch.Size:
        return self._tensors[name].shape

    def _bucket(self, update: OpenUpdate, shared_memory: str | None, size: int) -> Tensor:
        if shared_memory is not None:
            if shared_memory not in update.maps:
                update.maps[shared_memory] = _mapped(shared_memory)
            return update.maps[shared_memory]
        if update.receiver is None:
            raise RuntimeError("the bucket names no shared memory, and no group was joined")
        buffer = torch.empty(size, dtype=torch.uint8, device=self._model.device)
        update.receiver.receive(buffer)
        return buffer

    def _copy(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in tensors:
            copy_tensor(self._tensors[name].data, tensor)

    def _is_converted(self) -> Checkpoint | None:
        """The model's own checkpoint when transformers renames or fuses its tensors on loading, else None."""
        try:
            own = Checkpoint.open(self._checkpoint)
        except CheckpointError:
            return None
        return None if own.shapes.keys() <= self._tensors.keys() else own

    def _load_converted(self, folder: Path) -> Iterable[tuple[str, Tensor]]:
        """Through transformers' own loading, which needs the memory of a second model."""
        model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._model.dtype, trust_remote_code=self._trust_remote_code
        )
        return model.state_dict().items()


def _refuse_names(given: Iterable[str], own: Iterable[str], canonical: Mapping[str, str]) -> None:
    """Every name must be known, and of each own tensor one name must be given."""
    given, own = set(given), set(own)
    if unexpected := given - own:
        raise WeightsRefused(f"unexpected in the update: {_some(unexpected)}")
    covered = {canonical.get(name, name) for name in given}
    if missing := {name for name in own if canonical.get(name, name) not in covered}:
        raise WeightsRefused(f"missing from the update: {_some(missing)}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more


def _mapped(path: str) -> Tensor:
    """The bytes of a file in shared memory, mapped and not copied."""
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE)
    return torch.frombuffer(memory, dtype=torch.uint8)
