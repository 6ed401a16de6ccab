"""The waiting queue, and which samples of it get a row and a share of the next prefill.

Admission is in order of arrival, bounded by rows, by the K/V budget and by the tokens of one forward pass. A sample
that begins like another one whose prompt is being computed waits for it and copies its K/V.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

from rollout_transformers.engine.metrics import Metrics
from rollout_transformers.engine.rows import RowTable
from rollout_transformers.engine.sample import Sample

__all__ = ["Admission", "Chunk"]

WORTH_WAITING = 16
"""A sample waits for another's prefill when that saves this many tokens and half of its own prompt."""
HEADROOM = 64
"""Tokens of growth that must fit in the budget for a sample to be admitted beside others."""
GROWTH = 256
"""Tokens of growth for which rows are lengthened ahead of need."""
FULL_LOGITS_CHUNK = 512
"""Largest chunk of a prompt whose logits are wanted at every position."""

Chunk = tuple[Sample, int]
"""A sample and how many of its pending tokens the prefill computes."""


class Admission:
    """Moves samples from the queue into rows."""

    def __init__(self, rows: RowTable, metrics: Metrics, max_prefill_tokens: int) -> None:
        self.waiting: deque[Sample] = deque()
        self.admits_new = True
        """Off while the engine is paused: then only samples that were running before an eviction are admitted."""
        self._rows = rows
        self._metrics = metrics
        self._max_prefill_tokens = max_prefill_tokens

    def admissible(self) -> Iterator[Sample]:
        """The waiting samples that may get a row now."""
        return (item for item in self.waiting if self.admits_new or item.admitted is not None)

    def next_prefill(self) -> tuple[list[Chunk], bool]:
        """Admit what fits; the chunks to prefill, and whether samples were held back that can copy from them."""
        chunks: list[Chunk] = []
        held_back = False
        budget = self._max_prefill_tokens
        if (partial := self._rows.partial) is not None:
            budget -= self._add_chunk(chunks, partial, budget)
        for item in list(islice(self.admissible(), 2 * self._rows.max_rows)):
            if budget <= 0 or _is_cut(chunks) or not self._has_room(item):
                break
            source, count, later = self._rows.prefix(item.ids) if item.reuses_prefix else (-1, 0, 0)
            if later - count >= max(WORTH_WAITING, len(item.ids) // 2):
                held_back = True
                continue
            if chunks and len(item.ids) - count > budget:
                break
            self._admit(item, source, count)
            budget -= self._add_chunk(chunks, item, budget)
        return chunks, held_back

    def send_back(self, item: Sample) -> None:
        """Put an evicted sample at the head of the queue; its K/V is computed again when it returns."""
        item.restart()
        self.waiting.appendleft(item)
        self._metrics.evicted += 1

    def wish_length(self, length: int, remaining: int) -> int:
        """Row length that leaves a sample of `length` tokens some room to grow."""
        return length + min(max(remaining, 0), GROWTH)

    def _add_chunk(self, chunks: list[Chunk], item: Sample, budget: int) -> int:
        """Plan as much of the sample's prompt as allowed. A single pending token is left to the decode step."""
        if item.pending == 1 and item.finish_reason is None:
            return 0
        limit = budget if item.reuses_prefix else min(budget, FULL_LOGITS_CHUNK)
        count = min(item.pending, limit)
        chunks.append((item, count))
        return count

    def _has_room(self, item: Sample) -> bool:
        active = self._rows.active
        if not active:
            return True
        length = max(self._rows.longest(), len(item.ids)) + 1 + min(item.remaining, HEADROOM)
        return len(active) < self._rows.max_rows and self._rows.fits(len(active) + 1, length)

    def _admit(self, item: Sample, source: int, count: int) -> None:
        self.waiting.remove(item)
        rows = len(self._rows.active) + 1
        length = max(self._rows.longest(), len(item.ids))
        wish = min(self._rows.max_rows, rows + len(self.waiting))
        self._rows.reserve(rows, length, wish, self.wish_length(length, item.remaining))
        if count and not self._rows.holds(source, count):
            count = 0
        self._rows.admit(item, source, count)
        if item.admitted is None:
            item.admitted = time.monotonic()
            item.cached_tokens = min(count, len(item.body.prompt_ids))
            self._metrics.prompt_tokens += len(item.body.prompt_ids)
            self._metrics.cached_tokens += item.cached_tokens


def _is_cut(chunks: list[Chunk]) -> bool:
    """Whether the last sample's prompt does not fit into this prefill as a whole."""
    return bool(chunks) and chunks[-1][1] < chunks[-1][0].pending
