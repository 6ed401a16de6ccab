"""Checks a request before it is sent, for every backend alike.

An id outside the vocabulary kills some engines, and most engines ignore a parameter that they do not know: both are
refused here, at the cost of the one request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rollout_core.errors import CapabilityError, RequestError
from rollout_core.model import ModelInfo
from rollout_core.plugins import Backend
from rollout_core.types import Capability, GenerateRequest, SampleParams

__all__ = ["Admission"]

_NEEDS: tuple[tuple[Capability, str, Callable[[SampleParams], bool]], ...] = (
    (Capability.SEED, "seed", lambda p: p.seed is not None),
    (Capability.MIN_P, "min_p", lambda p: p.min_p > 0),
    (Capability.MIN_TOKENS, "min_tokens", lambda p: p.min_tokens > 0),
    (Capability.PENALTIES, "repetition_penalty", lambda p: p.repetition_penalty != 1),
    (Capability.PENALTIES, "presence_penalty", lambda p: p.presence_penalty != 0),
    (Capability.PENALTIES, "frequency_penalty", lambda p: p.frequency_penalty != 0),
    (Capability.STOP_STRINGS, "stop", lambda p: bool(p.stop)),
    (Capability.STOP_TOKEN_IDS, "stop_token_ids", lambda p: bool(p.stop_token_ids)),
    (Capability.IGNORE_EOS, "ignore_eos", lambda p: p.ignore_eos),
    (Capability.INCLUDE_STOP, "include_stop", lambda p: p.include_stop),
    (Capability.TOP_LOGPROBS, "top_logprobs", lambda p: p.top_logprobs > 0),
    (Capability.PROMPT_LOGPROBS, "prompt_logprobs", lambda p: p.prompt_logprobs),
    (Capability.ROUTED_EXPERTS, "routed_experts", lambda p: p.routed_experts),
)


class Admission:
    """The checks of one run."""

    def __init__(self, backend: Backend, model: ModelInfo, context_length: int | None) -> None:
        """``context_length`` in tokens; None where nothing sets a limit."""
        self._backend = backend
        self._vocab_size = model.vocab_size
        self._context_length = context_length
        # Requests of a run mostly share their parameters.
        self._check_params = lru_cache(maxsize=1024)(self._check_params_uncached)

    def check(self, request: GenerateRequest) -> None:
        """Refuse what no engine of this run can do.

        Raises:
            RequestError: an id outside the vocabulary, or a prompt that leaves no room for a token.
            CapabilityError: a parameter that the backend does not offer.
        """
        self._check_ids("prompt_ids", request.prompt_ids)
        length = len(request.prompt_ids) + (len(request.prior.token_ids) if request.prior else 0)
        if self._context_length is not None and length >= self._context_length:
            raise RequestError(
                f"the prompt has {length} tokens, and the context length is {self._context_length}: "
                f"no room for a response; shorten the prompt or raise context_length"
            )
        self._check_params(request.params)
        if request.prior is not None:
            self._check_prior(request)

    def _check_params_uncached(self, params: SampleParams) -> None:
        self._check_ids("stop_token_ids", params.stop_token_ids)
        for capability, name, used in _NEEDS:
            if used(params):
                self._backend.require(capability, f"the sampling parameter {name}")
        if params.routed_experts and not self._backend.config.routed_experts:
            raise CapabilityError("the request asks for routed experts: set routed_experts = true in the config")

    def _check_prior(self, request: GenerateRequest) -> None:
        assert request.prior is not None
        self._backend.require(Capability.CONTINUATION, "continuing a prior result")
        self._check_ids("prior.token_ids", request.prior.token_ids)
        if request.prior.prompt_ids != request.prompt_ids:
            raise RequestError("the prior result belongs to another prompt; continue it with its own prompt_ids")

    def _check_ids(self, name: str, ids: tuple[int, ...]) -> None:
        if ids and max(ids) >= self._vocab_size:
            position = next(i for i, token in enumerate(ids) if token >= self._vocab_size)
            raise RequestError(
                f"{name}[{position}] is {ids[position]}; the model's ids are 0 to {self._vocab_size - 1}"
            )
