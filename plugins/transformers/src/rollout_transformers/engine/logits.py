"""What happens to a row of logits before the draw: penalties, banned tokens, temperature, top-k, top-p, min-p.

In that order. Rows that ask for nothing are left alone, and the vocabulary is fully sorted only for rows whose
top-p mass is spread over more than `PARTIAL_SORT` tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Penalties", "RowParams", "adjust"]

PARTIAL_SORT = 1024
"""How many most likely tokens are looked at before a row is sorted in full for top-p."""


class Penalties:
    """Repetition, presence and frequency penalties of one sample, kept up to date token by token."""

    def __init__(
        self, vocab_size: int, prompt: Sequence[int], repetition: float, presence: float, frequency: float
    ) -> None:
        self._repetition, self._presence, self._frequency = repetition, presence, frequency
        self._seen = torch.zeros(vocab_size, dtype=torch.bool)
        self._seen[torch.tensor(prompt, dtype=torch.long)] = True
        self._counts = torch.zeros(vocab_size)

    def add(self, token: int) -> None:
        """Count one more response token."""
        self._seen[token] = True
        self._counts[token] += 1

    def apply(self, row: Tensor) -> None:
        """Penalise one row of logits in place."""
        if self._repetition != 1.0:
            scaled = torch.where(row > 0, row / self._repetition, row * self._repetition)
            row.copy_(torch.where(self._seen.to(row.device), scaled, row))
        counts = self._counts.to(row.device)
        row.sub_(counts * self._frequency + (counts > 0) * self._presence)


@dataclass(frozen=True)
class RowParams:
    """How one sample wants its next token drawn."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalties: Penalties | None = None
    banned: tuple[int, ...] = ()
    """Tokens that may not come now, such as end-of-sequence before `min_tokens`."""
    noise_key: int = 0
    """Key of the random stream that decides the draw."""
    top_logprobs: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0.0

    @property
    def filtered(self) -> bool:
        """Whether some tokens are cut off by probability."""
        return not self.greedy and (self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)

    @property
    def adjusted(self) -> bool:
        """Whether the draw is from something else than the model's own distribution."""
        reshaped = self.filtered or self.temperature not in (0.0, 1.0)
        return reshaped or self.penalties is not None or bool(self.banned)


def adjust(logits: Tensor, rows: Sequence[RowParams]) -> Tensor:
    """The logits that tokens are drawn from; `logits` itself ([rows, vocabulary], float32) when no row asks."""
    if not any(row.adjusted for row in rows):
        return logits
    result = logits.clone()
    for index, row in enumerate(rows):
        if row.penalties is not None:
            row.penalties.apply(result[index])
        if row.banned:
            result[index, list(row.banned)] = float("-inf")
    temperatures = [1.0 if row.greedy else row.temperature for row in rows]
    if any(temperature != 1.0 for temperature in temperatures):
        result /= torch.tensor(temperatures, device=result.device).unsqueeze(1)
    _filter(result, rows)
    return result


def _filter(logits: Tensor, rows: Sequence[RowParams]) -> None:
    """Set the tokens outside each row's top-k, top-p and min-p to minus infinity, in place."""
    ranked = [i for i, row in enumerate(rows) if row.filtered and (row.top_k > 0 or row.top_p < 1.0)]
    if ranked:
        _filter_ranked(logits, ranked, rows)
    for index, row in enumerate(rows):
        if row.filtered and row.min_p > 0.0:
            floor = logits[index].amax() + math.log(row.min_p)
            logits[index].masked_fill_(logits[index] < floor, float("-inf"))


def _filter_ranked(logits: Tensor, indices: list[int], rows: Sequence[RowParams]) -> None:
    vocabulary = logits.shape[1]
    params = [rows[i] for i in indices]
    count = min(vocabulary, max(row.top_k if row.top_k > 0 else PARTIAL_SORT for row in params))
    chosen = logits[indices]
    kept = _keep(chosen, params, count)
    for place, covered in enumerate(kept.covered):
        if covered:
            logits[indices[place]] = _scatter(vocabulary, kept.values[place], kept.tokens[place], kept.keep[place])
        else:
            full = _keep(chosen[place : place + 1], params[place : place + 1], vocabulary)
            logits[indices[place]] = _scatter(vocabulary, full.values[0], full.tokens[0], full.keep[0])


@dataclass(frozen=True)
class _Kept:
    """The `count` most likely tokens of some rows, and which of them survive top-k and top-p."""

    values: Tensor
    tokens: Tensor
    keep: Tensor
    covered: list[bool]
    """Whether the tokens looked at decide the row."""


def _keep(logits: Tensor, params: Sequence[RowParams], count: int) -> _Kept:
    device = logits.device
    values, tokens = logits.topk(count, dim=1)
    limits = torch.tensor([row.top_k or logits.shape[1] for row in params], device=device).unsqueeze(1)
    masses = torch.tensor([row.top_p for row in params], device=device, dtype=torch.float64).unsqueeze(1)
    inside = torch.arange(count, device=device).unsqueeze(0) < limits
    total = torch.where(
        limits <= count,
        torch.logsumexp(values.masked_fill(~inside, float("-inf")), dim=1, keepdim=True),
        torch.logsumexp(logits, dim=1, keepdim=True),
    )
    mass = (values - total).double().exp().masked_fill(~inside, 0.0)
    reached = mass.cumsum(1)
    keep = inside & ((reached - mass < masses) | (masses >= 1.0))
    keep[:, 0] = True
    covered = (limits <= count) | (reached[:, -1:] >= masses) | (count == logits.shape[1])
    return _Kept(values, tokens, keep, [bool(flag) for flag in covered.flatten().tolist()])


def _scatter(vocabulary: int, values: Tensor, tokens: Tensor, keep: Tensor) -> Tensor:
    row = values.new_full((vocabulary,), float("-inf"))
    row[tokens[keep]] = values[keep]
    return row
