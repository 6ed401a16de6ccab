"""The five required hooks."""

import sys
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from rollout_core import ReplyError, RolloutConfig, hookimpl
from rollout_core.topology import Cluster, Topology
from rollout_core.types import (
    PLUGIN_API,
    BackendInfo,
    Capability,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    HttpCall,
    LaunchSpec,
    Reply,
    Server,
    Spawn,
)


class BigramOptions(BaseModel):
    """The table backend_options: this backend has none."""

    model_config = ConfigDict(extra="forbid")


@hookimpl
def describe_backend() -> BackendInfo:
    return BackendInfo("bigram", PLUGIN_API, BigramOptions, frozenset({Capability.MODEL_LOGPROBS}))


@hookimpl
def build_topology(config: RolloutConfig, cluster: Cluster) -> Topology:
    return Topology.uniform(cluster, 1)


@hookimpl
def launch_server(config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
    place = [config.model_path, spec.host, str(spec.port), str(config.context_length or 4096)]
    return Server(spec.url, spawn([sys.executable, "-m", "rollout_bigram.server", *place], {}))


@hookimpl
def build_payload(config: RolloutConfig, request: GenerateRequest) -> HttpCall:
    params = request.params
    names = ("temperature", "top_k", "top_p", "return_logprob", "skip_special_tokens")
    body = {"id": request.request_id, "prompt_ids": request.prompt_ids, "max_tokens": params.max_tokens}
    return HttpCall("/generate", body | {name: getattr(params, name) for name in names})


@hookimpl
def parse_response(config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
    body = reply.body
    if not isinstance(body, Mapping) or "error" in body:
        raise ReplyError(f"expected a response, got {str(body)[:200]}")
    try:
        return GenerateResult(
            request_id=body["id"],
            prompt_ids=request.prompt_ids,
            token_ids=tuple(body["tokens"]),
            logprobs=tuple(body["logprobs"]) if request.params.return_logprob else None,
            text=body["text"],
            finish_reason=FinishReason(body["reason"]),
            weight_versions=(0,) * len(body["tokens"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"the reply cannot be read: {error!r}") from error
