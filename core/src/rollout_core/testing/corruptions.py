"""Breaks a good reply in the ways that engines break them, whatever shape the engine's JSON has.

A corruption finds its place by value: the list that equals the sampled ids, the number that equals the last
log-probability, the word of the finish reason.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rollout_core.types import GenerateRequest, GenerateResult, Reply

__all__ = ["CORRUPTIONS", "ReplyExample"]

_OUTSIDE = 987_654_321
"""An id outside any vocabulary."""


@dataclass(frozen=True, slots=True)
class ReplyExample:
    """A reply as the engine really gave it, and what it says."""

    request: GenerateRequest
    reply: Reply
    expected: GenerateResult
    """Only ids, log-probabilities, finish reason and stop reason are compared."""


Corruption = Callable[[ReplyExample], Any]


def _edit(example: ReplyExample, edit: Callable[[Any], Any]) -> Any:
    """The body with every value replaced by what ``edit`` makes of it, innermost first."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            value = {key: kept for key, item in value.items() if (kept := walk(item)) is not _GONE}
        elif isinstance(value, list):
            value = [kept for item in value if (kept := walk(item)) is not _GONE]
        return edit(value)

    return walk(copy.deepcopy(example.reply.body))


_GONE = object()


def _without_ids(example: ReplyExample) -> Any:
    ids = list(example.expected.token_ids)
    return _edit(example, lambda value: _GONE if value == ids and isinstance(value, list) else value)


def _without_last_logprob(example: ReplyExample) -> Any:
    """Drop the last entry of every list that has one log-probability per token."""
    count, last = len(example.expected.token_ids), _last_logprob(example)

    def edit(value: Any) -> Any:
        if isinstance(value, list) and len(value) == count and _holds(value[-1], last):
            return value[:-1]
        return value

    return _edit(example, edit)


def _with_last_logprob(new: Any) -> Corruption:
    def corrupt(example: ReplyExample) -> Any:
        last = _last_logprob(example)
        return _edit(example, lambda value: new if isinstance(value, float) and value == last else value)

    return corrupt


def _with_id_outside(example: ReplyExample) -> Any:
    last = example.expected.token_ids[-1]
    return _edit(example, lambda value: _OUTSIDE if type(value) is int and value == last else value)


def _with_unknown_finish(example: ReplyExample) -> Any:
    known = {"stop", "length", "context_length", "abort"}
    return _edit(example, lambda value: "went_home" if isinstance(value, str) and value in known else value)


def _of_another_request(example: ReplyExample) -> Any:
    own = example.request.request_id
    return _edit(example, lambda value: value.replace(own, "stranger") if isinstance(value, str) else value)


def _cut_in_half(example: ReplyExample) -> Any:
    text = json.dumps(example.reply.body)
    return text[: len(text) // 2]


CORRUPTIONS: Mapping[str, Corruption] = {
    "missing_ids": _without_ids,
    "short_logprobs": _without_last_logprob,
    "missing_logprob": _with_last_logprob(None),
    "nan_logprob": _with_last_logprob(float("nan")),
    "positive_logprob": _with_last_logprob(0.25),
    "id_outside_the_vocabulary": _with_id_outside,
    "unknown_finish_reason": _with_unknown_finish,
    "another_request": _of_another_request,
    "truncated_body": _cut_in_half,
    "empty_body": lambda example: "",
    "empty_object": lambda example: {},
    "error_inside_a_200": lambda example: {"error": {"message": "out of memory", "code": 500}},
}
"""By name: what makes a broken body of a good example. The body is unchanged where the place does not exist."""


def corrupted(example: ReplyExample, name: str) -> Reply | None:
    """The example's reply with one corruption, or None when it has no such place."""
    body = CORRUPTIONS[name](example)
    same = json.dumps(body, default=str) == json.dumps(example.reply.body, default=str)
    return None if same else replace(example.reply, body=body)


def _last_logprob(example: ReplyExample) -> float | None:
    return example.expected.logprobs[-1] if example.expected.logprobs else None


def _holds(value: Any, number: float | None) -> bool:
    """Whether a value is the number, or holds it somewhere inside."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(_holds(item, number) for item in value)
    return isinstance(value, float) and value == number
