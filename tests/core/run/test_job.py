"""A job draws each missing sample once, keeps its engines busy, and counts what is on disk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout_core.errors import InputError, OutputError
from rollout_core.plugins import hookimpl
from rollout_core.run.plan import seed_of
from rollout_core.run.prompt import BrokenPrompt, Prompt
from rollout_core.run.record import Outcome
from rollout_core.run.sink_jsonl import JsonlSink
from rollout_core.types import GenerateRequest, GenerateResult, Sample, Status

Texts = Callable[[int], list[Prompt | BrokenPrompt]]


async def test_every_sample_of_every_prompt_is_written_once(bench: Any, texts: Texts) -> None:
    await bench.job(texts(5), n=3, planned=15).run()
    assert sorted(r["sample_id"] for r in bench.records) == sorted(f"{p}-{s}" for p in range(5) for s in range(3))
    assert bench.tally.counts() == {"planned": 15, "completed": 15, "failed": 0, "aborted": 0, "not_started": 0}
    assert bench.tally.complete


async def test_a_record_carries_the_result_and_the_fields_of_its_line(bench: Any, texts: Texts) -> None:
    await bench.job(texts(1)).run()
    (record,) = bench.records
    assert record["fields"] == {"id": 0}
    assert record["prompt"] == "hello world"
    assert record["prompt_ids"] == [1, 3, 4]
    assert len(record["token_ids"]) == len(record["logprobs"]) == len(record["weight_versions"]) == 2
    assert (record["status"], record["finish_reason"], record["logprob_kind"]) == ("completed", "stop", "model")


async def test_samples_of_a_prompt_are_sent_together_as_one_group(bench: Any, texts: Texts) -> None:
    await bench.job(texts(3), n=4).run()
    groups = [request.group_id for request in bench.client.requests]
    assert groups == sorted(groups)
    assert len(set(groups)) == 3
    ids = {request.request_id for request in bench.client.requests}
    assert len(ids) == 12
    assert all(any(request_id.endswith(f"-{p}-{s}") for request_id in ids) for p in range(3) for s in range(4))


async def test_no_more_than_the_concurrency_is_in_flight_and_no_less(bench: Any, texts: Texts) -> None:
    bench.client.delay_s = 0.01
    await bench.job(texts(40), concurrency=7).run()
    assert bench.client.most_running == 7


async def test_a_slow_sample_holds_up_no_other(bench: Any, texts: Texts) -> None:
    async def generate(request: GenerateRequest) -> GenerateResult:
        bench.client.requests.append(request)
        await asyncio.sleep(0.3 if request.request_id.endswith("-0-0") else 0.001)
        return bench.client.answer(request)

    bench.client.generate = generate
    began = time.monotonic()
    await bench.job(texts(50), concurrency=2).run()
    assert time.monotonic() - began < 0.6
    assert bench.records[-1]["sample_id"] == "0-0"


async def test_seeds_are_a_function_of_the_sample_alone(bench: Any, texts: Texts) -> None:
    await bench.job(texts(4), n=2, seed=7).run()
    seeds = {request.request_id.split("-", 1)[1]: request.params.seed for request in bench.client.requests}
    assert seeds == {f"{p}-{s}": seed_of(7, p, s) for p in range(4) for s in range(2)}
    assert len(set(seeds.values())) == 8
    assert all(0 <= seed < 2**63 for seed in seeds.values())


async def test_samples_that_are_there_are_not_drawn_again(bench: Any, texts: Texts) -> None:
    job = bench.job(texts(3), n=2, planned=6)
    for prompt, sample in [(0, 1), (1, 0), (1, 1)]:
        bench.tally.add(Outcome(prompt, sample, "completed", "stop", 1, 1, None, None, None))
    await job.run()
    assert sorted(r["sample_id"] for r in bench.records) == ["0-0", "2-0", "2-1"]
    assert bench.tally.complete


async def test_a_broken_line_becomes_failed_samples_and_the_counts_add_up(bench: Any, texts: Texts) -> None:
    prompts = [*texts(1), BrokenPrompt(1, "p.jsonl, line 2", "not JSON", {"id": 9})]
    await bench.job(prompts, n=2, planned=4).run()
    assert bench.tally.counts() == {"planned": 4, "completed": 2, "failed": 2, "aborted": 0, "not_started": 0}
    failed = [r for r in bench.records if r["status"] == "failed"]
    assert {r["error"] for r in failed} == {"p.jsonl, line 2: not JSON"}
    assert failed[0]["fields"] == {"id": 9}


async def test_a_prompt_that_cannot_be_rendered_fails_alone(bench: Any, texts: Texts) -> None:
    refused = Prompt(1, "p.jsonl, line 2", [{"role": "user", "content": {}}], {})
    bench.renderer = _Refusing(bench.renderer)
    await bench.job([*texts(1), refused]).run()
    assert [(r["status"], r["error"]) for r in bench.records if r["prompt_index"] == 1] == [
        ("failed", "p.jsonl, line 2: no chat")
    ]
    assert bench.tally.status["completed"] == 1


class _Refusing:
    def __init__(self, renderer: Any) -> None:
        self._renderer = renderer

    def render(self, prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, list):
            raise InputError("no chat")
        ids: tuple[int, ...] = self._renderer.render(prompt)
        return ids


async def test_an_exception_of_the_client_fails_one_sample(bench: Any, texts: Texts) -> None:
    good = bench.client.answer

    def answer(request: GenerateRequest) -> GenerateResult:
        if request.request_id.endswith("-1-0"):
            raise ValueError("a bug")
        result: GenerateResult = good(request)
        return result

    bench.client.answer = answer
    await bench.job(texts(3)).run()
    assert [r["error"] for r in bench.records if r["status"] == "failed"] == ["ValueError: a bug"]
    assert bench.tally.status["completed"] == 2


async def test_rewards_are_recorded_and_an_exception_in_one_costs_no_sample(bench: Any, texts: Texts) -> None:
    def reward(sample: Sample) -> float:
        assert threading.current_thread() is not threading.main_thread()
        if sample.prompt_index == 1:
            raise RuntimeError("no answer in it")
        return float(sample.fields["id"])

    bench.reward(reward)
    await bench.job(texts(3), planned=3).run()
    by_prompt = {r["prompt_index"]: r for r in bench.records}
    assert [by_prompt[i]["reward"] for i in range(3)] == [0.0, None, 2.0]
    assert by_prompt[1]["reward_error"] == "RuntimeError: no answer in it"
    assert by_prompt[1]["status"] == "completed"
    assert bench.tally.rewards() == {"mean": 1.0, "scored": 2, "errors": 1, "pass@1": 0.5}


@pytest.mark.parametrize(("answer", "error"), [(float("nan"), "the reward is nan"), ("high", "could not convert")])
async def test_a_reward_that_is_no_number_is_an_error(bench: Any, texts: Texts, answer: Any, error: str) -> None:
    bench.reward(lambda sample: answer)
    await bench.job(texts(1)).run()
    assert error in bench.records[0]["reward_error"]


async def test_failed_samples_are_not_scored(bench: Any, texts: Texts) -> None:
    good = bench.client.answer
    bench.client.answer = lambda request: replace(good(request), status=Status.FAILED, error="x")
    bench.reward(lambda sample: 1 / 0)
    await bench.job(texts(1)).run()
    assert bench.records[0]["reward_error"] is None


async def test_slow_rewards_do_not_idle_the_engines(bench: Any, texts: Texts) -> None:
    bench.reward(lambda sample: time.sleep(0.1) or 1.0)
    job = bench.job(texts(16), concurrency=1)
    began = time.monotonic()
    await job.run()
    assert time.monotonic() - began < 0.8, "16 rewards of 0.1 s were computed one after the other"


async def test_extensions_hear_of_a_sample_once_it_is_written(bench: Any, texts: Texts) -> None:
    heard: list[str] = []

    class Listener:
        @hookimpl
        def sample_finished(self, sample: Sample) -> None:
            assert sample.sample_id in {r["sample_id"] for r in bench.records}
            heard.append(sample.sample_id)
            raise RuntimeError("a listener may fail")

    bench.plugins.register(Listener(), "listener")
    await bench.job(texts(3)).run()
    assert sorted(heard) == ["0-0", "1-0", "2-0"]


async def test_a_stop_cancels_what_is_in_flight_and_writes_it_as_aborted(bench: Any, texts: Texts) -> None:
    bench.client.delay_s = 60
    job = bench.job(texts(20), planned=20, concurrency=4)
    running = asyncio.create_task(job.run())
    await asyncio.sleep(0.3)
    job.stop()
    await asyncio.wait_for(running, 2)
    assert bench.client.cancelled == 4
    assert bench.tally.counts() == {"planned": 20, "completed": 0, "failed": 0, "aborted": 4, "not_started": 16}
    assert {r["status"] for r in bench.records} == {"aborted"}


async def test_a_stop_waits_for_rewards_that_are_being_computed(bench: Any, texts: Texts) -> None:
    begun = threading.Event()

    def reward(sample: Sample) -> float:
        begun.set()
        time.sleep(0.2)
        return 1.0

    bench.reward(reward)
    job = bench.job(texts(1))
    running = asyncio.create_task(job.run())
    await asyncio.to_thread(begun.wait)
    job.stop()
    await running
    assert bench.records[0]["reward"] == 1.0


class _FullDisk:
    """A sink that takes ``room`` records."""

    def __init__(self, sink: JsonlSink, room: int) -> None:
        self.path, self._sink, self._room = sink.path, sink, room

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        if len(records) > self._room:
            raise OutputError("the disk is full")
        self._room -= len(records)
        self._sink.write(records)


async def test_a_full_disk_ends_the_job_and_what_was_counted_is_there(bench: Any, texts: Texts, tmp_path: Path) -> None:
    bench.client.delay_s = 0.005
    job = bench.job(texts(500), planned=500, sink=_FullDisk(JsonlSink(tmp_path / "samples.jsonl"), 20))
    with pytest.raises(OutputError, match="full"):
        await asyncio.wait_for(job.run(), 5)
    assert 0 < bench.tally.samples == len(bench.records) <= 20
    assert bench.client.running == 0


async def test_a_prompt_file_that_vanishes_ends_the_job_after_the_rest_is_written(bench: Any, texts: Texts) -> None:
    def vanishing() -> Any:
        yield from texts(32)
        raise InputError("prompt file gone")

    with pytest.raises(InputError, match="gone"):
        await bench.job(vanishing(), planned=40).run()
    assert bench.tally.samples == len(bench.records)


async def test_prompts_are_read_as_they_are_needed(bench: Any, texts: Texts) -> None:
    read = 0

    def endless() -> Any:
        nonlocal read
        for prompt in texts(100_000):
            read += 1
            yield prompt

    bench.client.delay_s = 60
    job = bench.job(endless(), concurrency=4)
    running = asyncio.create_task(job.run())
    await asyncio.sleep(0.2)
    job.stop()
    await running
    assert read < 200
