"""New weights on their way to an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Bucket", "TensorSpec", "WeightGroup", "WeightUpdate"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its data."""

    name: str
    """As in the checkpoint's state dict."""
    dtype: str
    """As torch calls it: ``float32``, ``bfloat16``, ``float16``, ..."""
    shape: tuple[int, ...]
    offset: int = 0
    """Where its bytes begin in the bucket's shared memory; C order, little-endian."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Some of the tensors of an update; the unit of transfer."""

    tensors: tuple[TensorSpec, ...]
    shared_memory: str | None = None
    """File with the bytes, on a memory file system of this machine; None when the group brings them."""
    size: int = 0
    """Bytes of the broadcast that brings it through a group."""


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """A torch.distributed group of the trainer (rank 0) and the engines, made for one update.

    The trainer serves its ``TCPStore``. Every bucket is one broadcast from rank 0, of a flat ``uint8`` tensor that
    holds the bucket's tensors at their offsets; :class:`rollout_core.weights.GroupReceiver` is the engine's end.
    """

    backend: str
    """``gloo``, or ``nccl`` where GPUs are."""
    host: str
    port: int
    world_size: int
    first_rank: int
    """Rank in the group of the engine's first update rank."""
    timeout_s: float = 60.0
    """Seconds without another member after which it is given up."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """One update as one server process gets it. Exactly one of ``folder`` and ``tensors`` is there."""

    version: int
    """What the engine is to serve; above what it serves now."""
    folder: str | None = None
    """A folder of safetensors files to load from."""
    tensors: tuple[TensorSpec, ...] = ()
    """All tensors that will come, to be checked before anything is written."""
    buckets: Iterable[Bucket] = ()
    """The tensors' data, to be taken one bucket after the other; a bucket is reused once the next is asked for."""
    group: WeightGroup | None = None
    """The group that brings the data; None when shared memory does."""
    keep_cache: bool = False
    """Keep K/V that was computed with the old weights. Off: the prefix cache is flushed."""
    refuse_non_finite: bool = False
    """Refuse weights that are NaN or infinite before they are served."""

    @property
    def source(self) -> str:
        """``disk``, ``shared_memory`` or ``distributed``."""
        if self.folder is not None:
            return "disk"
        return "shared_memory" if self.group is None else "distributed"
