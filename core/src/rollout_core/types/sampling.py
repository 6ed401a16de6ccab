"""How one sample is drawn: the part of a request that users write."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["SampleParams"]


class SampleParams(BaseModel):
    """Sampling parameters of one request, equal for every backend.

    A backend that cannot honour a parameter refuses the request and names it; nothing is ignored.
    The order of the filters is penalties, temperature, top_k, top_p, min_p.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=1.0, ge=0.0, le=100.0, allow_inf_nan=False)
    """Divides the logits. 0 is greedy: the most likely token, no randomness."""

    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Keep the smallest set of tokens whose probability reaches this. 1 is off."""

    top_k: int = Field(default=0, ge=0)
    """Keep this many of the most likely tokens. 0 is off."""

    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    """Drop tokens less likely than this fraction of the most likely one. 0 is off."""

    repetition_penalty: float = Field(default=1.0, gt=0.0, le=100.0)
    """Divides (positive) or multiplies (negative) the logits of tokens seen in prompt or response. 1 is off."""

    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    """Subtracted from the logits of tokens that the response already has."""

    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    """Subtracted from the logits once per occurrence in the response."""

    seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Same seed and same prompt give the same tokens, whatever else the engine is doing."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Token budget of the response. Unset: up to the context length."""

    min_tokens: int = Field(default=0, ge=0)
    """No end of sequence and no stop before this many response tokens."""

    stop: tuple[str, ...] = ()
    """Strings that end the response. The token ids keep every token up to the one that completed the string."""

    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the response, besides the model's own end-of-sequence ids."""

    ignore_eos: bool = False
    """Go on after the model's end-of-sequence token."""

    include_stop: bool = False
    """Keep the stop string in the text. The token ids keep the stop token in any case."""

    return_logprob: bool = True
    """Return the log-probability (natural log) of every response token."""

    top_logprobs: int = Field(default=0, ge=0, le=1000)
    """Also return this many of the most likely tokens for every response position."""

    prompt_logprobs: bool = False
    """Also return the log-probability of every prompt token but the first."""

    routed_experts: bool = False
    """Also return the experts that each token was routed to (mixture-of-experts models)."""

    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(not text for text in self.stop):
            raise ValueError("stop: an empty string would stop every response at once; remove it")
        if any(token < 0 for token in self.stop_token_ids):
            raise ValueError(f"stop_token_ids: ids are 0 or more, got {list(self.stop_token_ids)}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})")
        if not self.return_logprob and self.top_logprobs:
            raise ValueError("top_logprobs needs return_logprob = true")
        return self

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0
