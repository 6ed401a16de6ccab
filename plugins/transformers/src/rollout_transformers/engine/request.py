"""The body of `POST /generate`, validated once at the edge."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["BadRequest", "GenerateBody", "RequestLimits", "explain", "parse_body"]


class BadRequest(Exception):
    """The request cannot be served as it is; `kind` is the error type that the client sees."""

    def __init__(self, message: str, kind: str = "bad_request") -> None:
        super().__init__(message)
        self.kind = kind


class GenerateBody(BaseModel):
    """One sample to generate. Response positions count from the start of `prior_ids`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex, min_length=1)
    """Name to abort the request by."""
    prompt_ids: list[int] = Field(min_length=1)
    """Token ids of the prompt."""
    prior_ids: list[int] = Field(default_factory=list)
    """Response tokens that an earlier, cut request generated already; they count as response, not as prompt."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Response budget including `prior_ids`; up to the context length when null."""
    min_tokens: int = Field(default=0, ge=0)
    """No stop of any kind before that many response tokens."""
    temperature: float = Field(default=1.0, ge=0.0)
    """0 takes the most likely token."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Keep the smallest set of most likely tokens whose probability reaches this."""
    top_k: int = Field(default=0, ge=0)
    """Keep that many most likely tokens; 0 keeps all."""
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    """Keep tokens at least this fraction as likely as the most likely one."""
    repetition_penalty: float = Field(default=1.0, gt=0.0)
    """Divides positive and multiplies negative logits of tokens seen in prompt or response."""
    presence_penalty: float = 0.0
    """Taken off the logit of every token seen in the response."""
    frequency_penalty: float = 0.0
    """Taken off the logit once for every time the token was seen in the response."""
    seed: int | None = None
    """Makes the draws a function of (seed, response position) alone."""
    stop: list[str] = Field(default_factory=list)
    """Strings that end the response, also when they straddle tokens."""
    stop_token_ids: list[int] = Field(default_factory=list)
    """Tokens that end the response, besides the model's end-of-sequence tokens."""
    ignore_eos: bool = False
    """Go on past end-of-sequence tokens."""
    include_stop: bool = False
    """Leave the stop string or the stop token's text in `text`."""
    return_logprob: bool = True
    """Return log-probabilities of the new tokens."""
    top_logprobs: int = Field(default=0, ge=0, le=256)
    """Return that many most likely tokens for every new token."""
    prompt_logprobs: bool = False
    """Return the log-probability of every context token given those before it."""
    routed_experts: bool = False
    """Return the experts chosen for every token whose forward pass ran."""
    skip_special_tokens: bool = True
    """Leave special tokens out of `text`."""
    output_offset: int = Field(default=0, ge=0)
    """Response position of the first of `prior_ids` (or of the first new token) for the seeded draws."""

    @property
    def context(self) -> list[int]:
        """All tokens that precede the first new one."""
        return self.prompt_ids + self.prior_ids


class RequestLimits(BaseModel):
    """What the loaded model can serve; the second half of the validation of a request."""

    model_config = ConfigDict(frozen=True)

    vocab_size: int
    context_length: int
    routed_experts: bool

    def check(self, body: GenerateBody) -> None:
        """Raise `BadRequest` when the model cannot serve `body`."""
        for name in ("prompt_ids", "prior_ids", "stop_token_ids"):
            self._check_ids(name, getattr(body, name))
        if len(body.prompt_ids) >= self.context_length:
            raise BadRequest(
                f"prompt_ids: {len(body.prompt_ids)} tokens leave no room in a context of {self.context_length}",
                "context_length",
            )
        if body.max_tokens is not None and body.min_tokens > body.max_tokens:
            raise BadRequest(f"min_tokens: {body.min_tokens} is more than max_tokens {body.max_tokens}")
        if any(not text for text in body.stop):
            raise BadRequest("stop: an empty string would stop everywhere")
        if body.routed_experts and not self.routed_experts:
            raise BadRequest("routed_experts: the server was started without return_routed_experts")

    def _check_ids(self, name: str, ids: list[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            place = next(i for i, token in enumerate(ids) if not 0 <= token < self.vocab_size)
            raise BadRequest(f"{name}.{place}: token id {ids[place]} is outside the vocabulary of {self.vocab_size}")


def parse_body(data: Any) -> GenerateBody:
    """Validate a decoded JSON body; `BadRequest` names the first wrong field."""
    if not isinstance(data, Mapping):
        raise BadRequest("the body must be a JSON object")
    try:
        return GenerateBody.model_validate(data)
    except ValidationError as err:
        raise BadRequest(explain(err)) from None


def explain(error: ValidationError) -> str:
    """The first wrong field, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the body"
    if first["type"] == "extra_forbidden":
        return f"{place}: unknown field"
    if first["type"] == "missing":
        return f"{place}: this field is required"
    return f"{place}: {first['msg']}"
