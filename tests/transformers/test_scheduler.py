"""Rows, prefixes, eviction and isolation: how samples are scheduled never shows in their tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rollout_transformers.engine.rows import shared_prefix
from rollout_transformers.engine.scheduler import Scheduler

SEEDED: dict[str, Any] = {"max_tokens": 12, "seed": 5, "ignore_eos": True}


def test_a_group_of_samples_is_prefilled_once(serve: Any, prompt: Any) -> None:
    served = serve(max_batch_size=8)
    ids = prompt(1, 40)
    replies = served.together([{"prompt": ids, "max_tokens": 6, "seed": i, "ignore_eos": True} for i in range(8)])
    assert sorted(reply["cached_tokens"] for reply in replies) == [0] + [39] * 7
    assert served.engine.metrics.prefilled_tokens == 40
    fresh = serve(prefix_reuse=False)
    expected = [fresh.generate(ids, max_tokens=6, seed=i, ignore_eos=True)["token_ids"] for i in range(8)]
    assert [reply["token_ids"] for reply in replies] == expected


def test_a_shared_beginning_is_copied_and_the_rest_computed(serve: Any, prompt: Any) -> None:
    served, fresh = serve(), serve(prefix_reuse=False)
    start = prompt(1, 60)
    prompts = [start + prompt(seed, 10) for seed in range(2, 6)]
    replies = served.together([{"prompt": ids, **SEEDED} for ids in prompts])
    assert sorted(reply["cached_tokens"] for reply in replies) == [0, 60, 60, 60]
    assert [reply["token_ids"] for reply in replies] == [fresh.generate(ids, **SEEDED)["token_ids"] for ids in prompts]


def test_the_next_turn_continues_from_a_row_that_was_left(serve: Any, prompt: Any) -> None:
    served, fresh = serve(), serve(prefix_reuse=False)
    first = prompt(1, 30)
    reply = served.generate(first, **SEEDED)
    served.generate(prompt(2, 30), **SEEDED)
    second = first + reply["token_ids"] + prompt(3, 5)
    again = served.generate(second, **SEEDED)
    assert again["cached_tokens"] == 30 + 12 - 1
    assert again["token_ids"] == fresh.generate(second, **SEEDED)["token_ids"]


def test_without_prefix_reuse_nothing_is_cached(serve: Any, prompt: Any) -> None:
    served = serve(prefix_reuse=False)
    replies = served.together([{"prompt": prompt(1, 20), **SEEDED} for _ in range(3)])
    assert [reply["cached_tokens"] for reply in replies] == [0, 0, 0]


def test_after_a_recomputation_samples_go_on_and_nothing_older_is_copied(serve: Any, prompt: Any) -> None:
    served, fresh = serve(), serve(max_batch_size=1, prefix_reuse=False)
    running = [{"prompt": prompt(i, 20), "max_tokens": 60, "ignore_eos": True, "seed": i} for i in range(3)]
    futures = [served.submit(**request) for request in running]
    while served.engine.metrics.generated_tokens < 30:
        pass
    served.engine.call(served.engine.scheduler.recompute_all).result()
    assert served.generate(prompt(9, 20), **SEEDED)["cached_tokens"] == 0
    for request, future in zip(running, futures, strict=True):
        assert future.result(timeout=30)["token_ids"] == fresh.generate(**request)["token_ids"]


def test_samples_that_leave_at_different_times_do_not_disturb_others(serve: Any, prompt: Any) -> None:
    served, fresh = serve(max_batch_size=4, max_prefill_tokens=32), serve(max_batch_size=1, prefix_reuse=False)
    requests = [
        {"prompt": prompt(i, 3 + 11 * i % 50), "max_tokens": 2 + 7 * i % 23, "seed": i, "ignore_eos": True}
        for i in range(14)
    ]
    replies = served.together(requests)
    for request, reply in zip(requests, replies, strict=True):
        assert reply["token_ids"] == fresh.generate(**request)["token_ids"]
        assert len(reply["token_ids"]) == request["max_tokens"]


def test_an_evicted_sample_is_recomputed_with_the_same_result(serve: Any, prompt: Any) -> None:
    served, fresh = serve(kv_cache_tokens=210, context_length=120), serve(context_length=120)
    requests = [{"prompt": prompt(i, 30), "max_tokens": 80, "seed": i, "ignore_eos": True} for i in range(4)]
    replies = served.together(requests)
    assert served.engine.metrics.evicted > 0
    for request, reply in zip(requests, replies, strict=True):
        assert reply["token_ids"] == fresh.generate(**request)["token_ids"]
        assert len(reply["token_ids"]) == 80


def test_rows_and_length_stay_within_the_budget(serve: Any, prompt: Any) -> None:
    served = serve(kv_cache_tokens=300)
    cache, seen = served.engine.runner.cache, []
    resize = cache.resize
    cache.resize = lambda rows, length: (seen.append(rows * length), resize(rows, length))
    served.together([{"prompt": prompt(i, 20 + 10 * i), **SEEDED} for i in range(10)])
    assert seen
    assert max(seen) <= 300


@pytest.mark.parametrize("cut", range(11))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_continuing_after_a_cut_gives_the_uncut_tokens(llama: Any, prompt: Any, cut: int, temperature: float) -> None:
    request = {
        "prompt": prompt(1, 12),
        "max_tokens": 10,
        "min_tokens": 4,
        "seed": 9,
        "temperature": temperature,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
    }
    whole = llama.generate(**request)
    rest = llama.generate(**request, prior_ids=whole["token_ids"][:cut])
    assert rest["token_ids"] == whole["token_ids"][cut:]
    assert rest["finish_reason"] == whole["finish_reason"]
    assert rest["prompt_tokens"] == 12


def test_a_sample_whose_prior_tokens_ended_it_gets_no_more(llama: Any, prompt: Any) -> None:
    ids = prompt(2, 12)
    whole = llama.generate(ids, max_tokens=6, temperature=0.0)
    token = whole["token_ids"][3]
    rest = llama.generate(ids, max_tokens=9, stop_token_ids=[token], prior_ids=whole["token_ids"][:4])
    assert (rest["token_ids"], rest["finish_reason"], rest["stop_reason"]) == ([], "stop", token)


def fail_on(scheduler: Scheduler, bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every forward pass that contains the token `bad` raise."""
    forward = scheduler._runner._forward

    def broken(step: Any, ids: torch.Tensor, *rest: Any) -> Any:
        if (ids == bad).any():
            raise RuntimeError("injected")
        return forward(step, ids, *rest)

    monkeypatch.setattr(scheduler._runner, "_forward", broken)


@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_an_exception_fails_the_culprit_alone(
    stage: str, serve: Any, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, fresh = serve(), serve()
    requests = [{"prompt": prompt(i, 10 + i), **SEEDED} for i in range(5)]
    expected = [fresh.generate(**request)["token_ids"] for request in requests]
    bad = requests[2]["prompt"][4] if stage == "prefill" else expected[2][6]
    fail_on(served.engine.scheduler, bad, monkeypatch)
    served.engine.pause("keep").result()
    futures = [served.submit(**request) for request in requests]
    served.engine.resume().result()
    with pytest.raises(RuntimeError, match="injected"):
        futures.pop(2).result(timeout=60)
    assert [future.result(timeout=60)["token_ids"] for future in futures] == expected[:2] + expected[3:]
    monkeypatch.undo()
    assert served.generate(**requests[2])["token_ids"] == expected[2]


def test_an_exception_in_the_text_of_one_sample_leaves_the_others(
    llama: Any, prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = "rollout_transformers.engine.stops.StopStrings.add"
    monkeypatch.setattr(decode, lambda self, token: 1 / 0 if self._stops else None)
    good, bad = llama.submit(prompt(1), **SEEDED), llama.submit(prompt(2), **SEEDED, stop=["x"])
    with pytest.raises(ZeroDivisionError):
        bad.result(timeout=60)
    assert len(good.result(timeout=60)["token_ids"]) == 12


def test_shared_prefix_is_the_length_of_the_common_beginning() -> None:
    base = list(range(100))
    for length in (0, 1, 2, 50, 99, 100):
        assert shared_prefix(base, [*base[:length], -1]) == length
    assert shared_prefix([], base) == 0
