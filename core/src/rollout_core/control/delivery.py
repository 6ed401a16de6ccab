"""A trainer's side of an update in another process: describes its weights, and hands on what the targets ask for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from rollout_core.control.link import Link
from rollout_core.control.messages import Nothing, Plan, Updated, Wish
from rollout_core.errors import RolloutError
from rollout_core.types import Bucket
from rollout_core.weights import WeightSource

__all__ = ["Delivery"]

T = TypeVar("T")


class Delivery:
    """One update from tensors of this process."""

    def __init__(self, link: Link, trainer: str, source: WeightSource) -> None:
        """Nothing is sent yet."""
        self._link = link
        self._trainer = trainer
        self._source = source

    def bring(self, options: dict[str, Any]) -> Updated:
        """Bring the weights to all engines; returns when they are served.

        Raises:
            WeightUpdateError: the update was refused and nothing was written; or no engine took it.
        """
        plan = self._call("begin_update", Plan, capability=self._source.capability, options=options)
        try:
            self._deliver(plan)
        except BaseException as error:
            with suppress(RolloutError):  # the reason is ours
                self._call("end_update", Updated, failure=str(error) or type(error).__name__)
            raise
        return self._call("end_update", Updated, failure=None)

    def _deliver(self, plan: Plan) -> None:
        updates = self._source.updates(plan.options, plan.rank_counts)
        self._call("describe_weights", Nothing, updates=[replace(update, buckets=()) for update in updates])
        with ThreadPoolExecutor(len(updates), "rollout-delivery") as lanes:
            for target, update in enumerate(updates):
                lanes.submit(self._serve, target, iter(update.buckets))
            self._source.produce()

    def _serve(self, target: int, buckets: Iterator[Bucket]) -> None:
        """Hand buckets to one target until it wants no more."""
        wish = Wish.NOTHING
        try:
            wish = self._call("next_wish", Wish, target=target)
            while wish is Wish.BUCKET:
                bucket, failure = _next(buckets)
                wish = self._call("give_bucket", Wish, target=target, bucket=bucket, failure=failure)
        finally:
            self._source.leave(target, wish is Wish.REFUSED)

    def _call(self, name: str, kind: type[T], **arguments: Any) -> T:
        return self._link.call(name, kind, timeout_s=None, trainer=self._trainer, **arguments)


def _next(buckets: Iterator[Bucket]) -> tuple[Bucket | None, str | None]:
    """The next bucket, or why there is none; neither at the end."""
    try:
        return next(buckets, None), None
    except RolloutError as error:
        return None, str(error)
