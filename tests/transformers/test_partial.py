"""A sample cut at any position and continued is the uncut sample, to the last log-probability and character."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from rollout_core import GenerateRequest, GenerateResult, Plugins, RolloutConfig, SampleParams
from rollout_core.client.continuation import ended_result, join_prior
from rollout_core.client.result import check_result, status_of
from rollout_core.types import FinishReason, Reply, Status
from rollout_transformers import plugin

LENGTH = 24


@pytest.fixture(scope="module")
def config() -> RolloutConfig:
    return Plugins.from_objects(RolloutConfig(model_path="m"), plugin).config


def as_sent(config: RolloutConfig, request: GenerateRequest) -> dict[str, Any]:
    """The payload as the server reads it."""
    body: dict[str, Any] = orjson.loads(orjson.dumps(plugin.build_payload(config, request).body))
    return {"prompt": body.pop("prompt_ids"), **body}


@pytest.fixture
def generate(serve: Callable[..., Any], config: RolloutConfig) -> Callable[[GenerateRequest], GenerateResult]:
    """Through the plugin's wire format and core's joining, against an engine in this process."""
    served = serve()

    def run(request: GenerateRequest) -> GenerateResult:
        if (ended := ended_result(request, served.engine.loaded.eos_ids)) is not None:
            return ended
        reply = served.generate(**as_sent(config, request))
        result = plugin.parse_response(config, request, Reply(200, reply))
        checked = check_result(request, join_prior(request, result), served.engine.loaded.vocab_size)
        return replace(checked, status=status_of(checked))

    return run


def cut_at(whole: GenerateResult, place: int, text: str) -> GenerateResult:
    """What an abort after `place` tokens gives."""
    return replace(
        whole,
        token_ids=whole.token_ids[:place],
        logprobs=whole.logprobs and whole.logprobs[:place],
        sampled_logprobs=whole.sampled_logprobs and whole.sampled_logprobs[:place],
        weight_versions=whole.weight_versions[:place],
        text=text,
        finish_reason=FinishReason.ABORT,
        status=Status.ABORTED,
        stop_reason=None,
    )


CASES = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "top_p": 0.9, "seed": 11},
    "penalties": {"seed": 12, "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    "min_tokens": {"seed": 13, "min_tokens": 10},
}


@pytest.mark.parametrize("case", CASES)
def test_cut_anywhere_gives_the_uncut_tokens(generate: Any, prompt: Any, case: str) -> None:
    params = SampleParams(max_tokens=LENGTH, ignore_eos=case != "min_tokens", **CASES[case])
    request = GenerateRequest(tuple(prompt(3, 15)), params, request_id="r")
    whole = generate(request)
    for place in range(1, len(whole.token_ids)):
        joined = generate(replace(request, prior=cut_at(whole, place, "")))
        assert joined.token_ids == whole.token_ids
        assert joined.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
        assert joined.sampled_logprobs == (whole.sampled_logprobs and pytest.approx(whole.sampled_logprobs, abs=1e-3))
        assert (joined.text, joined.finish_reason, joined.status) == (whole.text, whole.finish_reason, whole.status)


@pytest.mark.parametrize("include_stop", [False, True])
def test_a_stop_string_across_the_cut_is_found(generate: Any, prompt: Any, include_stop: bool) -> None:
    params = SampleParams(temperature=0, max_tokens=LENGTH, ignore_eos=True, include_stop=include_stop)
    request = GenerateRequest(tuple(prompt(4, 15)), params, request_id="r")
    text = generate(request).text
    stop = text[len(text) // 2 : len(text) // 2 + 8]
    stopping = replace(request, params=params.model_copy(update={"stop": (stop,)}))
    whole = generate(stopping)
    assert (whole.finish_reason, whole.stop_reason) == (FinishReason.STOP, stop)
    for place in range(1, len(whole.token_ids)):
        begun = generate(replace(request, params=params.model_copy(update={"max_tokens": place})))
        joined = generate(replace(stopping, prior=cut_at(whole, place, begun.text)))
        assert (joined.token_ids, joined.text) == (whole.token_ids, whole.text), place
        assert (joined.finish_reason, joined.stop_reason) == (FinishReason.STOP, stop)


def test_what_had_reached_its_end_is_complete_without_the_engine(generate: Any, prompt: Any) -> None:
    request = GenerateRequest(tuple(prompt(5, 15)), SampleParams(temperature=0, max_tokens=5, ignore_eos=True))
    whole = generate(request)
    again = generate(replace(request, prior=cut_at(whole, 5, whole.text)))
    assert (again.token_ids, again.finish_reason, again.status) == (
        whole.token_ids,
        FinishReason.LENGTH,
        Status.COMPLETED,
    )


def test_routed_experts_of_a_continued_sample_cover_all_its_tokens(serve: Any, config: Any, prompt: Any) -> None:
    served = serve("qwen3_moe", return_routed_experts=True)
    params = SampleParams(temperature=0, max_tokens=8, ignore_eos=True, routed_experts=True)
    request = GenerateRequest(tuple(prompt(6, 12)), params, request_id="r")

    def run(request: GenerateRequest) -> GenerateResult:
        reply = served.generate(**as_sent(config, request))
        return check_result(request, join_prior(request, plugin.parse_response(config, request, Reply(200, reply))))

    whole = run(request)
    for place in range(1, 8):
        joined = run(replace(request, prior=cut_at(whole, place, "")))
        assert joined.routed_experts == whole.routed_experts
