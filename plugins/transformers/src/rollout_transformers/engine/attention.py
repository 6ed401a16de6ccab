"""Attention over the K/V store, plugged into an unmodified model through transformers' public interfaces.

`AttentionMaskInterface` gives each step's masks as a `StepMask` (one per kind of layer: full, sliding window, ...),
and `AttentionInterface` computes the attention from it. Grouped-query heads are never repeated in memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from rollout_transformers.engine.step import CURRENT_STEP, DecodeStep, MaskFunction, PrefillStep, Segment, Step

__all__ = ["ATTENTION_NAME", "StepMask", "register_attention"]

ATTENTION_NAME = "rollout_slots"
"""Name under which the attention is registered; set as the model's attention implementation."""


class StepMask:
    """The mask of one kind of layer in one step, shared by all layers of that kind."""

    def __init__(
        self, step: Step, allowed: MaskFunction, window: int | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.step = step
        self._allowed = allowed
        self._window = window
        self._dtype = dtype
        self._device = device

    @cached_property
    def decode_bias(self) -> Tensor:
        """Additive bias of a decode step, [rows, 1, 1, width]."""
        assert isinstance(self.step, DecodeStep)
        return self.step.bias(self._allowed, self._dtype)

    @cached_property
    def prefill_masks(self) -> list[Tensor | None]:
        """One boolean mask a segment; None where plain causal attention from position 0 is the same."""
        step = self.step
        assert isinstance(step, PrefillStep)
        return [None if self._is_causal(segment) else self._mask(segment) for segment in step.segments]

    def _is_causal(self, segment: Segment) -> bool:
        if segment.start > 0:
            return False
        return self._allowed is causal_mask_function or (self._window is not None and segment.end <= self._window)

    def _mask(self, segment: Segment) -> Tensor:
        return segment.mask(self._allowed, self._device)


def step_mask(*args: Any, **kwargs: Any) -> StepMask:
    """The mask function that transformers calls once a step for each kind of layer."""
    device = torch.device(kwargs["device"])
    return StepMask(CURRENT_STEP.get(), kwargs["mask_function"], kwargs.get("local_size"), kwargs["dtype"], device)


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls in every layer.

    In a decode step `query` is [rows, heads, 1, dim] and `key`/`value` are the rows' slices of the store. In a
    prefill `query` is [1, heads, tokens, dim] and `key`/`value` are the whole store of the layer.
    """
    if not isinstance(attention_mask, StepMask):
        raise TypeError(f"{type(module).__name__} makes its own attention mask; this model is not supported")
    if kwargs.get("s_aux") is not None:
        raise TypeError(f"{type(module).__name__} uses attention sinks; this model is not supported")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(attention_mask.step, DecodeStep):
        output = _attend(query, key, value, attention_mask.decode_bias, scale, softcap)
        return output.transpose(1, 2), None
    return _prefill(query, key, value, attention_mask, scale, softcap), None


def _prefill(
    query: Tensor, keys: Tensor, values: Tensor, mask: StepMask, scale: float, softcap: float | None
) -> Tensor:
    step = mask.step
    assert isinstance(step, PrefillStep)
    output = query.new_empty((1, query.shape[2], query.shape[1], values.shape[-1]))
    for (segment, begin, end), allowed in zip(step.spans, mask.prefill_masks, strict=True):
        part = query[:, :, begin:end]
        key = keys[segment.row : segment.row + 1, :, : segment.end]
        value = values[segment.row : segment.row + 1, :, : segment.end]
        output[:, begin:end] = _attend(part, key, value, allowed, scale, softcap).transpose(1, 2)
    return output


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float | None
) -> Tensor:
    """Grouped-query attention of [B, H, Q, d] over [B, Hkv, T, d]; no mask means causal from position 0."""
    if softcap is None:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
    return _softcapped(query, key, value, mask, scale, softcap)


def _softcapped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float) -> Tensor:
    batch, heads, count, dim = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * count, dim)
    scores = torch.matmul(folded, key.transpose(2, 3)).float().mul_(scale)
    scores = scores.div_(softcap).tanh_().mul_(softcap).view(batch, heads, count, -1)
    if mask is None:
        mask = torch.ones((count, count), dtype=torch.bool, device=query.device).tril_()
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1).to(value.dtype).view(batch, key.shape[1], groups * count, -1)
    return torch.matmul(weights, value).view(batch, heads, count, -1)


def register_attention() -> None:
    """Make the attention known to transformers under `ATTENTION_NAME`; harmless when done twice."""
    AttentionInterface.register(ATTENTION_NAME, slot_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, step_mask)
