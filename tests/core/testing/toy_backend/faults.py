"""Toy engines that each break one rule, as real engines have done."""

from __future__ import annotations

import asyncio
import math
import os
import random
from typing import Any, ClassVar

from toy_backend import model
from toy_backend.engine import STEP_S, Generation, ToyEngine


class Honest(ToyEngine):
    """Breaks nothing."""

    outlives_client: ClassVar[bool] = False


class DropsLastLogprob(Honest):
    def reply(self, generation: Generation) -> dict[str, Any]:
        generation.logprobs = generation.logprobs[:-1]
        return super().reply(generation)


class PositiveLogprob(Honest):
    def step(self, generation: Generation) -> None:
        super().step(generation)
        generation.logprobs[-1] = -generation.logprobs[-1]


class NanLogprob(Honest):
    def step(self, generation: Generation) -> None:
        super().step(generation)
        generation.logprobs[-1] = math.nan


class ZeroFilledLogprobs(Honest):
    def step(self, generation: Generation) -> None:
        super().step(generation)
        generation.logprobs[-1] = 0.0


class RetokenizedIds(Honest):
    """The ids are not those that were sampled, as after decoding and encoding the text."""

    def reply(self, generation: Generation) -> dict[str, Any]:
        generation.ids = [(token + 1) % model.VOCAB_SIZE for token in generation.ids]
        return super().reply(generation)


class ProcessedLogprobs(Honest):
    """Log-probabilities after temperature and filters, declared as the model's own."""

    def step(self, generation: Generation) -> None:
        super().step(generation)
        generation.logprobs[-1] = generation.sampled[-1]


class IgnoresSeed(Honest):
    def uniform(self, generation: Generation) -> float:
        return random.random()


class SeedDependsOnBatch(Honest):
    def uniform(self, generation: Generation) -> float:
        seed, row = generation.body["seed"], len(self.active)
        return random.Random(f"{seed}:{row}:{len(generation.response)}").random()


class OneSeedForAll(Honest):
    def uniform(self, generation: Generation) -> float:
        return random.Random(f"0:{len(generation.response)}").random()


class IgnoresTopK(Honest):
    def params(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "top_k": 0}


class IgnoresMinP(Honest):
    def params(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "min_p": 0.0}


class IgnoresPresencePenalty(Honest):
    def params(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "presence_penalty": 0.0}


class IgnoresStopStrings(Honest):
    def matched_stop(self, generation: Generation) -> str | None:
        return None


class CutsIdsWithText(Honest):
    """The ids that completed a stop string are cut as its text is."""

    def reply(self, generation: Generation) -> dict[str, Any]:
        if isinstance(generation.stop, str):
            generation.ids.pop()
            generation.logprobs.pop()
            generation.sampled.pop()
        return super().reply(generation)


class IgnoresMinTokens(Honest):
    def allowed(self, generation: Generation, values: list[float]) -> list[float]:
        return values

    def finish(self, generation: Generation) -> None:
        generation.body["min_tokens"] = 0
        super().finish(generation)


class SaysStopForLength(Honest):
    def spent(self, generation: Generation) -> str:
        return "stop"


class SaysLengthForContext(Honest):
    def full(self, generation: Generation) -> str:
        return "length"


class DropsEos(Honest):
    def reply(self, generation: Generation) -> dict[str, Any]:
        if len(generation.ids) > 1 and generation.ids[-1] == model.EOS and generation.finish == "stop":
            generation.ids.pop()
            generation.logprobs.pop()
            generation.sampled.pop()
        return super().reply(generation)


class LosesPartialTokens(Honest):
    def reply(self, generation: Generation) -> dict[str, Any]:
        if generation.finish == "abort":
            generation.ids, generation.logprobs, generation.sampled = [], [], []
        return super().reply(generation)


class IgnoresAbort(Honest):
    def abort(self, request_ids: list[str] | None) -> int:
        return len(self.active)


class AbortsEverything(Honest):
    def abort(self, request_ids: list[str] | None) -> int:
        return super().abort(None)


class OutlivesItsClient(Honest):
    outlives_client = True


class KeepGoesOn(Honest):
    """The pause that should freeze the requests does not stop them."""

    async def pause(self, mode: str) -> None:
        if mode != "keep":
            await super().pause(mode)


class ComputesTwice(Honest):
    """Requests of a full batch are computed a second time, unseen by their client."""

    async def run(self, generation: Generation) -> None:
        await super().run(generation)
        if len(self.active) > 8:
            await super().run(Generation(generation.body))


class SwapsReplies(Honest):
    """Two requests that run at once get each other's tokens, under their own names."""

    def __init__(self, context_length: int) -> None:
        super().__init__(context_length)
        self.last: Generation | None = None

    def reply(self, generation: Generation) -> dict[str, Any]:
        other, self.last = self.last, generation
        if other is None or len(self.active) < 2 or len(other.ids) != len(generation.ids):
            return super().reply(generation)
        return {**super().reply(other), "request_id": generation.body["request_id"]}


class FrozenCounter(Honest):
    def count(self, tokens: int) -> None:
        self.progress = 1


class DiesOfABadRequest(Honest):
    def check(self, body: Any) -> None:
        if not isinstance(body, dict) or "prompt_ids" not in body:
            os._exit(1)
        super().check(body)


class WrongPromptLogprobs(Honest):
    """The log-probabilities of the prompt are shifted by one position."""

    def prompt_logprobs(self, body: dict[str, Any]) -> list[float | None]:
        values = super().prompt_logprobs(body)
        return [None, *values[2:], -1.0]


class RestartsContinuations(Honest):
    """A prior is accepted and not used."""

    @staticmethod
    def _forgetful(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "prior_ids": [], "max_tokens": body["max_tokens"] - len(body["prior_ids"])}

    async def generate(self, body: Any) -> dict[str, Any]:
        return await super().generate(
            self._forgetful(body) if isinstance(body, dict) and body.get("prior_ids") else body
        )


class LosesARequest(Honest):
    """One of many requests never comes back."""

    async def run(self, generation: Generation) -> None:
        if len(self.active) > 60:
            while not generation.aborted:
                await asyncio.sleep(STEP_S)
        await super().run(generation)


ENGINES = {kind.__name__: kind for kind in (Honest, *Honest.__subclasses__())}
