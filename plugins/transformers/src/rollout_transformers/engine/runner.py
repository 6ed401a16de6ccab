"""Runs the model's forward passes on the K/V store and returns float32 logits.

`check` compares the engine's own attention with the model's at start-up, so that an architecture whose attention
needs something the engine does not do is refused instead of served with wrong numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rollout_transformers.engine.attention import ATTENTION_NAME
from rollout_transformers.engine.experts import ExpertRecorder, Experts
from rollout_transformers.engine.model import LoadedModel
from rollout_transformers.engine.settings import StartupError
from rollout_transformers.engine.slots import SlotCache
from rollout_transformers.engine.step import CURRENT_STEP, DecodeStep, PrefillStep, Segment, Step

__all__ = ["ModelRunner", "StepOutput"]

WIDTH_STEP = 16
"""Decode reads K/V up to the longest row rounded up to this many positions."""

CHECK_TOKENS = 24
"""Length of the sample that the start-up check runs."""


@dataclass(frozen=True)
class StepOutput:
    """What a forward pass produced."""

    logits: Tensor
    """Float32 [kept tokens, vocabulary]."""
    experts: Experts | None
    """Experts of all tokens of the pass, when they are recorded."""


class ModelRunner:
    """One model with its K/V store."""

    def __init__(self, loaded: LoadedModel, record_experts: bool = False) -> None:
        self.loaded = loaded
        self.cache = SlotCache()
        self._recorder = None
        if record_experts:
            try:
                self._recorder = ExpertRecorder(loaded.model)
            except ValueError as err:
                raise StartupError(f"return_routed_experts: {err}") from err

    @torch.inference_mode()
    def decode(self, first_row: int, tokens: list[int], positions: list[int]) -> StepOutput:
        """Logits after one new token in each of the rows from `first_row` on."""
        device = self.loaded.device
        places = torch.tensor(positions, device=device)
        width = -(-(max(positions) + 1) // WIDTH_STEP) * WIDTH_STEP
        step = DecodeStep(first_row, places, min(width, self.cache.length))
        ids = torch.tensor(tokens, device=device).unsqueeze(1)
        return self._forward(step, ids, places.unsqueeze(1), 0)

    @torch.inference_mode()
    def prefill(self, segments: list[Segment], keep: list[int]) -> StepOutput:
        """Logits at the packed places `keep` after writing the segments' K/V into their rows."""
        device = self.loaded.device
        ids = torch.tensor([token for segment in segments for token in segment.ids], device=device)
        places = torch.cat([torch.arange(segment.start, segment.end, device=device) for segment in segments])
        kept = torch.tensor(keep, device=device, dtype=torch.long)
        return self._forward(PrefillStep(segments), ids.unsqueeze(0), places.unsqueeze(0), kept)

    def _forward(self, step: Step, ids: Tensor, positions: Tensor, keep: int | Tensor) -> StepOutput:
        loaded = self.loaded
        self.cache.step = step
        token = CURRENT_STEP.set(step)
        if self._recorder is not None:
            self._recorder.reset()
        try:
            output = loaded.model(
                input_ids=ids,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=keep,
                **{loaded.cache_argument: self.cache},
            )
        finally:
            CURRENT_STEP.reset(token)
        logits = output.logits.reshape(-1, output.logits.shape[-1]).float()
        return StepOutput(logits, None if self._recorder is None else self._recorder.take())

    @torch.inference_mode()
    def check(self) -> None:
        """Raise `StartupError` unless prefill and decode agree with the model's own attention."""
        ids = [(7 * i + 3) % self.loaded.vocab_size for i in range(CHECK_TOKENS)]
        try:
            expected = self._own_logits(ids)
            found = self._served_logits(ids)
        except Exception as err:
            raise StartupError(f"{type(self.loaded.model).__name__} cannot be served: {err}") from err
        difference = (torch.log_softmax(found, -1) - torch.log_softmax(expected, -1)).abs().max().item()
        if not difference < self._tolerance():
            raise StartupError(
                f"{type(self.loaded.model).__name__} cannot be served: log-probabilities differ by {difference:.3g} "
                "from the model's own attention"
            )

    def _tolerance(self) -> float:
        return 1e-3 if self.loaded.dtype == torch.float32 else 1.0

    def _own_logits(self, ids: list[int]) -> Tensor:
        model: Any = self.loaded.model
        model.set_attn_implementation("eager")
        try:
            output = model(input_ids=torch.tensor([ids], device=self.loaded.device), use_cache=False)
        finally:
            model.set_attn_implementation(ATTENTION_NAME)
        if self._recorder is not None:
            self._recorder.reset()
        logits: Tensor = output.logits[0].float()
        return logits

    def _served_logits(self, ids: list[int]) -> Tensor:
        half = len(ids) // 2
        first = self.prefill([Segment(0, 0, ids[:half])], list(range(half))).logits
        rest = [self.decode(0, [ids[place]], [place]).logits for place in range(half, len(ids) - 2)]
        last = self.prefill([Segment(0, len(ids) - 2, ids[-2:])], [0, 1]).logits
        return torch.cat([first, *rest, last])
