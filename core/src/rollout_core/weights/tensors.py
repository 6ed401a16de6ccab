"""A trainer's tensors: described, and cut into buckets. Needs torch, which a trainer has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollout_core.errors import WeightUpdateError
from rollout_core.types import TensorSpec

if TYPE_CHECKING:
    import torch

__all__ = ["NamedTensors", "Portion", "copy_tensor", "write_portion"]

ALIGNMENT = 64
"""Bytes to which the tensors of a bucket are aligned."""


@dataclass(frozen=True)
class Portion:
    """The tensors of one bucket, with their places in it."""

    tensors: tuple[torch.Tensor, ...]
    specs: tuple[TensorSpec, ...]
    size: int
    """In bytes, alignment included."""


class NamedTensors:
    """The named tensors of an update, in their order; only references are kept."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]], dtype: str | None = None) -> None:
        """Take a state dict's items, or any iterator of names and tensors.

        Args:
            tensors: as in the checkpoint; both names of tied weights may be there.
            dtype: floating-point tensors are sent as this (``bfloat16``, ...); None sends them as they are.

        Raises:
            WeightUpdateError: no tensor, a name that comes twice, or a dtype that torch does not have.
        """
        import torch

        self._tensors = [(name, tensor.detach()) for name, tensor in tensors]
        names = [name for name, _ in self._tensors]
        if not names:
            raise WeightUpdateError("the update has no tensor; pass state_dict().items()")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise WeightUpdateError(f"the tensor {twice} comes twice in the update")
        self._dtype = getattr(torch, dtype, None) if dtype else None
        if dtype and not isinstance(self._dtype, torch.dtype):
            raise WeightUpdateError(f"torch has no dtype '{dtype}'")

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes, and the dtypes that are sent."""
        return tuple(self._spec(name, tensor, 0) for name, tensor in self._tensors)

    def largest(self) -> int:
        """Bytes of the largest tensor as it is sent, aligned."""
        return max(self._size(tensor) for _, tensor in self._tensors)

    def refuse_non_finite(self) -> None:
        """Look at every value.

        Raises:
            WeightUpdateError: naming the first tensor with a NaN or an infinity.
        """
        import torch

        for name, tensor in self._tensors:
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise WeightUpdateError(f"{name} has NaN or infinite values; nothing was written")

    def portions(self, bucket_bytes: int) -> Iterator[Portion]:
        """The tensors in portions of at most ``bucket_bytes``; a larger tensor is a portion of its own."""
        tensors: list[torch.Tensor] = []
        specs: list[TensorSpec] = []
        offset = 0
        for name, tensor in self._tensors:
            size = self._size(tensor)
            if specs and offset + size > bucket_bytes:
                yield Portion(tuple(tensors), tuple(specs), offset)
                tensors, specs, offset = [], [], 0
            tensors.append(tensor)
            specs.append(self._spec(name, tensor, offset))
            offset += size
        yield Portion(tuple(tensors), tuple(specs), offset)

    def _sent_dtype(self, tensor: torch.Tensor) -> torch.dtype:
        return self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype

    def _size(self, tensor: torch.Tensor) -> int:
        size = tensor.numel() * self._sent_dtype(tensor).itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT

    def _spec(self, name: str, tensor: torch.Tensor, offset: int) -> TensorSpec:
        dtype = str(self._sent_dtype(tensor)).removeprefix("torch.")
        return TensorSpec(name, dtype, tuple(tensor.shape), offset)


def write_portion(portion: Portion, buffer: torch.Tensor) -> None:
    """Copy a portion's tensors to their places in a byte tensor, converting them to the dtypes that are sent."""
    import torch

    for tensor, spec in zip(portion.tensors, portion.specs, strict=True):
        dtype = getattr(torch, spec.dtype)
        place = buffer[spec.offset : spec.offset + tensor.numel() * dtype.itemsize]
        copy_tensor(place.view(dtype).view(tensor.shape), tensor)


def copy_tensor(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy in place, converting the dtype.

    Blocks of memory of the same type go through numpy, whose memcpy takes half as long as torch's copy.
    """
    import numpy as np
    import torch

    plain = (
        target.dtype == source.dtype
        and target.device.type == source.device.type == "cpu"
        and target.is_contiguous()
        and source.is_contiguous()
    )
    if plain:
        to, of = (tensor.detach().reshape(-1).view(torch.uint8).numpy() for tensor in (target, source))
        np.copyto(to, of)
    else:
        target.copy_(source)
