"""The nouns that cross hooks and processes. Importing them costs little and starts nothing."""

from rollout_core.types.backend import PLUGIN_API, BackendInfo, Capability
from rollout_core.types.generation import (
    CachePolicy,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    LogprobKind,
    RoutedExperts,
    Sample,
    Status,
    Timing,
    TokenLogprob,
)
from rollout_core.types.http import Call, HttpCall, Reply
from rollout_core.types.sampling import SampleParams
from rollout_core.types.serving import (
    Ack,
    Health,
    LaunchSpec,
    MemoryPart,
    PauseMode,
    Process,
    Server,
    Spawn,
)
from rollout_core.types.weights import Bucket, TensorSpec, WeightGroup, WeightUpdate

__all__ = [
    "PLUGIN_API",
    "Ack",
    "BackendInfo",
    "Bucket",
    "CachePolicy",
    "Call",
    "Capability",
    "FinishReason",
    "GenerateRequest",
    "GenerateResult",
    "Health",
    "HttpCall",
    "LaunchSpec",
    "LogprobKind",
    "MemoryPart",
    "PauseMode",
    "Process",
    "Reply",
    "RoutedExperts",
    "Sample",
    "SampleParams",
    "Server",
    "Spawn",
    "Status",
    "TensorSpec",
    "Timing",
    "TokenLogprob",
    "WeightGroup",
    "WeightUpdate",
]
