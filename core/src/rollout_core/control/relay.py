"""The weights of a trainer in another process, as a source for the controller: what engines ask for, it asks there.

The data does not pass through here. Buckets are files in shared memory, or come through a group, and only their
descriptions travel; a bucket is asked for when its engine is done with the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

from rollout_core.control.messages import Plan, Wish
from rollout_core.errors import WeightUpdateError
from rollout_core.types import Bucket, Capability, WeightUpdate
from rollout_core.weights import UpdateOptions
from rollout_core.weights.feed import FeedClosedError, NothingSentError

__all__ = ["Relay"]


class Relay:
    """One update. The trainer's side is called in the server's loop, the source's side in the controller's threads."""

    def __init__(self, capability: Capability) -> None:
        """``capability`` is what a backend must offer to take the trainer's source."""
        self.capability = capability
        self._plan: Future[Plan] = Future()
        self._described: Future[Sequence[WeightUpdate]] = Future()
        self._produced: Future[None] = Future()
        self._targets: list[_Target] = []

    # The source of the controller

    def updates(self, options: UpdateOptions, rank_counts: Sequence[int]) -> list[WeightUpdate]:
        """What the trainer describes, one for each target."""
        self._targets = [_Target() for _ in rank_counts]
        self._plan.set_result(Plan(options, tuple(rank_counts)))
        described = self._described.result()
        return [
            replace(update, buckets=target.buckets()) for update, target in zip(described, self._targets, strict=True)
        ]

    def produce(self) -> None:
        """Wait until the trainer has brought everything."""
        self._produced.result()

    def leave(self, target: int, refused: bool) -> None:
        """Tell the trainer that a target is out."""
        self._targets[target].wish(Wish.REFUSED if refused else Wish.NOTHING)

    # The trainer

    async def plan(self) -> Plan:
        """What is to be described."""
        return await asyncio.wrap_future(self._plan)

    def describe(self, updates: Sequence[WeightUpdate]) -> None:
        """Hear what will come.

        Raises:
            WeightUpdateError: it is not one for each target.
        """
        if len(updates) != len(self._targets):
            raise WeightUpdateError(f"{len(updates)} updates for {len(self._targets)} targets")
        self._described.set_result(updates)

    async def wish(self, target: int) -> Wish:
        """Wait until a target wants something."""
        return await self._targets[target].wished()

    async def give(self, target: int, bucket: Bucket | None, failure: str | None) -> Wish:
        """Hand a target its next bucket (None: that was the last one) or why there is none; wait for its next wish."""
        self._targets[target].give(bucket, failure)
        return await self._targets[target].wished() if bucket is not None else Wish.NOTHING

    def end(self, failure: str | None) -> None:
        """The trainer has brought everything, has given up, or is lost: nobody waits for it any more."""
        error = WeightUpdateError(failure or "the trainer described no weights")
        with suppress(InvalidStateError):
            self._described.set_exception(error)
        with suppress(InvalidStateError):
            self._produced.set_result(None) if failure is None else self._produced.set_exception(error)
        for target in self._targets:
            target.end(failure or "nothing more comes")


class _Target:
    """One server process that takes the weights."""

    def __init__(self) -> None:
        self._wish: Future[Wish] = Future()
        self._given: SimpleQueue[Bucket | Exception | None] = SimpleQueue()
        self._started = False

    def buckets(self) -> Iterator[Bucket]:
        """In the target's thread."""
        while True:
            self.wish(Wish.BUCKET)
            match self._given.get():
                case None:
                    return
                case Exception() as error:
                    raise error
                case bucket:
                    self._started = True
                    yield bucket

    def wish(self, wish: Wish) -> None:
        with suppress(InvalidStateError):
            self._wish.set_result(wish)

    async def wished(self) -> Wish:
        return await asyncio.wrap_future(self._wish)

    def give(self, bucket: Bucket | None, failure: str | None) -> None:
        self._wish = Future()  # answered once the target is done with this bucket
        self._given.put(bucket if failure is None else self._error(failure))

    def end(self, failure: str) -> None:
        self._given.put(self._error(failure))
        self.wish(Wish.NOTHING)

    def _error(self, failure: str) -> Exception:
        if self._started:
            return FeedClosedError(f"the trainer stopped sending weights: {failure}")
        return NothingSentError(f"nothing was written: {failure}")
