"""The embedded server's generate call: request to JSON body, reply to result."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_core import ReplyError
from rollout_core.types import (
    FinishReason,
    GenerateRequest,
    GenerateResult,
    HttpCall,
    LogprobKind,
    Reply,
    RoutedExperts,
    Timing,
    TokenLogprob,
)

__all__ = ["generate_call", "generate_result"]


def generate_call(request: GenerateRequest) -> HttpCall:
    """The call for one sample; the server knows every parameter by its own name."""
    params = request.params
    body: dict[str, Any] = {
        "request_id": request.request_id,
        "prompt_ids": request.prompt_ids,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "seed": params.seed,
        "stop": params.stop,
        "stop_token_ids": params.stop_token_ids,
        "ignore_eos": params.ignore_eos,
        "include_stop": params.include_stop,
        "return_logprob": params.return_logprob,
        "top_logprobs": params.top_logprobs,
        "prompt_logprobs": params.prompt_logprobs,
        "routed_experts": params.routed_experts,
        "skip_special_tokens": params.skip_special_tokens,
    }
    if request.prior is not None:
        body["prior_ids"] = request.prior.token_ids
    return HttpCall("/generate", body)


def generate_result(request: GenerateRequest, reply: Reply) -> GenerateResult:
    """The new tokens in a 2xx reply.

    Raises:
        ReplyError: a field is missing or is not what it should be.
    """
    body = reply.body
    if not isinstance(body, Mapping):
        raise ReplyError(f"expected a JSON object, got {str(body)[:200]!r}")
    try:
        return _result(request, body)
    except KeyError as error:
        raise ReplyError(f"the reply has no field {error}") from error
    except (TypeError, ValueError, binascii.Error) as error:
        raise ReplyError(f"the reply cannot be read: {error}") from error


def _result(request: GenerateRequest, body: Mapping[str, Any]) -> GenerateResult:
    tokens = tuple(body["token_ids"])
    timing = body["timing"]
    return GenerateResult(
        request_id=body["request_id"],
        prompt_ids=request.prompt_ids,
        token_ids=tokens,
        logprobs=_tuple(body["logprobs"]),
        logprob_kind=LogprobKind.MODEL,
        sampled_logprobs=_tuple(body["sampled_logprobs"]),
        text=body["text"],
        finish_reason=FinishReason(body["finish_reason"]),
        stop_reason=body["stop_reason"],
        error=body["error"],
        weight_versions=_versions(body["weight_versions"], len(tokens)),
        top_logprobs=_top(body["top_logprobs"]),
        prompt_logprobs=_tuple(body["prompt_logprobs"]),
        routed_experts=_experts(body["routed_experts"]),
        cached_tokens=body["cached_tokens"],
        timing=Timing(timing["queued_s"], timing["prefill_s"], timing["decode_s"]),
    )


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _versions(spans: Sequence[tuple[int, int, int]], tokens: int) -> tuple[int, ...]:
    """One version per token, from spans ``[version, start, end)`` that must cover all tokens in order."""
    versions: list[int] = []
    for version, start, end in spans:
        if start != len(versions) or end < start:
            raise ReplyError(f"weight_versions has a gap or an overlap at token {len(versions)}: {spans}")
        versions += [version] * (end - start)
    if len(versions) != tokens:
        raise ReplyError(f"weight_versions covers {len(versions)} of {tokens} tokens")
    return tuple(versions)


def _top(rows: Sequence[Sequence[tuple[int, float]]] | None) -> tuple[tuple[TokenLogprob, ...], ...] | None:
    if rows is None:
        return None
    return tuple(tuple(TokenLogprob(token, logprob) for token, logprob in row) for row in rows)


def _experts(experts: Mapping[str, Any] | None) -> RoutedExperts | None:
    if experts is None:
        return None
    tokens, layers, top_k = experts["shape"]
    return RoutedExperts((tokens, layers, top_k), experts["dtype"], base64.b64decode(experts["data"], validate=True))
