"""One request for one sample, and what came of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollout_core.errors import RequestError
from rollout_core.types.sampling import SampleParams

__all__ = [
    "CachePolicy",
    "FinishReason",
    "GenerateRequest",
    "GenerateResult",
    "LogprobKind",
    "RoutedExperts",
    "Sample",
    "Status",
    "Timing",
    "TokenLogprob",
]


class Status(StrEnum):
    """Where a sample stands in its life."""

    INIT = "init"
    COMPLETED = "completed"
    ABORTED = "aborted"
    """Cut before its end; it carries the tokens it had and can be continued."""
    EXPIRED = "expired"
    """Too old for the current weights."""
    FAILED = "failed"
    """Carries the reason in ``error``."""
    FILTERED = "filtered"
    ARCHIVED = "archived"


class FinishReason(StrEnum):
    """Why a response ended."""

    STOP = "stop"
    """End of sequence, a stop token id or a stop string."""
    LENGTH = "length"
    """The request's token budget was spent."""
    CONTEXT_LENGTH = "context_length"
    """Prompt and response filled the model's context."""
    ABORT = "abort"
    TOOL_CALLS = "tool_calls"
    ERROR = "error"


class LogprobKind(StrEnum):
    """Which distribution a log-probability is of."""

    MODEL = "model"
    """The model's own: log-softmax of its logits, before temperature, filters and penalties."""
    SAMPLED = "sampled"
    """The one the token was drawn from: after temperature, filters and penalties."""


class CachePolicy(StrEnum):
    """What a weight update does with K/V that the old weights computed."""

    FLUSH = "flush"
    """It is computed again, so that a prefix and the next token come from the same weights."""
    KEEP = "keep"
    """It goes on being used."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token id with its log-probability (natural log)."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """Expert ids of every token whose forward pass ran, as one dense array.

    ``data`` is little-endian C order of ``dtype`` (``uint8``, ``int16`` or ``int32``); ``shape`` is
    ``(prompt tokens + response tokens - 1, MoE layers, experts per token)``: the last sampled token was never
    fed to the model.
    """

    shape: tuple[int, int, int]
    dtype: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a request went, in seconds."""

    queued_s: float = 0.0
    """In the engine's queue, before the prompt was looked at."""
    prefill_s: float = 0.0
    decode_s: float = 0.0
    total_s: float = 0.0
    """As the client saw it: from the call to the result, retries included."""
    started_at: float = 0.0
    """Unix time at which the client was called."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One sample to draw. A group of n samples is n requests that share ``group_id``.

    Raises:
        RequestError: an empty prompt, or an id that is not an integer of 0 or more.
    """

    prompt_ids: tuple[int, ...]
    """Token ids of the prompt, each in ``[0, vocabulary size)``."""
    params: SampleParams = field(default_factory=SampleParams)
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Unique over the run; the engine knows the request by it."""
    session_id: str | None = None
    """Requests of one session (a conversation) go to the same engine while it lives."""
    group_id: str | None = None
    """Requests of one group share a prompt; they go to the same engine, which prefills it once."""
    prior: GenerateResult | None = None
    """An aborted result of the same prompt, to be continued from its last token."""

    def __post_init__(self) -> None:
        if not isinstance(self.prompt_ids, tuple):
            object.__setattr__(self, "prompt_ids", tuple(self.prompt_ids))
        if not self.prompt_ids:
            raise RequestError(f"request {self.request_id}: the prompt is empty; give at least one token id")
        # bool is an int in Python, and numpy integers are not: both are mistakes of the caller.
        if set(map(type, self.prompt_ids)) != {int} or min(self.prompt_ids) < 0:
            wrong = (place for place, token in enumerate(self.prompt_ids) if type(token) is not int or token < 0)
            position = next(wrong)
            raise RequestError(
                f"request {self.request_id}: prompt_ids[{position}] is {self.prompt_ids[position]!r}; "
                f"expected an integer >= 0"
            )

    @property
    def affinity(self) -> str | None:
        """What keeps related requests on one engine."""
        return self.session_id or self.group_id


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """What came of a request. All per-token fields have one entry per response token.

    A result that breaks this is never handed out as completed: see :func:`rollout_core.client.check_result`.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...] = ()
    """Response ids, the end-of-sequence or stop token included."""
    logprobs: tuple[float, ...] | None = None
    """Natural log, finite, <= 0, of the distribution ``logprob_kind``. None when not asked for."""
    logprob_kind: LogprobKind = LogprobKind.MODEL
    sampled_logprobs: tuple[float, ...] | None = None
    """Of the distribution actually drawn from, where it differs from ``logprobs`` and the engine reports both."""
    text: str = ""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token id or stop string that ended the response."""
    status: Status = Status.INIT
    error: str | None = None
    weight_versions: tuple[int, ...] = ()
    """The version of the weights that each token was sampled under."""
    lag: int = 0
    """How many versions the oldest token was behind what was served when the result came back."""
    cache_policy: CachePolicy | None = None
    """Of the weight update before the result came back; None before the first one."""
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None = None
    prompt_logprobs: tuple[float | None, ...] | None = None
    """One entry per prompt token; the first is None."""
    routed_experts: RoutedExperts | None = None
    cached_tokens: int = 0
    """Prompt tokens that were not computed again because the engine still had them."""
    engine: str | None = None
    """The engine that gave the result, as ``engine-<index>``."""
    attempts: int = 1
    """How many times the request was sent."""
    timing: Timing = field(default_factory=Timing)

    @property
    def oldest_version(self) -> int | None:
        """The oldest weights that a token was sampled under; None without a token."""
        return min(self.weight_versions, default=None)

    @property
    def newest_version(self) -> int | None:
        """The newest weights that a token was sampled under; None without a token."""
        return max(self.weight_versions, default=None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a run's output: a result with the prompt it belongs to."""

    sample_id: str
    """``<prompt index>-<sample index>``, stable over resumes."""
    prompt_index: int
    sample_index: int
    prompt: Any
    """As it stood in the prompt file: text, chat messages or token ids."""
    fields: Mapping[str, Any]
    """The other fields of the prompt's line, passed through."""
    result: GenerateResult
    reward: float | None = None
    """Set by the ``score_sample`` hook."""
