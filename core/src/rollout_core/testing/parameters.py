"""Every sampling parameter with a value that is not its default: what "no parameter is ignored" is checked with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollout_core.types import Capability, SampleParams

__all__ = ["PARAMETERS", "Parameter"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of :class:`SampleParams`."""

    name: str
    value: Any
    """Not the default."""
    capability: Capability | None = None
    """What a backend must declare to be sent it; None for what every backend honours."""
    with_others: Mapping[str, Any] = field(default_factory=dict)
    """Other fields that it needs to mean something."""

    @property
    def without(self) -> SampleParams:
        """The parameters with this field at its default."""
        return SampleParams(**{"max_tokens": 16, **self.with_others})

    @property
    def changed(self) -> SampleParams:
        """The parameters with this field changed, and nothing else."""
        return SampleParams(**{"max_tokens": 16, **self.with_others, self.name: self.value})


PARAMETERS = (
    Parameter("temperature", 0.7),
    Parameter("top_p", 0.9),
    Parameter("top_k", 5),
    Parameter("min_p", 0.1, Capability.MIN_P),
    Parameter("repetition_penalty", 1.2, Capability.PENALTIES),
    Parameter("presence_penalty", 0.5, Capability.PENALTIES),
    Parameter("frequency_penalty", 0.5, Capability.PENALTIES),
    Parameter("seed", 7, Capability.SEED),
    Parameter("max_tokens", 9),
    Parameter("min_tokens", 3, Capability.MIN_TOKENS),
    Parameter("stop", ("END",), Capability.STOP_STRINGS),
    Parameter("stop_token_ids", (5,), Capability.STOP_TOKEN_IDS),
    Parameter("ignore_eos", True, Capability.IGNORE_EOS),
    Parameter("include_stop", True, Capability.INCLUDE_STOP, {"stop": ("END",)}),
    Parameter("return_logprob", False),
    Parameter("top_logprobs", 2, Capability.TOP_LOGPROBS),
    Parameter("prompt_logprobs", True, Capability.PROMPT_LOGPROBS),
    Parameter("routed_experts", True, Capability.ROUTED_EXPERTS),
    Parameter("skip_special_tokens", False),
)
