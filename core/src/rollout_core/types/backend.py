"""What a backend says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

__all__ = ["PLUGIN_API", "BackendInfo", "Capability"]

PLUGIN_API = 1
"""Grows when a change of the hook specifications breaks existing plugins."""


class Capability(StrEnum):
    """What a backend may or may not offer. What is not declared is refused before anything starts."""

    MODEL_LOGPROBS = "model_logprobs"
    """Log-probabilities of the model's own distribution."""
    SAMPLED_LOGPROBS = "sampled_logprobs"
    """Log-probabilities of the distribution that was drawn from."""
    TOP_LOGPROBS = "top_logprobs"
    PROMPT_LOGPROBS = "prompt_logprobs"
    ROUTED_EXPERTS = "routed_experts"
    SEED = "seed"
    MIN_P = "min_p"
    MIN_TOKENS = "min_tokens"
    PENALTIES = "penalties"
    STOP_STRINGS = "stop_strings"
    STOP_TOKEN_IDS = "stop_token_ids"
    IGNORE_EOS = "ignore_eos"
    INCLUDE_STOP = "include_stop"
    CONTINUATION = "continuation"
    """A prior result is continued token-exactly."""
    ABORT = "abort"
    """A single request can be aborted and comes back with its tokens."""
    CANCEL_ON_DISCONNECT = "cancel_on_disconnect"
    PAUSE_ABORT = "pause_abort"
    PAUSE_WAIT = "pause_wait"
    PAUSE_KEEP = "pause_keep"
    OFFLOAD_WEIGHTS = "offload_weights"
    DISCARD_WEIGHTS = "discard_weights"
    """Weights can be dropped instead of kept aside, because new ones will be written."""
    OFFLOAD_KV_CACHE = "offload_kv_cache"
    WEIGHTS_FROM_DISK = "weights_from_disk"
    WEIGHTS_FROM_SHARED_MEMORY = "weights_from_shared_memory"
    WEIGHTS_FROM_GROUP = "weights_from_group"
    """Over a torch.distributed group of trainer and engines."""
    TENSOR_PARALLEL = "tensor_parallel"
    DATA_PARALLEL = "data_parallel"
    EXPERT_PARALLEL = "expert_parallel"
    MULTI_NODE = "multi_node"
    FLOAT8 = "float8"
    ROUTER_GROUPS = "router_groups"
    FP32_LM_HEAD = "fp32_lm_head"
    SKIP_LOAD_WEIGHTS = "skip_load_weights"
    API_KEY = "api_key"


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A backend's description of itself."""

    name: str
    """Equal to the name of its entry point."""
    plugin_api: int
    """The :data:`PLUGIN_API` that it was written for."""
    options: type[BaseModel]
    """Validates the table ``backend_options``; use ``extra="forbid"``."""
    capabilities: frozenset[Capability]
    engine_package: str | None = None
    """Distribution name of the engine, which may not be installed here."""
    engine_versions: str = ""
    """Version specifier of the engine releases it was tested with, such as ``>=5.0,<6``."""
