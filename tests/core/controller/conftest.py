"""A backend whose server is ``toy_server.py``: real processes and real HTTP, no model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from rollout_core import Cluster, Controller, EngineError, Plugins, ReplyError, RolloutConfig, Topology, hookimpl
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
    Server,
    Spawn,
)

CAPABILITIES = frozenset({Capability.API_KEY, Capability.PAUSE_ABORT, Capability.PAUSE_KEEP})
SERVER = Path(__file__).parent / "toy_server.py"


class ToyOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    behaviours: tuple[str, ...] = ("good",)
    """One per engine; the last stands for all further ones."""
    body: dict[str, Any] = {}
    """Added to every request."""


class ToyBackend:
    """Answers every request with the one token 1."""

    @hookimpl
    def describe_backend(self) -> BackendInfo:
        return BackendInfo("toy", PLUGIN_API, ToyOptions, CAPABILITIES)

    @hookimpl
    def build_topology(self, config: RolloutConfig, cluster: Cluster) -> Topology:
        return Topology.uniform(cluster, 1)

    @hookimpl
    def launch_server(self, config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
        behaviours = config.backend_options.behaviours  # type: ignore[union-attr]
        behaviour = behaviours[min(spec.engine, len(behaviours) - 1)]
        argv = [sys.executable, str(SERVER), spec.host, str(spec.port), behaviour]
        return Server(spec.url, spawn(argv, {}))

    @hookimpl
    def build_payload(self, config: RolloutConfig, request: GenerateRequest) -> HttpCall:
        return HttpCall("/generate", {"id": request.request_id, **config.backend_options.body})  # type: ignore[union-attr]

    @hookimpl
    def parse_response(self, config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
        if not isinstance(reply.body, dict):
            raise ReplyError("no object")
        return GenerateResult(
            reply.body["id"], request.prompt_ids, (1,), (-1.0,), weight_versions=(0,), finish_reason=FinishReason.STOP
        )

    @hookimpl
    def pause_generation(self, config: RolloutConfig, server: Server, mode: PauseMode, call: Call) -> Ack:
        return _ack(call(HttpCall("/pause", {"mode": mode.value})))

    @hookimpl
    def continue_generation(self, config: RolloutConfig, server: Server, call: Call) -> Ack:
        return _ack(call(HttpCall("/continue", {})))

    @hookimpl
    def abort_requests(
        self, config: RolloutConfig, server: Server, request_ids: Sequence[str] | None, call: Call
    ) -> Ack:
        return Ack(aborted=1, detail=_ack(call(HttpCall("/abort", {"ids": request_ids}))).detail)

    @hookimpl
    def check_health(self, config: RolloutConfig, server: Server, call: Call) -> Health:
        reply = call(HttpCall("/health", method="GET"))
        return Health(reply.body["alive"], reply.body["progress"], reply.body["running"], detail=f"{reply.status}")


def _ack(reply: Reply) -> Ack:
    if not reply.ok:
        raise EngineError(f"answered {reply.status}")
    return Ack(detail=json.dumps(reply.body))


MakeController = Callable[..., Controller]


@pytest.fixture
def controller(tmp_path: Path) -> MakeController:
    """Makes a controller of toy engines; it is not started."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 100, "max_position_embeddings": 64}')

    def make(on_event: Any = None, **settings: Any) -> Controller:
        settings = {"shutdown_timeout_s": 2.0, "startup_timeout_s": 20.0, **settings}
        config = RolloutConfig(model_path=str(tmp_path / "model"), backend="toy", **settings)
        plugins = Plugins.from_objects(config, ToyBackend())
        return Controller(plugins, log_dir=tmp_path / "logs", on_event=on_event)

    return make
