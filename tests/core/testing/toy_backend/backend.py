"""The hooks of the toy backend, as methods of an object, so that a test can break one of them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rollout_core.config import RolloutConfig
from rollout_core.errors import EngineError, ReplyError
from rollout_core.plugins import hookimpl
from rollout_core.topology import Cluster, Topology
from rollout_core.types import (
    PLUGIN_API,
    Ack,
    BackendInfo,
    Call,
    Capability,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    Health,
    HttpCall,
    LaunchSpec,
    PauseMode,
    Reply,
    RoutedExperts,
    Server,
    Spawn,
    TokenLogprob,
)

CHECKPOINT = str(Path(__file__).with_name("checkpoint"))
"""A checkpoint folder of the toy model."""

_NOT_OFFERED = {
    Capability.FLOAT8,
    Capability.FP32_LM_HEAD,
    Capability.SKIP_LOAD_WEIGHTS,
    Capability.OFFLOAD_WEIGHTS,
    Capability.DISCARD_WEIGHTS,
    Capability.OFFLOAD_KV_CACHE,
    Capability.WEIGHTS_FROM_DISK,
    Capability.WEIGHTS_FROM_SHARED_MEMORY,
    Capability.WEIGHTS_FROM_GROUP,
}


class ToyOptions(BaseModel):
    """The options of the toy backend."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    engine: str = "Honest"
    """Name of the toy engine's class, which says what it breaks."""


class ToyBackend:
    """Keeps every rule."""

    @hookimpl
    def describe_backend(self) -> BackendInfo:
        return BackendInfo("toy", PLUGIN_API, ToyOptions, frozenset(Capability) - _NOT_OFFERED)

    @hookimpl
    def build_topology(self, config: RolloutConfig, cluster: Cluster) -> Topology:
        return Topology.uniform(cluster, config.ranks_per_engine)

    @hookimpl
    def launch_server(self, config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
        assert isinstance(config.backend_options, ToyOptions)
        argv = [sys.executable, "-m", "toy_backend.server", "--model", config.model_path]
        argv += ["--host", spec.host, "--port", str(spec.port), "--engine", config.backend_options.engine]
        argv += ["--context-length", str(config.context_length or 512)]
        env = {"PYTHONPATH": str(Path(__file__).parents[1])}
        if config.api_keys:
            env["TOY_API_KEY"] = config.api_keys[0].get_secret_value()
        return Server(spec.url, spawn(argv, env), ready=HttpCall("/ready", method="GET"))

    @hookimpl
    def build_payload(self, config: RolloutConfig, request: GenerateRequest) -> HttpCall:
        body = {
            **request.params.model_dump(mode="json"),
            "request_id": request.request_id,
            "prompt_ids": list(request.prompt_ids),
            "prior_ids": list(request.prior.token_ids) if request.prior else [],
        }
        return HttpCall("/generate", body)

    @hookimpl
    def parse_response(self, config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
        body = reply.body
        try:
            if body["request_id"] != request.request_id:
                raise ReplyError(f"the reply is of request {body['request_id']}")
            ids = tuple(body["ids"])
            return GenerateResult(
                request_id=request.request_id,
                prompt_ids=request.prompt_ids,
                token_ids=ids,
                logprobs=_numbers(body["logprobs"]),
                sampled_logprobs=_numbers(body["sampled_logprobs"]),
                text=(request.prior.text if request.prior else "") + body["text"],
                finish_reason=FinishReason(body["finish"]),
                stop_reason=body["stop"],
                weight_versions=(0,) * len(ids),
                top_logprobs=_rows(body["top_logprobs"]),
                prompt_logprobs=_numbers(body["prompt_logprobs"]),
                routed_experts=_experts(body["experts"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ReplyError(f"the reply cannot be read: {error!r} in {json.dumps(body, default=str)[:200]}") from error

    @hookimpl
    def pause_generation(self, config: RolloutConfig, server: Server, mode: PauseMode, call: Call) -> Ack:
        _expect_ok(call(HttpCall("/pause", {"mode": mode.value})))
        return Ack()

    @hookimpl
    def continue_generation(self, config: RolloutConfig, server: Server, call: Call) -> Ack:
        _expect_ok(call(HttpCall("/resume", {})))
        return Ack()

    @hookimpl
    def abort_requests(
        self, config: RolloutConfig, server: Server, request_ids: Sequence[str] | None, call: Call
    ) -> Ack:
        ids = None if request_ids is None else list(request_ids)
        return Ack(aborted=_expect_ok(call(HttpCall("/abort", {"request_ids": ids})))["aborted"])

    @hookimpl
    def check_health(self, config: RolloutConfig, server: Server, call: Call) -> Health:
        reply = call(HttpCall("/stats", method="GET"))
        if not reply.ok or not isinstance(reply.body, dict) or "progress" not in reply.body:
            raise EngineError(f"the engine answered {reply.status}: {reply.body}")
        return Health(alive=reply.body["alive"], progress=reply.body["progress"], running=reply.body["running"])


def _expect_ok(reply: Reply) -> dict[str, Any]:
    if not reply.ok or not isinstance(reply.body, dict) or reply.body.get("ok") is not True:
        raise EngineError(f"the engine answered {reply.status}: {reply.body}")
    return reply.body


def _numbers(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _rows(rows: list[list[list[Any]]] | None) -> tuple[tuple[TokenLogprob, ...], ...] | None:
    return None if rows is None else tuple(tuple(TokenLogprob(*item) for item in row) for row in rows)


def _experts(value: dict[str, Any] | None) -> RoutedExperts | None:
    if value is None:
        return None
    return RoutedExperts(tuple(value["shape"]), value["dtype"], base64.b64decode(value["data"]))
