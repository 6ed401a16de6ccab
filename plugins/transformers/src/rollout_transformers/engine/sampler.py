"""Draws the next token of every row and takes its log-probabilities.

The draw inverts the cumulative distribution at the row's random number, in two levels (blocks, then inside one
block), which costs a fraction of `multinomial` or of a sort. Tokens are walked in the order of their ids, so noise
of 1e-6 in the logits, as it comes from a different batch, changes a draw only if the random number lies that close
to a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollout_transformers.engine.logits import RowParams, adjust

__all__ = ["Draw", "NonFiniteLogits", "sample", "token_logprobs"]

BLOCK = 256
"""Tokens in one block of the two-level cumulative sum."""


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
        tokens[greedy] = (logits if not drawn else logits[greedy]).argmax(1)
    if drawn:
        uniforms = torch.tensor([rows[i].uniform for i in drawn], dtype=torch.float64, device=logits.device)
        tokens[drawn] = _invert(logits if not greedy else logits[drawn], uniforms)
    return tokens


def _invert(logits: Tensor, uniforms: Tensor) -> Tensor:
    """The token at which the cumulative probability of each row passes its uniform number."""
    weights = (logits - logits.amax(1, keepdim=True)).exp_()
    padding = -weights.shape[1] % BLOCK
    if padding:
        weights = F.pad(weights, (0, padding))
    blocks = weights.view(weights.shape[0], -1, BLOCK)
    block, rest = _locate(blocks.sum(2), uniforms.unsqueeze(1), relative=True)
    inside = blocks[torch.arange(blocks.shape[0], device=logits.device), block.squeeze(1)]
    place, _ = _locate(inside, rest, relative=False)
    return (block * BLOCK + place).squeeze(1).clamp_(max=logits.shape[1] - 1)


def _locate(weights: Tensor, targets: Tensor, relative: bool) -> tuple[Tensor, Tensor]:
    """First index whose cumulative weight exceeds the target, and what is left of the target before it."""
    reached = weights.double().cumsum(1)
    total = reached[:, -1:]
    if relative:
        targets = targets * total
    # Strictly below the total, so that the found index has weight of its own.
    targets = torch.minimum(targets, torch.nextafter(total, torch.zeros_like(total))).clamp_(min=0.0)
    index = torch.searchsorted(reached, targets, right=True).clamp_(max=weights.shape[1] - 1)
    before = reached.gather(1, index) - weights.gather(1, index).double()
    return index, targets - before


def _tops(logits: Tensor, normalisers: Tensor, rows: Sequence[RowParams]) -> list[list[tuple[int, float]]]:
    most = min(max((row.top_logprobs for row in rows), default=0), logits.shape[1])
    if most == 0:
        return [[] for _ in rows]
    values, tokens = logits.topk(most, dim=1)
    logprobs = (values - normalisers.unsqueeze(1)).clamp_(max=0.0).tolist()
    pairs = [list(zip(ids, probs, strict=True)) for ids, probs in zip(tokens.tolist(), logprobs, strict=True)]
    return [row_pairs[: row.top_logprobs] for row_pairs, row in zip(pairs, rows, strict=True)]
