"""The trainer's side: publishes the tensors of a model to all engines of this machine, through shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from rollout_core.types import Bucket, Capability, WeightUpdate
from rollout_core.weights.feed import BucketFeed, FeedClosedError
from rollout_core.weights.group import FromGroup
from rollout_core.weights.shared_memory import Segment
from rollout_core.weights.source import UpdateOptions, WeightSource
from rollout_core.weights.tensors import NamedTensors, write_portion

if TYPE_CHECKING:
    import torch

__all__ = ["FromTensors", "WeightPublisher"]

BUCKETS = 2
"""One is filled while the engines read the other."""


class FromTensors:
    """Tensors of this process, in buckets of shared memory."""

    capability = Capability.WEIGHTS_FROM_SHARED_MEMORY

    def __init__(self, tensors: NamedTensors, segments: Sequence[Segment]) -> None:
        """``segments`` are as large as the largest portion each; they are used in turn."""
        self._tensors = tensors
        self._segments = segments
        self._feed = BucketFeed(0, len(segments))

    def updates(self, options: UpdateOptions, rank_counts: Sequence[int]) -> list[WeightUpdate]:
        """Every target gets every bucket."""
        if options.refuse_non_finite:
            self._tensors.refuse_non_finite()
        self._feed = BucketFeed(len(rank_counts), len(self._segments))
        return [
            WeightUpdate(
                version=options.version,
                tensors=self._tensors.specs,
                buckets=self._feed.consumer(target),
                keep_cache=options.keep_cache,
                refuse_non_finite=options.refuse_non_finite,
            )
            for target in range(len(rank_counts))
        ]

    def produce(self) -> None:
        """Fill buckets as the targets take them."""
        failure: BaseException | None = None
        buffers = [segment.tensor() for segment in self._segments]
        try:
            self._feed.wait_asked()
            for portion in self._tensors.portions(self._segments[0].size):
                place = self._feed.wait_for_room()
                write_portion(portion, buffers[place])
                self._feed.put(Bucket(portion.specs, self._segments[place].path))
        except FeedClosedError as error:
            failure = error  # not raised: the targets' own errors say more
        except BaseException as error:
            failure = error
            raise
        finally:
            self._feed.finish(failure)
        self._feed.wait_drained()

    def leave(self, target: int, refused: bool) -> None:
        """Stop waiting for a target."""
        self._feed.leave(target, refused)


class Publishes(Protocol):
    """What a publisher needs of the controller."""

    @property
    def update_weights(self) -> Callable[..., Any]:
        """Bring weights to all engines."""


class WeightPublisher:
    """Publishes a model's weights, as often as the trainer likes. Its buckets are kept for the next time.

    ``with WeightPublisher(controller) as publisher: publisher.publish(model.state_dict().items())``
    """

    def __init__(
        self,
        controller: Publishes,
        *,
        through: Literal["shared_memory", "gloo", "nccl"] = "shared_memory",
        bucket_bytes: int = 256 * 2**20,
        dtype: str | None = None,
    ) -> None:
        """Publish through ``controller``.

        Args:
            controller: of the engines.
            through: shared memory, on the engines' machine; or a torch.distributed group of that backend, whose store
                listens at the config's ``weight_update_host`` and ``weight_update_port``.
            bucket_bytes: size of one of the two buckets; a larger tensor gets larger buckets.
            dtype: floating-point tensors are sent as this; None sends them as they are.
        """
        self._controller = controller
        self._through = through
        self._bucket_bytes = bucket_bytes
        self._dtype = dtype
        self._segments: list[Segment] = []

    def publish(self, tensors: Iterable[tuple[str, torch.Tensor]], **options: Any) -> Any:
        """Bring the tensors to all engines; see :meth:`rollout_core.Controller.update_weights` for the options.

        Returns:
            The controller's report.

        Raises:
            WeightUpdateError: the update was refused, or no engine took it.
        """
        return self._controller.update_weights(self._source(NamedTensors(tensors, self._dtype)), **options)

    def _source(self, named: NamedTensors) -> WeightSource:
        if self._through != "shared_memory":
            return FromGroup(named, backend=self._through, bucket_bytes=self._bucket_bytes)
        size = max(self._bucket_bytes, named.largest())
        if not self._segments or self._segments[0].size < size:
            self.close()
            self._segments = [Segment(size) for _ in range(BUCKETS)]
        return FromTensors(named, self._segments)

    def close(self) -> None:
        """Give the buckets' memory back; twice is harmless."""
        for segment in self._segments:
            segment.close()
        self._segments = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
