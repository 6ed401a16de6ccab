"""Continuing an aborted sample: when there is nothing left to do, and how the parts are joined."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from rollout_core.types import FinishReason, GenerateRequest, GenerateResult, Status

__all__ = ["ended_result", "join_prior"]

T = TypeVar("T")


def ended_result(request: GenerateRequest, eos_token_ids: Collection[int]) -> GenerateResult | None:
    """The prior as a completed result when it had reached its end before it was cut, else None."""
    prior, params = request.prior, request.params
    if prior is None:
        return None
    tokens = prior.token_ids
    last = tokens[-1] if tokens else None
    may_stop = len(tokens) >= max(1, params.min_tokens)
    if (may_stop and last in params.stop_token_ids) or (may_stop and last in eos_token_ids and not params.ignore_eos):
        reason = FinishReason.STOP
    elif params.max_tokens is not None and len(tokens) >= params.max_tokens:
        reason = FinishReason.LENGTH
    else:
        return None
    stop_reason = last if reason is FinishReason.STOP else None
    return replace(
        prior,
        request_id=request.request_id,
        finish_reason=reason,
        stop_reason=stop_reason,
        status=Status.COMPLETED,
        error=None,
    )


def join_prior(request: GenerateRequest, result: GenerateResult) -> GenerateResult:
    """Put the tokens of the prior in front of the new ones; text and experts come whole from the continuation."""
    prior = request.prior
    if prior is None:
        return result
    return replace(
        result,
        token_ids=prior.token_ids + result.token_ids,
        logprobs=_joined(prior.logprobs, result.logprobs),
        sampled_logprobs=_joined_sampled(prior, result),
        top_logprobs=_joined(prior.top_logprobs, result.top_logprobs),
        weight_versions=prior.weight_versions + result.weight_versions,
        prompt_logprobs=result.prompt_logprobs or prior.prompt_logprobs,
    )


def _joined(before: tuple[T, ...] | None, after: tuple[T, ...] | None) -> tuple[T, ...] | None:
    return None if before is None or after is None else before + after


def _joined_sampled(prior: GenerateResult, result: GenerateResult) -> tuple[float, ...] | None:
    """Either part may lack them where they equal the model's own."""
    if prior.sampled_logprobs is None and result.sampled_logprobs is None:
        return None
    return _joined(prior.sampled_logprobs or prior.logprobs, result.sampled_logprobs or result.logprobs)
