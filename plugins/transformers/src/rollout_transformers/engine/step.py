"""What one forward pass computes: which rows of the K/V store it reads and writes, and its attention masks.

The runner sets the current step around the forward pass. The K/V store asks it where to write; the mask and
attention functions, which transformers calls in the middle of the unmodified model, ask it what may attend to what.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["CURRENT_STEP", "DecodeStep", "MaskFunction", "PrefillStep", "Segment", "Step"]

MaskFunction = Callable[..., Tensor]
"""`(batch, head, query position, key position) -> may attend`, vectorised over broadcastable index tensors."""


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of one sample in a packed prefill."""

    row: int
    """Row of the K/V store that holds the sample."""
    start: int
    """Position of the first token in the sample; the K/V before it is in the row already."""
    ids: list[int]
    """The tokens."""

    @property
    def end(self) -> int:
        """Number of tokens of the sample that the row holds after the pass."""
        return self.start + len(self.ids)

    def mask(self, allowed: MaskFunction, device: torch.device) -> Tensor:
        """Boolean attention mask, shape [1, 1, tokens, tokens seen so far]."""
        queries = torch.arange(self.start, self.end, device=device).view(1, 1, -1, 1)
        keys = torch.arange(self.end, device=device).view(1, 1, 1, -1)
        zero = torch.zeros((1, 1, 1, 1), dtype=torch.long, device=device)
        return allowed(zero, zero, queries, keys)


@dataclass(frozen=True)
class DecodeStep:
    """One new token for each of the consecutive rows `first_row .. first_row + len(positions)`."""

    first_row: int
    positions: Tensor
    """Position of each row's new token, shape [rows]."""
    width: int
    """How many key positions the attention reads; more than the largest position."""

    @property
    def rows(self) -> slice:
        """The rows of the store that take part."""
        return slice(self.first_row, self.first_row + self.positions.shape[0])

    @cached_property
    def row_index(self) -> Tensor:
        """Row numbers as an index tensor, shape [rows]."""
        return torch.arange(self.rows.start, self.rows.stop, device=self.positions.device)

    def bias(self, allowed: MaskFunction, dtype: torch.dtype) -> Tensor:
        """Additive attention bias of shape [rows, 1, 1, width]."""
        device = self.positions.device
        keys = torch.arange(self.width, device=device).view(1, 1, 1, -1)
        batch = torch.arange(self.positions.shape[0], device=device).view(-1, 1, 1, 1)
        mask = allowed(batch, torch.zeros_like(batch), self.positions.view(-1, 1, 1, 1), keys)
        bias = torch.zeros(mask.shape, dtype=dtype, device=device)
        return bias.masked_fill_(~mask, torch.finfo(dtype).min)


@dataclass(frozen=True)
class PrefillStep:
    """Segments of several samples packed one after another into a batch of one."""

    segments: list[Segment]

    @cached_property
    def spans(self) -> list[tuple[Segment, int, int]]:
        """Each segment with its first and last-plus-one place in the pack."""
        spans, place = [], 0
        for segment in self.segments:
            spans.append((segment, place, place + len(segment.ids)))
            place += len(segment.ids)
        return spans


Step = DecodeStep | PrefillStep

CURRENT_STEP: ContextVar[Step] = ContextVar("rollout_transformers_step")
"""The step of the forward pass that runs in this thread."""
