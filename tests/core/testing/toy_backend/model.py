"""A toy language model: the next token depends on the last two by a fixed random table, with honest probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

VOCAB_SIZE = 64
EOS = 0
_LETTERS = "abcdefgh"
_SPREAD = 2.0


@cache
def logits_after(before: int, last: int) -> tuple[float, ...]:
    """Logits of every token after two tokens."""
    source = random.Random(before * VOCAB_SIZE + last)
    return tuple(source.gauss(0.0, _SPREAD) for _ in range(VOCAB_SIZE))


def logits(context: Sequence[int]) -> list[float]:
    """Logits of every token after a context of one token or more."""
    return list(logits_after(context[-2] if len(context) > 1 else EOS, context[-1]))


def log_softmax(values: Sequence[float]) -> list[float]:
    """Natural log of the probabilities; -inf stays."""
    top = max(values)
    total = math.log(sum(math.exp(value - top) for value in values)) + top
    return [value - total for value in values]


def filtered(
    values: Sequence[float], params: dict[str, Any], context: Sequence[int], response: Sequence[int]
) -> list[float]:
    """Log-probabilities after penalties, temperature, top_k, top_p and min_p, in this order."""
    changed = penalized(values, params, context, response)
    if params["temperature"] == 0:
        best = changed.index(max(changed))
        return [0.0 if token == best else -math.inf for token in range(VOCAB_SIZE)]
    probs = log_softmax([value / params["temperature"] for value in changed])
    order = sorted(range(VOCAB_SIZE), key=lambda token: -probs[token])
    if params["top_k"]:
        order = order[: params["top_k"]]
    kept, mass = [], 0.0
    total = sum(math.exp(probs[token]) for token in order)
    for token in order:
        if mass >= params["top_p"] * total:
            break
        if math.exp(probs[token] - probs[order[0]]) >= params["min_p"]:
            kept.append(token)
        mass += math.exp(probs[token])
    return log_softmax([probs[token] if token in kept else -math.inf for token in range(VOCAB_SIZE)])


def penalized(
    values: Sequence[float], params: dict[str, Any], context: Sequence[int], response: Sequence[int]
) -> list[float]:
    """Logits after the three penalties."""
    changed = list(values)
    for token in {*context, *response}:
        factor = params["repetition_penalty"]
        changed[token] = changed[token] / factor if changed[token] > 0 else changed[token] * factor
    for token in set(response):
        changed[token] -= params["presence_penalty"] + params["frequency_penalty"] * response.count(token)
    return changed


def draw(probs: Sequence[float], uniform: float) -> int:
    """The token at ``uniform`` of the cumulated distribution."""
    mass = 0.0
    likely = [token for token, value in enumerate(probs) if value > -math.inf]
    for token in likely:
        mass += math.exp(probs[token])
        if uniform < mass:
            return token
    return likely[-1]


def text_of(tokens: Sequence[int], skip_special: bool = True) -> str:
    """Two letters a token; the end of sequence is special."""
    return "".join("" if t == EOS and skip_special else "<end>" if t == EOS else _piece(t) for t in tokens)


def _piece(token: int) -> str:
    return _LETTERS[token // 8] + _LETTERS[token % 8]
