"""Which sample occupies which row of the K/V store.

Active samples occupy the first rows without gaps, those that decode before the one (at most) whose prompt is still
being computed. Rows behind them keep the K/V of samples that left, for prompts that begin the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollout_transformers.engine.experts import Experts
from rollout_transformers.engine.sample import Sample
from rollout_transformers.engine.slots import SlotCache

__all__ = ["RowTable", "shared_prefix"]

LENGTH_STEP = 64
"""Row length grows in multiples of this many positions."""

SPARE_ROWS = 8
"""Rows that are there from the start, so that samples that left can be kept for their prefixes."""


@dataclass
class Retained:
    """What a row holds of a sample that left it."""

    ids: list[int]
    experts: list[Experts]
    age: int
    """Order of leaving; the smallest is the oldest."""


class RowTable:
    """Assigns rows to samples, moves K/V when they leave, and keeps within the token budget."""

    def __init__(self, cache: SlotCache, max_rows: int, token_budget: int, reuse: bool) -> None:
        self.active: list[Sample] = []
        self.max_rows = max_rows
        self.token_budget = token_budget
        self._cache = cache
        self._reuse = reuse
        self._retained: dict[int, Retained] = {}
        self._departures = 0
        rows = max(1, min(max_rows, SPARE_ROWS, token_budget // LENGTH_STEP))
        self._first_shape = (rows, self._rounded(rows, LENGTH_STEP))
        cache.resize(*self._first_shape)

    @property
    def decoding(self) -> list[Sample]:
        """The active samples that take part in a decode step; they occupy the first rows."""
        return self.active[:-1] if self.partial is not None else self.active

    @property
    def partial(self) -> Sample | None:
        """The sample whose prompt is computed only in part."""
        last = self.active[-1] if self.active else None
        return last if last is not None and last.pending > 1 else None

    def longest(self) -> int:
        """Tokens of the longest active sample."""
        return max((len(sample.ids) for sample in self.active), default=0)

    def fits(self, rows: int, length: int) -> bool:
        """Whether the budget allows that many rows of that length."""
        return rows * length <= self.token_budget

    def reserve(self, rows: int, length: int, wish_rows: int = 0, wish_length: int = 0) -> bool:
        """Make room for at least `rows` by `length`, for the wish if the budget allows it; False if not even once."""
        if rows <= self._cache.rows and length <= self._cache.length:
            return True
        more_rows, more_length = max(wish_rows, rows), max(wish_length, length)
        wide, long = max(more_rows, self._cache.rows), max(more_length, self._cache.length)
        for shape in ((wide, long), (wide, more_length), (more_rows, more_length), (rows, more_length), (rows, length)):
            rounded = self._rounded(*shape)
            if rounded >= shape[1]:
                self._resize(shape[0], rounded)
                return True
        return False

    def prefix(self, ids: list[int]) -> tuple[int, int, int]:
        """The row that shares most with `ids`: (row, tokens to copy now, tokens to copy once it is computed)."""
        row, now, later = -1, 0, 0
        if not self._reuse:
            return row, now, later
        limit = len(ids) - 1
        holders = [(sample.row, sample.ids, sample.computed) for sample in self.active]
        holders += [(place, kept.ids, len(kept.ids)) for place, kept in self._retained.items()]
        for place, held, computed in holders:
            shared = min(shared_prefix(ids, held), limit)
            later = max(later, shared)
            if min(shared, computed) > now:
                row, now = place, min(shared, computed)
        return row, now, later

    def holds(self, row: int, count: int) -> bool:
        """Whether a row still has the first `count` tokens of what it held before rows were resized."""
        if row < len(self.active):
            return self.active[row].computed >= count
        return row in self._retained and len(self._retained[row].ids) >= count

    def admit(self, sample: Sample, source: int, count: int) -> None:
        """Give `sample` the next row, with the first `count` tokens' K/V taken from row `source`."""
        row = len(self.active)
        experts = self._experts(source, count) if count else []
        if row in self._retained and (row != source or not count):
            self._make_way(row, source)
        self._retained.pop(row, None)
        if count and source != row:
            self._cache.copy(source, row, count)
        sample.row, sample.computed, sample.experts = row, count, experts
        self.active.append(sample)

    def release(self, sample: Sample) -> None:
        """Take `sample` out and close the gap; its K/V stays behind the active rows when prefixes are reused."""
        last = len(self.active) - 1
        if self.partial is not None and sample.row < last:
            self._exchange(sample.row, last - 1)
            last_decoding = last - 1
            self._exchange(last_decoding, last)
        else:
            self._exchange(sample.row, last)
        self.active.pop()
        if self._reuse and sample.computed:
            self._departures += 1
            self._retained[last] = Retained(sample.ids[: sample.computed], sample.experts, self._departures)
        sample.row = -1

    def clear(self) -> None:
        """Free the store, with what it keeps of samples that left; no sample may be active."""
        self._retained.clear()
        self._cache.clear()
        self._cache.resize(*self._first_shape)

    def _exchange(self, one: int, other: int) -> None:
        if one == other:
            return
        first, second = self.active[one], self.active[other]
        self._cache.swap(one, other, max(first.computed, second.computed))
        self.active[one], self.active[other] = second, first
        first.row, second.row = other, one

    def _make_way(self, row: int, source: int) -> None:
        """Move what row `row` retains to a free row or over something older, if there is any."""
        kept = self._retained[row]
        free = [place for place in range(row + 1, self._cache.rows) if place not in self._retained]
        older = [place for place, other in self._retained.items() if other.age < kept.age and place != source]
        target = free[0] if free else min(older, key=lambda place: self._retained[place].age, default=None)
        if target is not None:
            self._cache.copy(row, target, len(kept.ids))
            self._retained[target] = kept

    def _experts(self, source: int, count: int) -> list[Experts]:
        owner = self._retained[source] if source in self._retained else self.active[source]
        return [np.concatenate(owner.experts)[:count]] if owner.experts else []

    def _rounded(self, rows: int, length: int) -> int:
        """`length` rounded up to a step, as far as the budget allows."""
        return min(-(-length // LENGTH_STEP) * LENGTH_STEP, self.token_budget // rows)

    def _resize(self, rows: int, length: int) -> None:
        self._retained = {
            row: Retained(kept.ids[:length], kept.experts, kept.age)
            for row, kept in self._retained.items()
            if row < rows
        }
        self._cache.resize(rows, length)


def shared_prefix(one: list[int], other: list[int]) -> int:
    """Length of the common beginning of two token lists."""
    low, high = 0, min(len(one), len(other))
    if not high or one[0] != other[0]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
