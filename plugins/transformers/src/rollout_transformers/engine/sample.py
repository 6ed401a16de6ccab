"""One sample on its way through the engine: the request, its tokens so far, and how it ends."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from rollout_transformers.engine.experts import Experts
from rollout_transformers.engine.logits import Penalties, RowParams
from rollout_transformers.engine.model import LoadedModel
from rollout_transformers.engine.noise import noise_key
from rollout_transformers.engine.request import GenerateBody
from rollout_transformers.engine.sampler import Draw
from rollout_transformers.engine.stops import StopMatch, StopStrings

__all__ = ["Sample"]


class Sample:
    """The state of one request. Owned by the engine's thread from submission to the reply."""

    def __init__(self, body: GenerateBody, loaded: LoadedModel, number: int, seed: int) -> None:
        self.body = body
        self.loaded = loaded
        self.number = number
        """Order of arrival."""
        self.future: Future[dict[str, Any]] = Future()
        self.ids: list[int] = body.context
        """Prompt and response."""
        self.computed = 0
        """How many of `ids` have their K/V in the sample's row."""
        self.row = -1
        self.draws: list[Draw] = []
        self.versions: list[list[int]] = []
        """Spans `[weight version, start, end]` over the new tokens."""
        self.prompt_logprobs: list[float | None] = [None]
        self.experts: list[Experts] = []
        self.cached_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.match: StopMatch | None = None
        self.arrived = time.monotonic()
        self.admitted: float | None = None
        self.first_token: float | None = None
        self._seed = body.seed if body.seed is not None else seed
        self._stop_tokens = frozenset(body.stop_token_ids) | (frozenset() if body.ignore_eos else loaded.eos_ids)
        self._stops = StopStrings(loaded.tokenizer, body.stop, body.skip_special_tokens)
        self._penalties = self._make_penalties()
        self._replay_prior()

    @property
    def pending(self) -> int:
        """Tokens whose forward pass is still to run; a sample that decodes has exactly one."""
        return len(self.ids) - self.computed

    @property
    def response_length(self) -> int:
        """Response tokens so far, earlier attempts included."""
        return len(self.ids) - len(self.body.prompt_ids)

    @property
    def remaining(self) -> int:
        """Most tokens that can still come."""
        room = self.loaded.context_length - len(self.ids)
        return room if self.body.max_tokens is None else min(room, self.body.max_tokens - self.response_length)

    @property
    def reuses_prefix(self) -> bool:
        """Whether the K/V of a known prefix may be copied; prompt log-probabilities need the forward pass."""
        return not self.body.prompt_logprobs

    def row_params(self) -> RowParams:
        """How the next token is to be drawn."""
        body = self.body
        early = self.response_length < body.min_tokens
        return RowParams(
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            min_p=body.min_p,
            penalties=self._penalties,
            banned=tuple(sorted(self._stop_tokens)) if early else (),
            noise_key=noise_key(self._seed, body.output_offset + self.response_length),
            top_logprobs=body.top_logprobs,
        )

    def take(self, draw: Draw, version: int) -> None:
        """Append a drawn token and find out whether it ends the response."""
        if self.first_token is None:
            self.first_token = time.monotonic()
        self.draws.append(draw)
        self.ids.append(draw.token)
        if self.versions and self.versions[-1][0] == version:
            self.versions[-1][2] += 1
        else:
            self.versions.append([version, len(self.draws) - 1, len(self.draws)])
        self._absorb(draw.token)
        if self.finish_reason is None:
            self.finish_if_full()

    def finish_if_full(self) -> None:
        """End the response when the token budget or the context is used up."""
        if self.remaining > 0:
            return
        budget_used = self.body.max_tokens is not None and self.response_length >= self.body.max_tokens
        self.finish_reason = "length" if budget_used else "context_length"

    def restart(self) -> None:
        """Forget what was computed, after the sample lost its row; its tokens stay."""
        self.computed = 0
        self.experts = []
        self.prompt_logprobs = [None]

    def _absorb(self, token: int) -> None:
        """Count a response token for penalties and stops."""
        if self._penalties is not None:
            self._penalties.add(token)
        match = self._stops.add(token)
        if self.response_length <= self.body.min_tokens:
            return
        if token in self._stop_tokens:
            self.finish_reason, self.stop_reason = "stop", token
        elif match is not None:
            self.finish_reason, self.stop_reason, self.match = "stop", match.stop, match

    def _replay_prior(self) -> None:
        """Bring penalties and stops to where the earlier attempt was cut."""
        prompt, prior = self.body.prompt_ids, self.body.prior_ids
        self.ids = list(prompt)
        for token in prior:
            self.ids.append(token)
            if self.finish_reason is None:
                self._absorb(token)
        if self.finish_reason is None:
            self.finish_if_full()

    def _make_penalties(self) -> Penalties | None:
        body = self.body
        if (body.repetition_penalty, body.presence_penalty, body.frequency_penalty) == (1.0, 0.0, 0.0):
            return None
        return Penalties(
            self.loaded.vocab_size,
            body.prompt_ids,
            body.repetition_penalty,
            body.presence_penalty,
            body.frequency_penalty,
        )
