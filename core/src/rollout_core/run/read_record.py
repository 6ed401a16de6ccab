"""Reads a sample's result back from its record, so that a cut sample can be continued in another run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_core.errors import InputError
from rollout_core.types import (
    CachePolicy,
    FinishReason,
    GenerateResult,
    LogprobKind,
    RoutedExperts,
    Status,
    Timing,
    TokenLogprob,
)

__all__ = ["read_result"]


def read_result(record: Mapping[str, Any]) -> GenerateResult:
    """The result in a record of ``samples.jsonl`` or ``samples.parquet``, named by its ``sample_id``.

    Raises:
        InputError: a field is missing or is not what it should be.
    """
    try:
        return _result(record)
    except KeyError as error:
        raise InputError(f"the record of sample {record.get('sample_id')} has no field {error}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"the record of sample {record.get('sample_id')} cannot be read: {error}") from error


def _result(record: Mapping[str, Any]) -> GenerateResult:
    return GenerateResult(
        request_id=record["sample_id"],
        prompt_ids=tuple(record["prompt_ids"]),
        token_ids=tuple(record["token_ids"]),
        logprobs=_tuple(record["logprobs"]),
        logprob_kind=LogprobKind(record["logprob_kind"] or LogprobKind.MODEL),
        sampled_logprobs=_tuple(record["sampled_logprobs"]),
        text=record["text"],
        finish_reason=FinishReason(record["finish_reason"]),
        stop_reason=record["stop_reason"],
        status=Status(record["status"]),
        error=record["error"],
        weight_versions=tuple(record["weight_versions"]),
        lag=record["lag"],
        cache_policy=record["cache_policy"] and CachePolicy(record["cache_policy"]),
        top_logprobs=_top(record["top_logprobs"]),
        prompt_logprobs=_tuple(record["prompt_logprobs"]),
        routed_experts=_experts(record["routed_experts"]),
        cached_tokens=record["cached_tokens"],
        engine=record["engine"],
        attempts=record["attempts"],
        timing=Timing(**record["timing"]),
    )


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _top(top: Mapping[str, Any] | None) -> tuple[tuple[TokenLogprob, ...], ...] | None:
    if top is None:
        return None
    rows = zip(top["token_ids"], top["logprobs"], strict=True)
    return tuple(tuple(map(TokenLogprob, ids, logprobs)) for ids, logprobs in rows)


def _experts(experts: Mapping[str, Any] | None) -> RoutedExperts | None:
    if experts is None:
        return None
    tokens, layers, top_k = experts["shape"]
    return RoutedExperts((tokens, layers, top_k), experts["dtype"], base64.b64decode(experts["data"]))
