"""The K/V store: a transformers `Cache` whose batch rows are slots that samples come into and leave.

Every attention layer has one tensor of keys and one of values, `[rows, kv_heads, length, head_dim]`, which grow in
steps. The running samples occupy the first rows, so that a decode step works on slices and gathers nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from rollout_transformers.engine.step import DecodeStep, PrefillStep, Step

__all__ = ["SlotCache"]


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped
    """Keys and values of one attention layer. Zero-filled, because masked positions are still multiplied."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the layer with the store's present rows and length."""
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the step's new keys and values, and return what its attention reads."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        step = self._cache.step
        if isinstance(step, DecodeStep):
            self.keys[step.row_index, :, step.positions] = key_states[:, :, 0]
            self.values[step.row_index, :, step.positions] = value_states[:, :, 0]
            return self.keys[step.rows, :, : step.width], self.values[step.rows, :, : step.width]
        for segment, begin, end in step.spans:
            self.keys[segment.row, :, segment.start : segment.end] = key_states[0, :, begin:end]
            self.values[segment.row, :, segment.start : segment.end] = value_states[0, :, begin:end]
        return self.keys, self.values

    def resize(self) -> None:
        """Move the contents to tensors of the store's present rows and length."""
        self.keys = self._moved(self.keys)
        self.values = self._moved(self.values)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Not used by the mask function, which asks the step instead."""
        return self._cache.length, 0

    def get_seq_length(self) -> int:
        """Rows differ in length; positions are always given to the model explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Present length of a row."""
        return self._cache.length

    def _allocate(self, like: Tensor) -> Tensor:
        shape = (self._cache.rows, like.shape[1], self._cache.length, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _moved(self, old: Tensor) -> Tensor:
        new = self._allocate(old)
        rows, length = min(old.shape[0], new.shape[0]), min(old.shape[2], new.shape[2])
        new[:rows, :, :length] = old[:rows, :, :length]
        return new


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """All layers' keys and values, with operations on whole rows."""

    layers: list[SlotLayer]
    step: Step

    def __init__(self, rows: int = 1, length: int = 64) -> None:
        self.rows = rows
        self.length = length
        self.step = PrefillStep([])
        super().__init__(layer_class_to_replicate=partial(SlotLayer, self))

    def resize(self, rows: int, length: int) -> None:
        """Change the number of rows and their length, keeping the contents that fit."""
        if (rows, length) == (self.rows, self.length):
            return
        self.rows, self.length = rows, length
        for layer in self._live():
            layer.resize()

    def clear(self) -> None:
        """Drop all tensors; they come back with the next forward pass."""
        self.layers.clear()

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first `count` positions of row `source` to row `target`."""
        for layer in self._live():
            layer.keys[target, :, :count] = layer.keys[source, :, :count]
            layer.values[target, :, :count] = layer.values[source, :, :count]

    def swap(self, one: int, other: int, count: int) -> None:
        """Exchange the first `count` positions of two rows."""
        for layer in self._live():
            for tensor in (layer.keys, layer.values):
                kept = tensor[one, :, :count].clone()
                tensor[one, :, :count] = tensor[other, :, :count]
                tensor[other, :, :count] = kept

    def bytes_per_token(self) -> int:
        """Memory of one position of one row over all layers; known after the first forward pass."""
        total = 0
        for layer in self._live():
            for tensor in (layer.keys, layer.values):
                total += tensor.shape[1] * tensor.shape[3] * tensor.element_size()
        return total

    def _live(self) -> list[SlotLayer]:
        return [layer for layer in self.layers if layer.is_initialized]
