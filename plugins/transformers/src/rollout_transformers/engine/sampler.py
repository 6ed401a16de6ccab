"""Draws the next token of every row and takes its log-probabilities.

A draw is an exponential race: the index with the largest weight over exponential noise wins, which happens with
exactly its probability. The race is run over blocks of tokens and then inside the winning block, so a draw needs few
random numbers and costs a fraction of `multinomial` or of a sort. Noise of 1e-6 in the logits, as it comes from a
different batch, changes a winner with a probability of about 1e-6; inverting the cumulative distribution would turn
it into a different token far more often when the distribution is flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollout_transformers.engine.logits import RowParams, adjust
from rollout_transformers.engine.noise import exponentials

__all__ = ["Draw", "NonFiniteLogits", "sample", "token_logprobs"]

BLOCK = 256
"""Tokens in one block of the two-level race."""


class NonFiniteLogits(ArithmeticError):
    """The model produced NaN or infinite logits for a row."""


@dataclass(frozen=True)
class Draw:
    """One row's next token."""

    token: int
    logprob: float
    """Under the model's own distribution: log-softmax of the raw float32 logits."""
    sampled_logprob: float
    """Under the distribution that the token was drawn from."""
    top: list[tuple[int, float]]
    """The most likely tokens with their raw log-probabilities."""


def sample(logits: Tensor, rows: Sequence[RowParams]) -> list[Draw | NonFiniteLogits]:
    """Draw one token a row from float32 `logits` [rows, vocabulary]; a broken row yields its error."""
    normalisers = torch.logsumexp(logits, dim=1)
    adjusted = adjust(logits, rows)
    tokens = _choose(adjusted, rows).unsqueeze(1)
    logprobs = logits.gather(1, tokens).squeeze(1) - normalisers
    if adjusted is logits:
        sampled = logprobs
    else:
        sampled = adjusted.gather(1, tokens).squeeze(1) - torch.logsumexp(adjusted, dim=1)
    tops = _tops(logits, normalisers, rows)
    columns = zip(tokens.flatten().tolist(), _capped(logprobs), _capped(sampled), tops, strict=True)
    finite = torch.isfinite(normalisers).tolist()
    return [
        Draw(*column) if good else NonFiniteLogits("the model's logits are not finite")
        for column, good in zip(columns, finite, strict=True)
    ]


def token_logprobs(logits: Tensor, tokens: Tensor) -> list[float]:
    """Log-probability of one given token in each row of float32 `logits` [rows, vocabulary]."""
    chosen = logits.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return _capped(chosen - torch.logsumexp(logits, dim=1))


def _capped(logprobs: Tensor) -> list[float]:
    """Rounding can lift a certain token a hair above probability one."""
    values: list[float] = logprobs.clamp(max=0.0).tolist()
    return values


def _choose(logits: Tensor, rows: Sequence[RowParams]) -> Tensor:
    greedy = [i for i, row in enumerate(rows) if row.greedy]
    drawn = [i for i, row in enumerate(rows) if not row.greedy]
    tokens = torch.zeros(len(rows), dtype=torch.long, device=logits.device)
    if greedy:
        tokens[greedy] = (logits[greedy] if drawn else logits).argmax(1)
    if drawn:
        tokens[drawn] = _race(logits[drawn] if greedy else logits, [rows[i].noise_key for i in drawn])
    return tokens


def _race(logits: Tensor, keys: Sequence[int]) -> Tensor:
    """One token a row, drawn from the softmax of its logits with the noise of its key."""
    weights = (logits - logits.amax(1, keepdim=True)).exp_()
    padding = -weights.shape[1] % BLOCK
    if padding:
        weights = F.pad(weights, (0, padding))
    blocks = weights.view(weights.shape[0], -1, BLOCK)
    count = blocks.shape[1]
    noise = torch.from_numpy(exponentials(keys, count + BLOCK)).to(logits.device)
    block = (blocks.sum(2) / noise[:, :count]).argmax(1)
    inside = blocks[torch.arange(len(keys), device=logits.device), block]
    place = (inside / noise[:, count:]).argmax(1)
    return block * BLOCK + place


def _tops(logits: Tensor, normalisers: Tensor, rows: Sequence[RowParams]) -> list[list[tuple[int, float]]]:
    most = min(max((row.top_logprobs for row in rows), default=0), logits.shape[1])
    if most == 0:
        return [[] for _ in rows]
    values, tokens = logits.topk(most, dim=1)
    logprobs = (values - normalisers.unsqueeze(1)).clamp_(max=0.0).tolist()
    pairs = [list(zip(ids, probs, strict=True)) for ids, probs in zip(tokens.tolist(), logprobs, strict=True)]
    return [row_pairs[: row.top_logprobs] for row_pairs, row in zip(pairs, rows, strict=True)]
