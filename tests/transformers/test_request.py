"""A wrong request is refused with the name of the wrong field."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_transformers.engine.request import BadRequest, RequestLimits, parse_body

LIMITS = RequestLimits(vocab_size=100, context_length=10, routed_experts=False)
WRONG: list[tuple[str, Any]] = [
    ("prompt_ids", []),
    ("prompt_ids", "text"),
    ("prompt_ids", [1, 2.5]),
    ("prompt_ids", [1, True]),
    ("prompt_ids", [1, 100]),
    ("prompt_ids", [-1]),
    ("prior_ids", [100]),
    ("stop_token_ids", [100]),
    ("max_tokens", -1),
    ("max_tokens", "5"),
    ("min_tokens", -1),
    ("temperature", -0.1),
    ("temperature", float("nan")),
    ("top_p", 0.0),
    ("top_p", 1.1),
    ("top_k", -1),
    ("min_p", 1.5),
    ("repetition_penalty", 0.0),
    ("presence_penalty", None),
    ("seed", 1.5),
    ("stop", "text"),
    ("stop", [""]),
    ("top_logprobs", 1000),
    ("routed_experts", True),
    ("ignore_eos", 1),
    ("request_id", ""),
    ("unheard_of", 1),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda value: str(value)[:20])
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}") as caught:
        LIMITS.check(parse_body({"prompt_ids": [1], field: value}))
    assert caught.value.kind == "bad_request"


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(BadRequest, match="prompt_ids: this field is required"):
        parse_body({})


def test_a_prompt_that_fills_the_context_is_told_apart() -> None:
    with pytest.raises(BadRequest) as caught:
        LIMITS.check(parse_body({"prompt_ids": [1] * 10}))
    assert caught.value.kind == "context_length"
    LIMITS.check(parse_body({"prompt_ids": [1] * 9}))


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    with pytest.raises(BadRequest, match="min_tokens"):
        LIMITS.check(parse_body({"prompt_ids": [1], "min_tokens": 4, "max_tokens": 3}))


@pytest.mark.parametrize("body", [None, 5, [1], "text"])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(BadRequest, match="JSON object"):
        parse_body(body)
