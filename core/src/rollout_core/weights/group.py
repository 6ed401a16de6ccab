"""A torch.distributed group from the trainer to the engines: gloo, or nccl where GPUs are.

The group is no default group, so that it lives beside those of the trainer and of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rollout_core.errors import WeightUpdateError
from rollout_core.types import Bucket, Capability, WeightGroup, WeightUpdate
from rollout_core.weights.feed import BucketFeed, FeedClosedError
from rollout_core.weights.source import UpdateOptions
from rollout_core.weights.tensors import NamedTensors, Portion, write_portion

if TYPE_CHECKING:
    import torch

__all__ = ["FromGroup", "GroupReceiver"]


class GroupReceiver:
    """An engine's end of the group, to be opened in the engine's process."""

    def __init__(self, group: WeightGroup, rank: int) -> None:
        """Join as ``rank``; returns when all members are there.

        Raises:
            RuntimeError: (of torch) a member did not come in time.
        """
        self._group = _joined(group, rank, _store(group, serve=False))

    def receive(self, buffer: torch.Tensor) -> None:
        """Fill the flat ``uint8`` buffer with the trainer's next broadcast; all members use the same size."""
        _broadcast(self._group, buffer)

    def close(self) -> None:
        """Leave the group."""
        self._group = None


class FromGroup:
    """Tensors of this process, broadcast in buckets. Made anew for every update."""

    capability = Capability.WEIGHTS_FROM_GROUP

    def __init__(
        self,
        tensors: NamedTensors,
        *,
        backend: str = "gloo",
        bucket_bytes: int = 256 * 2**20,
        timeout_s: float = 60.0,
    ) -> None:
        """Describe the group.

        Args:
            tensors: what is sent; for ``nccl`` on this process's GPU.
            backend: ``gloo`` or ``nccl``.
            bucket_bytes: size of a bucket; a larger tensor is a bucket of its own.
            timeout_s: without a member after which the update fails.
        """
        self._tensors = tensors
        self._bucket_bytes = max(bucket_bytes, tensors.largest())
        self._group = WeightGroup(backend, "", 0, 1, 1, timeout_s)
        self._store: Any = None
        self._feed = BucketFeed(0)
        self._targets = 0

    def updates(self, options: UpdateOptions, rank_counts: Sequence[int]) -> list[WeightUpdate]:
        """Every target gets every bucket, and knows its ranks in the group."""
        if options.refuse_non_finite:
            self._tensors.refuse_non_finite()
        group = replace(self._group, host=options.host, port=options.port, world_size=1 + sum(rank_counts))
        self._store = _store(group, serve=True)
        self._group = replace(group, port=self._store.port)
        self._targets = len(rank_counts)
        self._feed = BucketFeed(self._targets)
        return [
            WeightUpdate(
                version=options.version,
                tensors=self._tensors.specs,
                buckets=self._feed.consumer(target),
                group=replace(self._group, first_rank=1 + sum(rank_counts[:target])),
                keep_cache=options.keep_cache,
                refuse_non_finite=options.refuse_non_finite,
            )
            for target in range(self._targets)
        ]

    def produce(self) -> None:
        """Wait for the checks of all targets, form the group, and broadcast bucket after bucket."""
        failure: BaseException | None = None
        try:
            if self._feed.wait_asked() < self._targets:
                raise FeedClosedError("an engine was lost before the group was formed")
            self._broadcast_all()
        except FeedClosedError as error:
            failure = error  # not raised: the targets' own errors say more
        except RuntimeError as error:
            failure = WeightUpdateError(f"the group of {self._group.world_size} broke: {error}")
        except BaseException as error:
            failure = error
            raise
        finally:
            self._feed.finish(failure)
            self._store = None
        self._feed.wait_drained()

    def leave(self, target: int, refused: bool) -> None:
        """Stop waiting for a target."""
        self._feed.leave(target, refused)

    def _broadcast_all(self) -> None:
        joined: Any = None
        buffer: Any = None
        for portion in self._tensors.portions(self._bucket_bytes):
            buffer = self._filled(portion, buffer)
            self._feed.wait_for_room()
            self._feed.put(Bucket(portion.specs, size=portion.size))
            joined = joined or _joined(self._group, 0, self._store)
            _broadcast(joined, buffer[: portion.size])

    def _filled(self, portion: Portion, buffer: torch.Tensor | None) -> torch.Tensor:
        import torch

        if buffer is None:
            device = portion.tensors[0].device
            buffer = torch.empty(self._bucket_bytes, dtype=torch.uint8, device=device)
        write_portion(portion, buffer)
        return buffer


def _store(group: WeightGroup, serve: bool) -> Any:
    import torch.distributed as dist

    try:
        return dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
            group.host,
            group.port,
            is_master=serve,
            wait_for_workers=False,
            timeout=timedelta(seconds=group.timeout_s),
        )
    except RuntimeError as error:
        raise WeightUpdateError(f"no store for the group at {group.host}:{group.port}: {error}") from error


def _joined(group: WeightGroup, rank: int, store: Any) -> Any:
    """A process group of the members of one update."""
    import torch.distributed as dist

    timeout = timedelta(seconds=group.timeout_s)
    if group.backend == "gloo":
        return dist.ProcessGroupGloo(store, rank, group.world_size, timeout)
    if group.backend == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, group.world_size, options)
    raise WeightUpdateError(f"no group backend '{group.backend}'; use gloo or nccl")


def _broadcast(group: Any, buffer: torch.Tensor) -> None:
    import torch.distributed as dist

    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([buffer], options).wait()
