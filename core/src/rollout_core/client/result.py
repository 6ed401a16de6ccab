"""The rules that every result obeys, and the results of requests that no engine answered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rollout_core.errors import ReplyError
from rollout_core.types import FinishReason, GenerateRequest, GenerateResult, Status

__all__ = ["aborted_result", "check_result", "failed_result", "status_of"]

_STATUS = {FinishReason.ABORT: Status.ABORTED, FinishReason.ERROR: Status.FAILED}


def check_result(request: GenerateRequest, result: GenerateResult, vocab_size: int | None = None) -> GenerateResult:
    """Return the result if it obeys the rules: a sample that is silently wrong is worse than a failed one.

    Ids, log-probabilities, versions and experts agree in length; log-probabilities are finite and <= 0; ids are
    within the vocabulary; what was asked for is there; the result belongs to the request.

    Raises:
        ReplyError: naming the first rule that is broken.
    """
    params, tokens = request.params, result.token_ids
    if result.request_id != request.request_id:
        raise ReplyError(f"the reply is of request {result.request_id}, expected {request.request_id}")
    if result.prompt_ids != request.prompt_ids:
        raise ReplyError("the reply is of another prompt than was sent")
    if result.finish_reason is None:
        raise ReplyError("the reply has no finish reason")
    _check_tokens(tokens, vocab_size)
    if not tokens and result.finish_reason not in (FinishReason.ABORT, FinishReason.ERROR):
        raise ReplyError(f"the reply has no token, but finished with '{result.finish_reason.value}'")
    if params.max_tokens is not None and len(tokens) > params.max_tokens:
        raise ReplyError(f"the reply has {len(tokens)} tokens, and max_tokens is {params.max_tokens}")
    _check_values("logprobs", result.logprobs, len(tokens), params.return_logprob)
    _check_values("sampled_logprobs", result.sampled_logprobs, len(tokens), False)
    _check_length("weight_versions", result.weight_versions, len(tokens))
    _check_length("top_logprobs", result.top_logprobs, len(tokens), params.top_logprobs > 0)
    _check_length("prompt_logprobs", result.prompt_logprobs, len(request.prompt_ids), params.prompt_logprobs)
    if result.prompt_logprobs is not None:
        known = [value for value in result.prompt_logprobs[1:] if value is not None]
        _check_values("prompt_logprobs[1:]", known, len(request.prompt_ids) - 1, False)
    _check_experts(request, result)
    return result


def _check_tokens(tokens: Sequence[int], vocab_size: int | None) -> None:
    # The builtins look at thousands of values in microseconds; the loop only finds the culprit.
    if not tokens or (
        set(map(type, tokens)) == {int} and min(tokens) >= 0 and (vocab_size is None or max(tokens) < vocab_size)
    ):
        return
    for position, token in enumerate(tokens):
        if type(token) is not int or token < 0 or (vocab_size is not None and token >= vocab_size):
            raise ReplyError(f"token_ids[{position}] is {token!r}, outside the vocabulary of {vocab_size}")


def _check_length(name: str, values: Sequence[object] | None, expected: int, asked: bool = False) -> None:
    if values is None:
        if asked and expected:
            raise ReplyError(f"{name} was asked for, and the reply has none")
    elif len(values) != expected:
        raise ReplyError(f"{name} has {len(values)} entries for {expected} tokens")


def _check_values(name: str, values: Sequence[float] | None, expected: int, asked: bool) -> None:
    _check_length(name, values, expected, asked)
    if not values or (set(map(type, values)) <= {float, int} and math.isfinite(sum(values)) and max(values) <= 0):
        return
    for position, value in enumerate(values):
        if not (isinstance(value, float | int) and math.isfinite(value) and value <= 0):
            raise ReplyError(f"{name}[{position}] is {value!r}; expected a finite number <= 0")


def _check_experts(request: GenerateRequest, result: GenerateResult) -> None:
    experts = result.routed_experts
    if experts is None:
        if request.params.routed_experts and result.token_ids:
            raise ReplyError("routed experts were asked for, and the reply has none")
        return
    expected = len(request.prompt_ids) + len(result.token_ids) - 1
    if experts.shape[0] != expected:
        raise ReplyError(f"routed experts cover {experts.shape[0]} tokens, expected {expected}")


def status_of(result: GenerateResult) -> Status:
    """The status that the finish reason of a checked result means."""
    assert result.finish_reason is not None
    return _STATUS.get(result.finish_reason, Status.COMPLETED)


def failed_result(request: GenerateRequest, reason: str) -> GenerateResult:
    """The result of a request that could not be served; the tokens of a prior are kept."""
    base = request.prior or GenerateResult(request.request_id, request.prompt_ids)
    return replace(
        base,
        request_id=request.request_id,
        finish_reason=FinishReason.ERROR,
        status=Status.FAILED,
        error=reason,
    )


def aborted_result(request: GenerateRequest) -> GenerateResult:
    """The result of a request that was not sent because generation is paused."""
    base = request.prior or GenerateResult(request.request_id, request.prompt_ids, logprobs=(), attempts=0)
    return replace(base, request_id=request.request_id, finish_reason=FinishReason.ABORT, status=Status.ABORTED)
