"""The reply to `POST /generate`, made from a finished sample."""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np

from rollout_transformers.engine.sample import Sample
from rollout_transformers.engine.stops import decode

__all__ = ["make_reply"]


def make_reply(sample: Sample) -> dict[str, Any]:
    """The JSON object for a sample that ended in any way but an internal error."""
    body, draws = sample.body, sample.draws
    return {
        "request_id": body.request_id,
        "token_ids": [draw.token for draw in draws],
        "logprobs": [draw.logprob for draw in draws] if body.return_logprob else None,
        "sampled_logprobs": _sampled_logprobs(sample),
        "top_logprobs": [draw.top for draw in draws] if body.top_logprobs else None,
        "prompt_logprobs": sample.prompt_logprobs[: len(body.prompt_ids)] if body.prompt_logprobs else None,
        "routed_experts": _experts(sample) if body.routed_experts else None,
        "text": _text(sample),
        "finish_reason": sample.finish_reason,
        "stop_reason": sample.stop_reason,
        "weight_versions": sample.versions,
        "prompt_tokens": len(body.prompt_ids),
        "cached_tokens": sample.cached_tokens,
        "timing": _timing(sample),
        "error": None,
    }


def _sampled_logprobs(sample: Sample) -> list[float] | None:
    """Given only when tokens were drawn from something else than the model's own distribution."""
    body = sample.body
    plain = body.temperature == 1.0 and not (body.top_k or body.top_p < 1.0 or body.min_p or body.min_tokens)
    penalised = (body.repetition_penalty, body.presence_penalty, body.frequency_penalty) != (1.0, 0.0, 0.0)
    if not body.return_logprob or body.temperature == 0.0 or (plain and not penalised):
        return None
    return [draw.sampled_logprob for draw in sample.draws]


def _experts(sample: Sample) -> dict[str, Any] | None:
    """Experts of every token that was an input of the forward pass: all but the last one."""
    if not sample.experts:
        return None
    chosen = np.concatenate(sample.experts)[: len(sample.ids) - 1]
    data = base64.b64encode(np.ascontiguousarray(chosen).tobytes()).decode()
    return {"shape": list(chosen.shape), "dtype": str(chosen.dtype), "data": data}


def _text(sample: Sample) -> str:
    """Text of the response, tokens of an earlier attempt included, up to the stop."""
    body, tokenizer = sample.body, sample.loaded.tokenizer
    skip = body.skip_special_tokens
    response = sample.ids[len(body.prompt_ids) :]
    if sample.match is not None:
        return sample.match.text + (sample.match.stop if body.include_stop else "")
    if isinstance(sample.stop_reason, int):
        last = decode(tokenizer, response[-1:], False) if body.include_stop else ""
        return decode(tokenizer, response[:-1], skip) + last
    return decode(tokenizer, response, skip)


def _timing(sample: Sample) -> dict[str, float]:
    end = time.monotonic()
    admitted = end if sample.admitted is None else sample.admitted
    first = end if sample.first_token is None else sample.first_token
    return {"queued_s": admitted - sample.arrived, "prefill_s": first - admitted, "decode_s": end - first}
