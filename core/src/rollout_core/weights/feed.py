"""Hands one stream of buckets to several engines, no further ahead than the buckets that memory is set aside for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from rollout_core.errors import EngineError, WeightUpdateError
from rollout_core.types import Bucket

__all__ = ["BucketFeed", "FeedClosedError", "NothingSentError"]


class FeedClosedError(EngineError):
    """The other side of a feed is gone."""


class NothingSentError(WeightUpdateError):
    """The update was given up before its first bucket."""


class BucketFeed:
    """One producer, several consumers, each of which gets every bucket in order.

    A consumer asks for its first bucket once its engine has checked what will come. It is done with a bucket when it
    asks for the next, and out when its iterator is closed: a slow engine holds the producer back, a failed one does
    not.
    """

    def __init__(self, consumers: int, depth: int = 2) -> None:
        """At most ``depth`` buckets are given out and not yet done with."""
        self._depth = depth
        self._changed = threading.Condition()
        self._buckets: list[Bucket] = []
        self._done = dict.fromkeys(range(consumers), 0)
        self._unasked = set(range(consumers))
        self._refused = False
        self._ended = False
        self._failure: BaseException | None = None

    def wait_asked(self) -> int:
        """Wait until every consumer has asked for its first bucket or is out; returns how many are still there.

        Raises:
            FeedClosedError: one of them refused what will come, so that nothing is to be written anywhere.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._unasked or self._refused)
            if self._refused:
                raise FeedClosedError("an engine refused the weights; nothing was written")
            return len(self._done)

    def wait_for_room(self) -> int:
        """Wait until another bucket may be filled; returns which of the ``depth`` places is free.

        Raises:
            FeedClosedError: no consumer is left.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._done or len(self._buckets) - self._slowest() < self._depth)
            if not self._done:
                raise FeedClosedError("no engine takes the weights any more")
            return len(self._buckets) % self._depth

    def put(self, bucket: Bucket) -> None:
        """Give a bucket out."""
        with self._changed:
            self._buckets.append(bucket)
            self._changed.notify_all()

    def finish(self, failure: BaseException | None = None) -> None:
        """Nothing more comes; with a failure the consumers raise."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def wait_drained(self) -> None:
        """Wait until every consumer has taken everything or is out."""
        with self._changed:
            self._changed.wait_for(lambda: not self._done or self._slowest() == len(self._buckets))

    def consumer(self, number: int) -> Iterator[Bucket]:
        """The buckets for one consumer.

        Raises:
            NothingSentError: the producer gave up before the first bucket, so that nothing was written.
            FeedClosedError: it failed later.
        """
        try:
            position = 0
            while (bucket := self._take(number, position)) is not None:
                yield bucket
                position += 1
                with self._changed:
                    self._done[number] = position
                    self._changed.notify_all()
        finally:
            self.leave(number)

    def leave(self, number: int, refused: bool = False) -> None:
        """Take a consumer out: it is done, it gave up, or it refused before anything was written."""
        with self._changed:
            self._done.pop(number, None)
            self._unasked.discard(number)
            self._refused = self._refused or refused
            self._changed.notify_all()

    def _take(self, number: int, position: int) -> Bucket | None:
        with self._changed:
            if number in self._unasked:
                self._unasked.discard(number)
                self._changed.notify_all()
            self._changed.wait_for(lambda: position < len(self._buckets) or self._ended)
            if position < len(self._buckets):
                return self._buckets[position]
            if self._failure is not None and not position:
                raise NothingSentError(f"nothing was written: {self._failure}")
            if self._failure is not None:
                raise FeedClosedError(f"the trainer stopped sending weights: {self._failure}")
            return None

    def _slowest(self) -> int:
        return min(self._done.values(), default=len(self._buckets))
