"""The toy engine: generates with the toy model, one asyncio task a request, and answers control calls."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass, field
from typing import Any

from toy_backend import model

STEP_S = 0.0005


@dataclass
class Generation:
    """One request on its way."""

    body: dict[str, Any]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[float] = field(default_factory=list)
    top: list[list[Any]] = field(default_factory=list)
    finish: str | None = None
    stop: int | str | None = None
    aborted: bool = False

    @property
    def response(self) -> list[int]:
        """The tokens of the prior and the new ones."""
        return [*self.body["prior_ids"], *self.ids]

    @property
    def context(self) -> list[int]:
        return [*self.body["prompt_ids"], *self.response]


class BadRequest(Exception):
    """Answered with 400."""


class ToyEngine:
    """Keeps every rule of the conformance kit."""

    def __init__(self, context_length: int) -> None:
        self.context_length = context_length
        self.progress = 0
        self.active: dict[str, Generation] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.draining = False

    async def generate(self, body: Any) -> dict[str, Any]:
        """Serve a request to its end."""
        self.check(body)
        while self.draining:
            await asyncio.sleep(STEP_S)
        generation = Generation(body)
        self.active[body["request_id"]] = generation
        try:
            await self.run(generation)
        finally:
            self.active.pop(body["request_id"], None)
        return self.reply(generation)

    def check(self, body: Any) -> None:
        if not isinstance(body, dict) or not isinstance(body.get("prompt_ids"), list) or not body["prompt_ids"]:
            raise BadRequest("prompt_ids: expected a list of token ids")
        if len(body["prompt_ids"]) >= self.context_length:
            raise BadRequest(f"{len(body['prompt_ids'])} tokens leave no room in a context of {self.context_length}")

    async def run(self, generation: Generation) -> None:
        self.count(len(generation.body["prompt_ids"]))
        while generation.finish is None:
            await asyncio.sleep(STEP_S)
            await self.open.wait()
            if generation.aborted:
                generation.finish = "abort"
            else:
                self.step(generation)
                self.count(1)
                self.finish(generation)

    def count(self, tokens: int) -> None:
        self.progress += tokens

    # Sampling

    def step(self, generation: Generation) -> None:
        """Draw one token."""
        body = generation.body
        values = model.logits(generation.context)
        own = model.log_softmax(values)
        allowed = self.allowed(generation, values)
        probs = model.filtered(allowed, self.params(body), body["prompt_ids"], generation.response)
        token = model.draw(probs, self.uniform(generation))
        generation.ids.append(token)
        generation.logprobs.append(min(own[token], 0.0))
        generation.sampled.append(min(probs[token], 0.0))
        best = sorted(range(model.VOCAB_SIZE), key=lambda other: -own[other])[: body["top_logprobs"]]
        generation.top.append([[other, own[other]] for other in best])

    def params(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def allowed(self, generation: Generation, values: list[float]) -> list[float]:
        """Logits without the tokens that must not come yet."""
        if len(generation.response) >= generation.body["min_tokens"]:
            return values
        banned = {model.EOS, *generation.body["stop_token_ids"]}
        return [-1e9 if token in banned else value for token, value in enumerate(values)]

    def uniform(self, generation: Generation) -> float:
        """The random number of this position."""
        seed = generation.body["seed"]
        return random.random() if seed is None else random.Random(f"{seed}:{len(generation.response)}").random()

    # Ending

    def finish(self, generation: Generation) -> None:
        """Set the finish reason if the response ends here."""
        body, token = generation.body, generation.ids[-1]
        if token in body["stop_token_ids"] and len(generation.response) >= body["min_tokens"]:
            generation.finish, generation.stop = "stop", token
        elif token == model.EOS and not body["ignore_eos"]:
            generation.finish = "stop"
        elif (stop := self.matched_stop(generation)) is not None:
            generation.finish, generation.stop = "stop", stop
        elif body["max_tokens"] is not None and len(generation.response) >= body["max_tokens"]:
            generation.finish = self.spent(generation)
        elif len(generation.context) >= self.context_length:
            generation.finish = self.full(generation)

    def spent(self, generation: Generation) -> str:
        return "length"

    def full(self, generation: Generation) -> str:
        return "context_length"

    def matched_stop(self, generation: Generation) -> str | None:
        text = model.text_of(generation.response)
        return next((stop for stop in generation.body["stop"] if stop in text), None)

    # Replying

    def reply(self, generation: Generation) -> dict[str, Any]:
        body = generation.body
        return {
            "request_id": body["request_id"],
            "ids": generation.ids,
            "logprobs": generation.logprobs if body["return_logprob"] else None,
            "sampled_logprobs": generation.sampled if body["return_logprob"] else None,
            "top_logprobs": generation.top if body["top_logprobs"] else None,
            "prompt_logprobs": self.prompt_logprobs(body) if body["prompt_logprobs"] else None,
            "experts": self.experts(generation) if body["routed_experts"] else None,
            "text": self.text(generation),
            "finish": generation.finish,
            "stop": generation.stop,
        }

    def text(self, generation: Generation) -> str:
        text = model.text_of(generation.ids, generation.body["skip_special_tokens"])
        if isinstance(generation.stop, str) and generation.stop in text:
            at = text.index(generation.stop)
            return text[: at + (len(generation.stop) if generation.body["include_stop"] else 0)]
        return text

    def prompt_logprobs(self, body: dict[str, Any]) -> list[float | None]:
        ids = body["prompt_ids"]
        return [None, *(model.log_softmax(model.logits(ids[:i]))[ids[i]] for i in range(1, len(ids)))]

    def experts(self, generation: Generation) -> dict[str, Any]:
        tokens = len(generation.context) - 1
        data = bytes((token + layer + k) % 8 for token in range(tokens) for layer in range(2) for k in range(2))
        return {"shape": [tokens, 2, 2], "dtype": "uint8", "data": base64.b64encode(data).decode()}

    # Control

    def abort(self, request_ids: list[str] | None) -> int:
        """Abort some requests or all; returns how many."""
        chosen = list(self.active) if request_ids is None else [name for name in request_ids if name in self.active]
        for name in chosen:
            self.active[name].aborted = True
        return len(chosen)

    async def pause(self, mode: str) -> None:
        """Return when the engine is quiet."""
        self.draining = True
        if mode == "abort":
            self.abort(None)
        if mode == "keep":
            self.open.clear()
            return
        while self.active:
            await asyncio.sleep(STEP_S)

    def resume(self) -> None:
        self.draining = False
        self.open.set()

    def stats(self) -> dict[str, Any]:
        return {"alive": True, "progress": self.progress, "running": len(self.active)}
