"""A sample that was written can be read back and continued."""

import base64
from typing import Any

import orjson
import pytest

from rollout_core import GenerateResult, InputError, read_result
from rollout_core.run.record import encode_record, record_of
from rollout_core.types import (
    CachePolicy,
    FinishReason,
    LogprobKind,
    RoutedExperts,
    Sample,
    Status,
    Timing,
    TokenLogprob,
)

RESULT = GenerateResult(
    request_id="3-1",
    prompt_ids=(1, 2),
    token_ids=(3, 4),
    logprobs=(-0.1, -0.2),
    logprob_kind=LogprobKind.SAMPLED,
    sampled_logprobs=(-0.3, -0.4),
    text="ab",
    finish_reason=FinishReason.ABORT,
    status=Status.ABORTED,
    weight_versions=(1, 2),
    lag=1,
    cache_policy=CachePolicy.KEEP,
    top_logprobs=((TokenLogprob(3, -0.1),), (TokenLogprob(4, -0.2), TokenLogprob(5, -1.0))),
    prompt_logprobs=(None, -2.0),
    routed_experts=RoutedExperts((3, 1, 2), "uint8", bytes(range(6))),
    cached_tokens=1,
    engine="engine-0",
    attempts=2,
    timing=Timing(0.1, 0.2, 0.3, 0.6, 1.7e9),
)


def written(result: GenerateResult) -> dict[str, Any]:
    sample = Sample("3-1", 3, 1, "text", {"answer": 4}, result)
    record: dict[str, Any] = orjson.loads(encode_record(record_of(sample)))
    return record


@pytest.mark.parametrize("result", [RESULT, GenerateResult("3-1", (1,), finish_reason=FinishReason.ABORT)])
def test_a_result_comes_back_as_it_was(result: GenerateResult) -> None:
    assert read_result(written(result)) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": None}, "sample 3-1 cannot be read"),
        ({"status": "gone"}, "sample 3-1 cannot be read: 'gone' is not a valid Status"),
        ({"routed_experts": {"shape": [1, 1], "dtype": "uint8", "data": base64.b64encode(b"x").decode()}}, "cannot be"),
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_result(written(RESULT) | change)


def test_a_missing_field_is_named() -> None:
    record = written(RESULT)
    del record["logprobs"]
    with pytest.raises(InputError, match="sample 3-1 has no field 'logprobs'"):
        read_result(record)
