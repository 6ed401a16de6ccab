"""A sample as it stands in the output: one JSON object a line, or one Parquet row, with these fields.

=====================  ==============================================================================================
``sample_id``          ``<prompt_index>-<sample_index>``; unique, and the same after a resume
``prompt_index``       position of the prompt in its file, from 0
``sample_index``       which of the n samples of the prompt, from 0
``status``             ``completed``, ``failed``, ``aborted`` or ``expired``
``finish_reason``      ``stop``, ``length``, ``context_length``, ``abort``, ``tool_calls`` or ``error``
``stop_reason``        the stop token id or stop string
``error``              why it failed
``prompt``             as it stood in the prompt file
``prompt_ids``         token ids that were sent
``prompt_tokens``      how many
``token_ids``          token ids of the response, the stop token included
``response_tokens``    how many
``text``               the response
``logprobs``           natural log, one per response token, of the distribution named by ``logprob_kind``
``logprob_kind``       ``model`` (its own distribution) or ``sampled`` (after temperature, filters and penalties)
``sampled_logprobs``   of the distribution that was drawn from, where the engine reports both
``top_logprobs``       ``{"token_ids": [[...]], "logprobs": [[...]]}``, one inner list per response token
``prompt_logprobs``    one per prompt token, the first null
``weight_versions``    version of the weights, one per response token
``lag``                how many versions the oldest token was behind what was served when the sample came back
``cache_policy``       ``flush`` or ``keep``: what the last weight update did with older K/V; null before the first one
``routed_experts``     ``{"shape", "dtype", "data"}``; data is base64 of little-endian C order
``reward``             number, or null when nothing scored the sample
``reward_error``       why there is no reward
``engine``             which engine answered
``attempts``           how many times it was sent
``cached_tokens``      prompt tokens that the engine did not compute again
``timing``             ``queued_s``, ``prefill_s``, ``decode_s``, ``total_s`` (seconds), ``started_at`` (Unix time)
``fields``             the other fields of the prompt's line
=====================  ==============================================================================================

In Parquet ``prompt`` (unless it is a text), ``fields`` and ``stop_reason`` are JSON texts, since a column has one type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from rollout_core.types import RoutedExperts, Sample, Status, TokenLogprob

__all__ = ["Outcome", "encode_record", "record_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is counted of a sample."""

    prompt_index: int
    sample_index: int
    status: str
    finish_reason: str | None
    prompt_tokens: int
    response_tokens: int
    reward: float | None
    reward_error: str | None
    error: str | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Outcome:
        """Read it off a record; KeyError when this is no record."""
        return cls(**{name: record[name] for name in cls.__slots__})

    @property
    def kept(self) -> bool:
        """Whether a resume leaves the sample as it is; failed and aborted ones are drawn again."""
        return self.status == Status.COMPLETED


def record_of(sample: Sample, reward_error: str | None = None) -> dict[str, Any]:
    """The record of a sample, ready for JSON."""
    result = sample.result
    return {
        "sample_id": sample.sample_id,
        "prompt_index": sample.prompt_index,
        "sample_index": sample.sample_index,
        "status": result.status,
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "error": result.error,
        "prompt": sample.prompt,
        "prompt_ids": result.prompt_ids,
        "prompt_tokens": len(result.prompt_ids),
        "token_ids": result.token_ids,
        "response_tokens": len(result.token_ids),
        "text": result.text,
        "logprobs": result.logprobs,
        "logprob_kind": result.logprob_kind if result.logprobs is not None else None,
        "sampled_logprobs": result.sampled_logprobs,
        "top_logprobs": _top(result.top_logprobs),
        "prompt_logprobs": result.prompt_logprobs,
        "weight_versions": result.weight_versions,
        "lag": result.lag,
        "cache_policy": result.cache_policy,
        "routed_experts": _experts(result.routed_experts),
        "reward": sample.reward,
        "reward_error": reward_error,
        "engine": result.engine,
        "attempts": result.attempts,
        "cached_tokens": result.cached_tokens,
        "timing": asdict(result.timing),
        "fields": dict(sample.fields),
    }


def encode_record(record: Mapping[str, Any]) -> bytes:
    """One line of JSON, with its end; values that JSON lacks (of Parquet fields) become text."""
    try:
        return orjson.dumps(record, default=_jsonable, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # orjson refuses half a surrogate pair and integers over 64 bits; a sample must not be lost for that.
        text = json.dumps(record, default=_jsonable, ensure_ascii=False)
        return text.encode("utf-8", "replace") + b"\n"


def _jsonable(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _top(positions: tuple[tuple[TokenLogprob, ...], ...] | None) -> dict[str, Any] | None:
    if positions is None:
        return None
    return {
        "token_ids": [[entry.token_id for entry in position] for position in positions],
        "logprobs": [[entry.logprob for entry in position] for position in positions],
    }


def _experts(experts: RoutedExperts | None) -> dict[str, Any] | None:
    if experts is None:
        return None
    return {"shape": experts.shape, "dtype": experts.dtype, "data": base64.b64encode(experts.data).decode()}
