"""Each request comes back exactly once: as completed, aborted, or failed with a reason."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest

from rollout_core import (
    EngineError,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    RequestError,
    SampleParams,
    Status,
)
from rollout_core.types import PauseMode

ASK = GenerateRequest((1, 2, 3), SampleParams(max_tokens=2), request_id="r")


def lost(body: Any) -> Any:
    raise httpx.ReadError("connection reset")


def status(code: int, message: str) -> Any:
    return lambda body: httpx.Response(code, json={"error": {"type": "x", "message": message}})


async def test_a_good_reply_is_a_completed_result_with_engine_versions_and_timing(fleet: Any) -> None:
    engines = fleet()
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.finish_reason) == (Status.COMPLETED, FinishReason.LENGTH)
    assert (result.token_ids, result.logprobs, result.weight_versions) == ((5, 6), (-0.5, -1.5), (3, 3))
    assert (result.engine, result.attempts, result.prompt_ids) == ("engine-0", 1, (1, 2, 3))
    assert result.timing.decode_s == 0.3
    assert result.timing.total_s > 0
    assert engines.successes == ["engine-0"]


async def test_a_lost_engine_costs_the_request_nothing_but_an_attempt(fleet: Any, reply: Any) -> None:
    engines = fleet(lost, reply)
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.engine, result.attempts) == (Status.COMPLETED, "engine-1", 2)
    assert engines.faults == [("engine-0", "engine-0 was lost while it worked on the request: connection reset")]


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_attempts_are_bounded_in_total(fleet: Any, retries: int) -> None:
    engines = fleet(status(500, "out of memory"), lost, max_retries_per_sample=retries)
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.attempts, len(engines.bodies)) == (Status.FAILED, retries + 1, retries + 1)
    assert f"sent {retries + 1} times" in (result.error or "")


async def test_a_4xx_is_the_requests_fault_and_never_retried_or_counted_against_the_engine(fleet: Any) -> None:
    engines = fleet(status(400, "max_tokens: too large"), status(400, "max_tokens: too large"))
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert result.status is Status.FAILED
    assert "engine-0 refused the request (400): max_tokens: too large" in (result.error or "")
    assert (engines.faults, len(engines.bodies)) == ([], 1)


@pytest.mark.parametrize("code", [429, 503])
async def test_backpressure_is_waited_out_and_not_counted_against_the_engine(fleet: Any, reply: Any, code: int) -> None:
    answers = iter([httpx.Response(code, json={}), httpx.Response(code, json={})])
    engines = fleet(lambda body: next(answers, None) or reply(body))
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.attempts, len(engines.bodies)) == (Status.COMPLETED, 1, 3)
    assert engines.faults == []


async def test_engines_that_stay_busy_fail_the_request_after_the_rollout_timeout(fleet: Any) -> None:
    engines = fleet(status(503, "asleep"), rollout_timeout_s=0.1)
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert "engines were busy for 0.1 s: asleep" in (result.error or "")


async def test_without_an_engine_in_service_the_request_fails_with_the_reasons(fleet: Any) -> None:
    engines = fleet()
    engines.dead = {"engine-0"}
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.error) == (
        Status.FAILED,
        "no engine is in service: engine-0: it was killed",
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"logprobs": [-0.5]}, "logprobs has 1 entries for 2 tokens"),
        ({"logprobs": None}, "logprobs was asked for"),
        ({"logprobs": [-0.5, 0.1]}, r"logprobs\[1\] is 0.1"),
        ({"token_ids": [5, 100]}, r"token_ids\[1\] is 100, outside the vocabulary of 100"),
        ({"token_ids": [5, -1]}, r"token_ids\[1\] is -1"),
        ({"token_ids": [5, 6, 7], "logprobs": [-1, -1, -1], "weight_versions": [[1, 0, 3]]}, "max_tokens is 2"),
        ({"request_id": "other"}, "is of request other, expected r"),
        ({"finish_reason": "tired"}, "tired"),
        ({"weight_versions": [[1, 0, 1]]}, "covers 1 of 2 tokens"),
        ({"weight_versions": [[1, 0, 1], [2, 0, 2]]}, "gap or an overlap"),
        ({"token_ids": [], "logprobs": [], "weight_versions": []}, "has no token"),
    ],
)
async def test_a_reply_that_breaks_the_rules_fails_its_sample_with_the_rule(
    fleet: Any, reply: Any, broken: dict[str, Any], message: str
) -> None:
    async with fleet(lambda body: reply(body, **broken)).client() as client:
        result = await client.generate(ASK)
    assert result.status is Status.FAILED
    assert re.search(message, result.error or ""), result.error


async def test_a_reply_that_is_not_json_fails_its_sample(fleet: Any) -> None:
    async with fleet(lambda body: httpx.Response(200, text="<html>")).client() as client:
        result = await client.generate(ASK)
    assert "expected a JSON object, got '<html>'" in (result.error or "")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GenerateRequest((1, 100)), "prompt_ids[1] is 100; the model's ids are 0 to 99"),
        (GenerateRequest((1,), SampleParams(stop_token_ids=(500,))), "stop_token_ids[0] is 500"),
        (GenerateRequest(tuple(range(16))), "the prompt has 16 tokens, and the context length is 16"),
        (GenerateRequest((1,), SampleParams(routed_experts=True)), "set routed_experts = true"),
    ],
)
async def test_a_bad_request_is_refused_before_it_reaches_an_engine(
    fleet: Any, request_: GenerateRequest, message: str
) -> None:
    engines = fleet()
    async with engines.client() as client:
        result = await client.generate(request_)
    assert result.status is Status.FAILED
    assert message in (result.error or "")
    assert engines.bodies == []


@pytest.mark.parametrize("ids", [(), (-1,), (1.5,), (True,), ("1",)])
def test_prompts_that_are_no_token_ids_cannot_be_built(ids: Any) -> None:
    with pytest.raises(RequestError):
        GenerateRequest(ids)


async def test_an_aborted_reply_is_aborted_and_its_continuation_is_joined_to_it(fleet: Any, reply: Any) -> None:
    def first_then_rest(body: Any) -> Any:
        if "prior_ids" not in body:
            return reply(body, finish_reason="abort")
        return reply(
            body, token_ids=[7], logprobs=[-2.0], weight_versions=[[4, 0, 1]], text="abc", finish_reason="stop"
        )

    engines = fleet(first_then_rest)
    ask = replace(ASK, params=SampleParams(max_tokens=5))
    async with engines.client() as client:
        cut = await client.generate(ask)
        whole = await client.generate(replace(ask, prior=cut))
    assert cut.status is Status.ABORTED
    assert engines.bodies[1][1]["prior_ids"] == [5, 6]
    assert (whole.token_ids, whole.logprobs) == ((5, 6, 7), (-0.5, -1.5, -2.0))
    assert (whole.weight_versions, whole.text, whole.status) == ((3, 3, 4), "abc", Status.COMPLETED)


async def test_a_prior_of_another_prompt_is_refused(fleet: Any) -> None:
    engines = fleet()
    async with engines.client() as client:
        other = await client.generate(replace(ASK, prompt_ids=(9,)))
        result = await client.generate(replace(ASK, prior=other))
    assert "belongs to another prompt" in (result.error or "")


async def test_a_group_goes_to_one_engine_and_groups_spread_over_the_engines(fleet: Any, reply: Any) -> None:
    engines = fleet(reply, reply)
    async with engines.client() as client:
        for group in range(4):
            results = await client.generate_group((1, 2), SampleParams(max_tokens=2, seed=7), 8, f"g{group}")
            assert len({result.engine for result in results}) == 1
            assert len({result.request_id for result in results}) == 8
    assert sorted(body["seed"] for _, body in engines.bodies[:8]) == list(range(7, 15))


async def test_requests_of_their_own_go_to_the_least_loaded_engine(fleet: Any, reply: Any) -> None:
    engines = fleet(reply, reply, reply)
    async with engines.client() as client:
        await asyncio.gather(*(client.generate(replace(ASK, request_id=str(i))) for i in range(99)))
    assert Counter(host for host, _ in engines.bodies) == {"engine-0": 33, "engine-1": 33, "engine-2": 33}


async def test_a_client_that_is_not_open_says_how_to_open_it(fleet: Any) -> None:
    with pytest.raises(EngineError, match="async with RolloutClient"):
        await fleet().client().generate(ASK)


async def test_the_first_api_key_is_sent_and_appears_in_no_error(fleet: Any) -> None:
    seen = []
    engines = fleet(api_keys=("secret-1", "secret-2"))

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(401, json={"error": "wrong key"})

    engines._answer = answer
    async with engines.client() as client:
        result = await client.generate(ASK)
    assert seen == ["Bearer secret-1"]
    assert "secret" not in (result.error or "")
    assert "secret" not in repr(engines.plugins.config)


def cut(tokens: tuple[int, ...], **more: Any) -> GenerateResult:
    """An aborted result of the prompt of ``ASK``."""
    return GenerateResult(
        "old",
        ASK.prompt_ids,
        tokens,
        (-1.0,) * len(tokens),
        weight_versions=(1,) * len(tokens),
        finish_reason=FinishReason.ABORT,
        status=Status.ABORTED,
        **more,
    )


@pytest.mark.parametrize(
    ("tokens", "params", "reason"),
    [
        ((7, 2), SampleParams(), FinishReason.STOP),  # 2 ends a sequence of this model
        ((7, 9), SampleParams(stop_token_ids=(9,)), FinishReason.STOP),
        ((7, 8), SampleParams(max_tokens=2), FinishReason.LENGTH),
        ((7, 2), SampleParams(max_tokens=2, ignore_eos=True), FinishReason.LENGTH),
    ],
)
async def test_a_sample_that_had_reached_its_end_completes_without_a_request(
    fleet: Any, tokens: tuple[int, ...], params: SampleParams, reason: FinishReason
) -> None:
    engines = fleet()
    async with engines.client() as client:
        result = await client.generate(replace(ASK, params=params), prior=cut(tokens))
    assert (result.status, result.finish_reason, result.token_ids) == (Status.COMPLETED, reason, tokens)
    assert engines.bodies == []


@pytest.mark.parametrize("params", [SampleParams(ignore_eos=True), SampleParams(min_tokens=3)])
async def test_a_sample_that_may_not_end_yet_is_continued(fleet: Any, params: SampleParams) -> None:
    engines = fleet()
    async with engines.client() as client:
        result = await client.generate(replace(ASK, params=params), prior=cut((7, 2)))
    assert result.token_ids == (7, 2, 5, 6)
    assert len(engines.bodies) == 1


async def test_without_partial_rollout_an_aborted_sample_is_drawn_again_from_its_prompt(fleet: Any) -> None:
    engines = fleet(partial_rollout=False)
    async with engines.client() as client:
        result = await client.generate(ASK, prior=cut((7,)))
    assert result.token_ids == (5, 6)
    assert "prior_ids" not in engines.bodies[0][1]


async def test_sampled_logprobs_are_filled_from_the_models_own_where_a_part_lacks_them(fleet: Any, reply: Any) -> None:
    engines = fleet(lambda body: reply(body, sampled_logprobs=[-0.1, -0.2]))
    async with engines.client() as client:
        result = await client.generate(replace(ASK, params=SampleParams(max_tokens=5)), prior=cut((7,)))
    assert result.sampled_logprobs == (-1.0, -0.1, -0.2)


async def test_a_failed_continuation_keeps_the_tokens_of_its_prior(fleet: Any) -> None:
    engines = fleet(status(400, "no"))
    async with engines.client() as client:
        result = await client.generate(replace(ASK, params=SampleParams(max_tokens=5)), prior=cut((7, 8)))
    assert (result.status, result.token_ids) == (Status.FAILED, (7, 8))


async def test_while_paused_a_request_waits_or_comes_back_with_what_it_has(fleet: Any) -> None:
    engines = fleet()
    async with engines.client() as client:
        engines.pause(PauseMode.KEEP)
        back = await client.generate(replace(ASK, params=SampleParams()), prior=cut((7,)), when_paused="abort")
        assert (back.status, back.token_ids, back.request_id) == (Status.ABORTED, (7,), "r")
        waiting = asyncio.create_task(client.generate(ASK))
        await asyncio.sleep(0.01)
        assert (waiting.done(), engines.bodies) == (False, [])
        engines.pause(None)
        assert (await waiting).status is Status.COMPLETED
