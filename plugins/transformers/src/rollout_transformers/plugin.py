"""The hooks of the embedded backend. Importing this imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rollout_core import RolloutConfig, hookimpl
from rollout_core.topology import Cluster, Topology
from rollout_core.types import (
    PLUGIN_API,
    Ack,
    BackendInfo,
    Call,
    Capability,
    GenerateRequest,
    GenerateResult,
    Health,
    HttpCall,
    LaunchSpec,
    MemoryPart,
    PauseMode,
    Reply,
    Server,
    Spawn,
    WeightUpdate,
)
from rollout_transformers import control, launch, weights, wire
from rollout_transformers.options import TransformersOptions

CAPABILITIES = frozenset(
    {
        Capability.MODEL_LOGPROBS,
        Capability.SAMPLED_LOGPROBS,
        Capability.TOP_LOGPROBS,
        Capability.PROMPT_LOGPROBS,
        Capability.ROUTED_EXPERTS,
        Capability.SEED,
        Capability.MIN_P,
        Capability.MIN_TOKENS,
        Capability.PENALTIES,
        Capability.STOP_STRINGS,
        Capability.STOP_TOKEN_IDS,
        Capability.IGNORE_EOS,
        Capability.INCLUDE_STOP,
        Capability.CONTINUATION,
        Capability.ABORT,
        Capability.CANCEL_ON_DISCONNECT,
        Capability.PAUSE_ABORT,
        Capability.PAUSE_WAIT,
        Capability.PAUSE_KEEP,
        Capability.OFFLOAD_WEIGHTS,
        Capability.DISCARD_WEIGHTS,
        Capability.OFFLOAD_KV_CACHE,
        Capability.WEIGHTS_FROM_DISK,
        Capability.WEIGHTS_FROM_SHARED_MEMORY,
        Capability.WEIGHTS_FROM_GROUP,
        Capability.FP32_LM_HEAD,
        Capability.SKIP_LOAD_WEIGHTS,
        Capability.API_KEY,
    }
)


@hookimpl
def describe_backend() -> BackendInfo:
    return BackendInfo(
        name="transformers",
        plugin_api=PLUGIN_API,
        options=TransformersOptions,
        capabilities=CAPABILITIES,
        engine_package="torch",
        engine_versions=">=2.5",
    )


@hookimpl
def build_topology(config: RolloutConfig, cluster: Cluster) -> Topology:
    # Each model runs on one device: parallel sizes above 1 were refused for want of the capability.
    return Topology.uniform(cluster, config.ranks_per_engine)


@hookimpl
def launch_server(config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
    return launch.launch(config, spec, spawn)


@hookimpl
def build_payload(config: RolloutConfig, request: GenerateRequest) -> HttpCall:
    return wire.generate_call(request)


@hookimpl
def parse_response(config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
    return wire.generate_result(request, reply)


@hookimpl
def pause_generation(config: RolloutConfig, server: Server, mode: PauseMode, call: Call) -> Ack:
    return control.pause(mode, call)


@hookimpl
def continue_generation(config: RolloutConfig, server: Server, call: Call) -> Ack:
    return control.resume(call)


@hookimpl
def abort_requests(config: RolloutConfig, server: Server, request_ids: Sequence[str] | None, call: Call) -> Ack:
    return control.abort(request_ids, call)


@hookimpl
def offload(config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], discard: bool, call: Call) -> Ack:
    return control.offload(parts, discard, call)


@hookimpl
def onload(config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], call: Call) -> Ack:
    return control.onload(parts, call)


@hookimpl
def update_weights(config: RolloutConfig, server: Server, update: WeightUpdate, call: Call) -> Ack:
    return weights.update(update, call)


@hookimpl
def check_health(config: RolloutConfig, server: Server, call: Call) -> Health:
    return control.health(call)
