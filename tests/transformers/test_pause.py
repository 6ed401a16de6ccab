"""Pausing stops the engine in the way that was asked, and going on changes no token."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

LONG: dict[str, Any] = {"max_tokens": 150, "seed": 4, "ignore_eos": True}


def begin(served: Any, prompt: Any, count: int = 2) -> list[Future[dict[str, Any]]]:
    """Requests of which at least one has started to generate."""
    before = served.engine.metrics.generated_tokens
    futures = [served.submit(prompt(i), **LONG) for i in range(count)]
    while served.engine.metrics.generated_tokens == before:
        time.sleep(0.001)
    return futures


def test_keep_freezes_and_continues_exactly(serve: Any, prompt: Any) -> None:
    served, fresh = serve(), serve()
    futures = begin(served, prompt)
    state = served.engine.pause("keep").result(timeout=10)
    assert state["paused"]
    assert state["running"] + state["waiting"] == 2
    progress = served.engine.metrics.progress
    later = served.submit(prompt(9), **LONG)
    time.sleep(0.1)
    assert served.engine.metrics.progress == progress
    assert not any(future.done() for future in (*futures, later))
    assert served.engine.resume().result(timeout=10)["paused"] is False
    for i, future in enumerate(futures):
        assert future.result(timeout=30)["token_ids"] == fresh.generate(prompt(i), **LONG)["token_ids"]
    assert len(later.result(timeout=30)["token_ids"]) == 150


def test_wait_finishes_what_runs_and_starts_nothing(serve: Any, prompt: Any) -> None:
    served = serve(max_batch_size=1)
    running, queued = begin(served, prompt)
    state = served.engine.pause("wait").result(timeout=30)
    assert (state["running"], state["waiting"], state["aborted"]) == (0, 1, 0)
    assert running.done()
    assert not queued.done()
    served.engine.resume().result()
    assert len(queued.result(timeout=30)["token_ids"]) == 150


def test_abort_ends_everything_and_new_requests_wait(serve: Any, prompt: Any) -> None:
    served = serve(max_batch_size=1)
    futures = begin(served, prompt)
    state = served.engine.pause("abort").result(timeout=10)
    assert (state["aborted"], state["running"], state["waiting"]) == (2, 0, 0)
    assert [future.result(timeout=5)["finish_reason"] for future in futures] == ["abort", "abort"]
    later = served.submit(prompt(5), max_tokens=2, ignore_eos=True)
    time.sleep(0.05)
    assert not later.done()
    served.engine.resume().result()
    assert later.result(timeout=30)["finish_reason"] == "length"


def test_a_frozen_sample_can_be_aborted(serve: Any, prompt: Any) -> None:
    served = serve()
    futures = begin(served, prompt)
    served.engine.pause("keep").result(timeout=10)
    assert served.engine.abort_all().result(timeout=10) == 2
    assert all(future.result(timeout=5)["finish_reason"] == "abort" for future in futures)


def test_continue_ends_a_pause_that_still_waits(serve: Any, prompt: Any) -> None:
    served = serve()
    begin(served, prompt)
    pausing = served.engine.pause("wait")
    served.engine.resume().result(timeout=10)
    assert pausing.result(timeout=10)["paused"] is False


def test_stopping_fails_what_is_in_flight(serve: Any, prompt: Any) -> None:
    served = serve()
    futures = begin(served, prompt)
    served.engine.stop()
    for future in (*futures, served.submit(prompt(1), **LONG)):
        with pytest.raises(Exception, match="shutting down"):
            future.result(timeout=10)
