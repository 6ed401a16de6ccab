"""Runs the steps: prefills what was admitted, decodes one token for all active samples, ends those that are done.

Runs in the engine's thread only. An iteration prefills what fits and then decodes one token for every active
sample. A failing forward pass is repeated sample by sample, so that only the culprit fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from rollout_transformers.engine.admission import Admission, Chunk
from rollout_transformers.engine.experts import Experts
from rollout_transformers.engine.metrics import Metrics
from rollout_transformers.engine.reply import make_reply
from rollout_transformers.engine.rows import RowTable
from rollout_transformers.engine.runner import ModelRunner, StepOutput
from rollout_transformers.engine.sample import Sample
from rollout_transformers.engine.sampler import Draw, NonFiniteLogits, sample, token_logprobs
from rollout_transformers.engine.step import Segment

__all__ = ["Scheduler"]

logger = logging.getLogger(__name__)

Work = TypeVar("Work", Sample, Chunk)


class Scheduler:
    """The loop body over the queue and the active rows."""

    def __init__(self, runner: ModelRunner, rows: RowTable, max_prefill_tokens: int, weight_version: int) -> None:
        self.rows = rows
        self.weight_version = weight_version
        """Version of the weights that the next token comes from."""
        self.metrics = Metrics()
        self.admission = Admission(rows, self.metrics, max_prefill_tokens)
        self._runner = runner

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self.rows.active) or any(self.admission.admissible())

    def submit(self, item: Sample) -> None:
        """Queue a sample; one that is complete already is answered at once."""
        if item.finish_reason is not None and not (item.body.prompt_logprobs or item.body.routed_experts):
            self._deliver(item)
        else:
            self.admission.waiting.append(item)

    def step(self) -> None:
        """One iteration: prefill what fits, then one decode step."""
        again = True
        while again:
            chunks, held_back = self.admission.next_prefill()
            if chunks:
                self._prefill(chunks)
            again = held_back and bool(chunks)
        self._decode_once()

    def abort(self, chosen: Callable[[Sample], bool]) -> int:
        """End the chosen samples with the tokens they have; how many there were."""
        victims = [item for item in (*self.rows.active, *self.admission.waiting) if chosen(item)]
        for item in victims:
            item.finish_reason = "abort"
            self._finish(item)
        return len(victims)

    def fail_all(self, error: BaseException) -> None:
        """Fail everything that is in flight; the engine is going down."""
        for item in (*self.rows.active, *self.admission.waiting):
            if not item.future.done():
                item.future.set_exception(error)
        self.admission.waiting.clear()

    def recompute_all(self) -> None:
        """Drop all K/V: active samples go back to the queue, in their order, and compute theirs again."""
        for item in sorted(self.rows.active, key=lambda item: item.number, reverse=True):
            self.rows.release(item)
            self.admission.send_back(item)
        self.rows.clear()

    # Steps

    def _prefill(self, chunks: list[Chunk]) -> None:
        done, broken = _guarded(chunks, self._forward_prefill)
        draws = [self._absorb_prefill(part, output) for part, output in done]
        self._settle([(item, err) for (item, _), err in broken], draws)

    def _forward_prefill(self, chunks: Sequence[Chunk]) -> StepOutput:
        segments: list[Segment] = []
        keep: list[int] = []
        place = 0
        for item, count in chunks:
            segments.append(Segment(item.row, item.computed, item.ids[item.computed : item.computed + count]))
            keep.extend(range(place if item.body.prompt_logprobs else place + count - 1, place + count))
            place += count
        return self._runner.prefill(segments, keep)

    def _absorb_prefill(self, chunks: Sequence[Chunk], output: StepOutput) -> tuple[list[Sample], Tensor]:
        """Book what the pass computed; the samples that can draw now, with their logits."""
        ready, last_rows, kept, place = [], [], 0, 0
        for item, count in chunks:
            if item.body.prompt_logprobs:
                self._score_prompt(item, count, output.logits[kept : kept + count])
            kept += count if item.body.prompt_logprobs else 1
            self._advance(item, count, output.experts, place)
            place += count
            if not item.pending:
                ready.append(item)
                last_rows.append(kept - 1)
        self.metrics.prefilled_tokens += place
        return ready, output.logits[last_rows]

    def _score_prompt(self, item: Sample, count: int, logits: Tensor) -> None:
        following = item.ids[item.computed + 1 : item.computed + count + 1]
        if following:
            tokens = torch.tensor(following, device=logits.device)
            item.prompt_logprobs.extend(token_logprobs(logits[: len(following)], tokens))

    def _decode_once(self) -> None:
        self._make_room()
        decoding = list(self.rows.decoding)
        if not decoding:
            return
        done, broken = _guarded(decoding, self._forward_decode)
        for part, output in done:
            for index, item in enumerate(part):
                self._advance(item, 1, output.experts, index)
        self._settle(broken, [(part, output.logits) for part, output in done])

    def _settle(
        self, broken: Sequence[tuple[Sample, Exception]], draws: Sequence[tuple[Sequence[Sample], Tensor]]
    ) -> None:
        """Fail and draw once all samples know what was computed for them, because rows move when one leaves."""
        self.metrics.steps += len(draws)
        for item, err in broken:
            self._fail(item, err)
        for items, logits in draws:
            self._draw(items, logits)

    def _forward_decode(self, items: Sequence[Sample]) -> StepOutput:
        tokens = [item.ids[item.computed] for item in items]
        return self._runner.decode(items[0].row, tokens, [item.computed for item in items])

    def _make_room(self) -> None:
        """Lengthen the rows for the next token, sending the youngest sample back to the queue while they do not fit."""
        active = self.rows.active
        while active:
            length = self.rows.longest()
            growth = max(item.remaining for item in active)
            if self.rows.reserve(len(active), length, wish_length=self.admission.wish_length(length, growth)):
                return
            youngest = max(active, key=lambda item: item.number)
            self.rows.release(youngest)
            self.admission.send_back(youngest)

    def _advance(self, item: Sample, count: int, experts: Experts | None, place: int) -> None:
        item.computed += count
        if experts is not None:
            item.experts.append(experts[place : place + count])

    # Tokens

    def _draw(self, items: Sequence[Sample], logits: Tensor) -> None:
        """Draw and append one token for each sample; finish those that end with it."""
        open_items = [(index, item) for index, item in enumerate(items) if item.finish_reason is None]
        if len(open_items) < len(items):
            logits = logits[[index for index, _ in open_items]]
        self._draw_open([item for _, item in open_items], logits)
        for item in items:
            if item.finish_reason is not None and item.row >= 0:
                self._finish(item)

    def _draw_open(self, items: list[Sample], logits: Tensor) -> None:
        if not items:
            return
        try:
            draws = sample(logits, [item.row_params() for item in items])
        except Exception as err:
            if len(items) == 1:
                self._fail(items[0], err)
                return
            for index, item in enumerate(items):
                self._draw_open([item], logits[index : index + 1])
            return
        for item, draw in zip(items, draws, strict=True):
            self._take(item, draw)

    def _take(self, item: Sample, draw: Draw | NonFiniteLogits) -> None:
        if isinstance(draw, NonFiniteLogits):
            self._fail(item, draw)
            return
        try:
            item.take(draw, self.weight_version)
        except Exception as err:
            self._fail(item, err)
            return
        self.metrics.generated_tokens += 1

    # Endings

    def _finish(self, item: Sample) -> None:
        self._remove(item)
        self._deliver(item)

    def _fail(self, item: Sample, error: Exception) -> None:
        """Fail one sample; the others go on."""
        logger.error("request %s failed", item.body.request_id, exc_info=error)
        item.finish_reason = "error"
        self._remove(item)
        self.metrics.finished["error"] += 1
        item.future.set_exception(error)

    def _remove(self, item: Sample) -> None:
        if item.row >= 0:
            self.rows.release(item)
        elif item in self.admission.waiting:
            self.admission.waiting.remove(item)

    def _deliver(self, item: Sample) -> None:
        try:
            reply = make_reply(item)
        except Exception as err:
            logger.exception("request %s failed", item.body.request_id)
            self.metrics.finished["error"] += 1
            item.future.set_exception(err)
            return
        self.metrics.finished[str(item.finish_reason)] += 1
        item.future.set_result(reply)


def _guarded(
    items: Sequence[Work], forward: Callable[[Sequence[Work]], StepOutput]
) -> tuple[list[tuple[Sequence[Work], StepOutput]], list[tuple[Work, Exception]]]:
    """Run a step; when it raises, run it once more for each sample alone. What worked, and what raised again."""
    try:
        return [(items, forward(items))], []
    except Exception:
        logger.exception("a step over %d samples failed; repeating it one by one", len(items))
    done: list[tuple[Sequence[Work], StepOutput]] = []
    broken: list[tuple[Work, Exception]] = []
    for work in items:
        try:
            done.append(([work], forward([work])))
        except Exception as err:
            broken.append((work, err))
    return done, broken
