"""Several engines take one stream of buckets; a slow one holds it back, a failed one does not."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from rollout_core.types import Bucket
from rollout_core.weights.feed import BucketFeed, FeedClosedError, NothingSentError


def bucket(number: int) -> Bucket:
    return Bucket((), f"/{number}")


def produce(feed: BucketFeed, count: int, places: list[int]) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(FeedClosedError):  # the end of a test takes its consumers out
            for number in range(count):
                places.append(feed.wait_for_room())
                feed.put(bucket(number))
            feed.finish()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def taken(consumer: Iterator[Bucket]) -> list[str | None]:
    return [bucket.shared_memory for bucket in consumer]


def test_every_consumer_gets_every_bucket_in_order_and_places_are_used_in_turn() -> None:
    feed, places, results = BucketFeed(3), [], {}
    threads = [
        threading.Thread(target=lambda i=i: results.__setitem__(i, taken(feed.consumer(i))), daemon=True)
        for i in range(3)
    ]
    producer = produce(feed, 7, places)
    for thread in (*threads,):
        thread.start()
    for thread in (*threads, producer):
        thread.join(10)
    feed.wait_drained()
    assert results == {i: [f"/{n}" for n in range(7)] for i in range(3)}
    assert places == [0, 1, 0, 1, 0, 1, 0]


def test_a_bucket_is_not_used_again_before_the_slowest_consumer_is_done_with_it() -> None:
    feed, places = BucketFeed(2), []
    fast, slow = feed.consumer(0), feed.consumer(1)
    produce(feed, 5, places)
    next(slow)
    [next(fast) for _ in range(2)]
    time.sleep(0.1)
    assert len(places) == 2
    next(slow)
    next(fast)
    assert len(places) == 3


def test_a_consumer_that_is_closed_or_never_begins_is_not_waited_for() -> None:
    feed, places = BucketFeed(3), []
    quitter = feed.consumer(0)
    producer = produce(feed, 5, places)
    next(quitter)
    quitter.close()  # type: ignore[attr-defined]
    feed.leave(1)
    assert len(taken(feed.consumer(2))) == 5
    producer.join(10)
    assert not producer.is_alive()


def test_without_consumers_the_producer_is_told() -> None:
    feed = BucketFeed(1)
    feed.leave(0)
    with pytest.raises(FeedClosedError, match="no engine takes the weights"):
        feed.wait_for_room()


def test_a_producer_that_fails_fails_its_consumers() -> None:
    feed = BucketFeed(1)
    feed.put(bucket(0))
    feed.finish(RuntimeError("out of memory"))
    consumer = feed.consumer(0)
    next(consumer)
    with pytest.raises(FeedClosedError, match="stopped sending weights: out of memory"):
        next(consumer)


def test_a_producer_that_fails_before_the_first_bucket_has_changed_nothing() -> None:
    feed = BucketFeed(1)
    feed.finish(RuntimeError("out of memory"))
    with pytest.raises(NothingSentError, match="nothing was written: out of memory"):
        next(feed.consumer(0))


def test_all_consumers_have_checked_before_anything_is_sent() -> None:
    feed, asked = BucketFeed(2), []
    waiting = threading.Thread(target=lambda: asked.append(feed.wait_asked()), daemon=True)
    waiting.start()
    takers = [threading.Thread(target=lambda i=i: next(feed.consumer(i)), daemon=True) for i in range(2)]
    takers[0].start()
    waiting.join(0.1)
    assert not asked
    takers[1].start()
    waiting.join(10)
    assert asked == [2]
    feed.put(bucket(0))


def test_one_consumer_that_refuses_stops_the_update_for_all() -> None:
    feed = BucketFeed(3)
    feed.leave(2, refused=True)
    with pytest.raises(FeedClosedError, match="refused the weights; nothing was written"):
        feed.wait_asked()


def test_a_consumer_that_is_lost_before_it_asked_does_not_stop_the_others() -> None:
    feed = BucketFeed(1)
    feed.leave(0)
    assert feed.wait_asked() == 0
