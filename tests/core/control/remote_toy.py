"""A backend that every process of a test can load by its entry point, and its server: no model, real HTTP.

The prompt says what happens: ``(1,)`` is answered with one token at once, ``(2,)`` is held until it is aborted, and
``(3,)`` is an error of the engine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict

from rollout_core import Cluster, EngineError, ReplyError, RolloutConfig, Topology, WeightUpdateError, hookimpl
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
    MemoryPart,
    PauseMode,
    Reply,
    Server,
    Spawn,
    WeightUpdate,
)

HOLD, FAIL = 2, 3
CAPABILITIES = frozenset(
    {
        Capability.API_KEY,
        Capability.CONTINUATION,
        Capability.PAUSE_ABORT,
        Capability.PAUSE_KEEP,
        Capability.OFFLOAD_WEIGHTS,
        Capability.OFFLOAD_KV_CACHE,
        Capability.DISCARD_WEIGHTS,
        Capability.WEIGHTS_FROM_DISK,
        Capability.WEIGHTS_FROM_SHARED_MEMORY,
    }
)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")


@hookimpl
def describe_backend() -> BackendInfo:
    return BackendInfo("remote-toy", PLUGIN_API, Options, CAPABILITIES)


@hookimpl
def build_topology(config: RolloutConfig, cluster: Cluster) -> Topology:
    return Topology.uniform(cluster, 1)


@hookimpl
def launch_server(config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
    key = config.api_keys[0].get_secret_value() if config.api_keys else ""
    return Server(spec.url, spawn([sys.executable, __file__, spec.host, str(spec.port)], {"TOY_KEY": key}))


@hookimpl
def build_payload(config: RolloutConfig, request: GenerateRequest) -> HttpCall:
    return HttpCall("/generate", {"id": request.request_id, "prompt": request.prompt_ids[0]})


@hookimpl
def parse_response(config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
    body = reply.body
    if not isinstance(body, dict) or body["id"] != request.request_id:
        raise ReplyError(f"not my reply: {body}")
    count = len(body["ids"])
    return GenerateResult(
        request.request_id,
        request.prompt_ids,
        tuple(body["ids"]),
        (-1.0,) * count,
        weight_versions=(body["version"],) * count,
        finish_reason=FinishReason(body["finish"]),
    )


@hookimpl
def pause_generation(config: RolloutConfig, server: Server, mode: PauseMode, call: Call) -> Ack:
    return Ack(aborted=_ok(call(HttpCall("/pause", {"mode": mode.value})))["aborted"])


@hookimpl
def continue_generation(config: RolloutConfig, server: Server, call: Call) -> Ack:
    _ok(call(HttpCall("/continue", {})))
    return Ack()


@hookimpl
def abort_requests(config: RolloutConfig, server: Server, request_ids: Sequence[str] | None, call: Call) -> Ack:
    ids = None if request_ids is None else list(request_ids)
    return Ack(aborted=_ok(call(HttpCall("/abort", {"ids": ids})))["aborted"])


@hookimpl
def offload(config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], discard: bool, call: Call) -> Ack:
    _ok(call(HttpCall("/offload", {"parts": sorted(parts)})))
    return Ack()


@hookimpl
def onload(config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], call: Call) -> Ack:
    _ok(call(HttpCall("/onload", {"parts": sorted(parts)})))
    return Ack()


@hookimpl
def update_weights(config: RolloutConfig, server: Server, update: WeightUpdate, call: Call) -> Ack:
    if any(spec.name == "unexpected" for spec in update.tensors):
        raise WeightUpdateError("unexpected is no parameter of this model")
    for bucket in update.buckets:
        _ok(call(HttpCall("/bucket", {"path": bucket.shared_memory, "names": [spec.name for spec in bucket.tensors]})))
    return Ack(weight_version=_ok(call(HttpCall("/set_version", {"version": update.version})))["version"])


@hookimpl
def check_health(config: RolloutConfig, server: Server, call: Call) -> Health:
    body = _ok(call(HttpCall("/health", method="GET")))
    return Health(True, body["progress"], body["held"])


def _ok(reply: Reply) -> dict[str, Any]:
    if not reply.ok or not isinstance(reply.body, dict):
        raise EngineError(f"answered {reply.status}: {reply.body}")
    return reply.body


class Engine:
    """The server: what it was told, in the order in which it was told."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        self.told: list[str] = []
        self.buckets: list[str] = []
        self.offloaded: set[str] = set()
        self.version = 0
        self.served = 0
        self.paused = False

    async def answer(self, request: web.Request) -> web.Response:
        key = os.environ["TOY_KEY"]
        if key and request.headers.get("authorization") != f"Bearer {key}":
            return web.json_response({"error": "no key"}, status=401)
        body = orjson.loads(await request.read() or b"{}")
        name = request.path.strip("/")
        if name == "generate" and body["prompt"] == FAIL:
            return web.json_response({"error": "broken"}, status=500)
        if name == "generate":
            return web.json_response(await self.generate(**body))
        if name != "health":
            self.told.append(name)
        return web.json_response(getattr(self, name)(**body))

    async def generate(self, id: str, prompt: int) -> dict[str, Any]:
        assert not self.paused, "a request came through a closed gate"
        if prompt != HOLD:
            self.served += 1
            return {"id": id, "ids": [1], "finish": "stop", "version": self.version}
        self.held[id] = asyncio.Event()
        await self.held[id].wait()
        return {"id": id, "ids": [], "finish": "abort", "version": self.version}

    def abort(self, ids: list[str] | None) -> dict[str, Any]:
        chosen = [name for name in (self.held if ids is None else ids) if name in self.held]
        for name in list(chosen):
            self.held.pop(name).set()
        return {"aborted": len(chosen)}

    def pause(self, mode: str) -> dict[str, Any]:
        self.paused = True
        return self.abort(None) if mode == "abort" else {"aborted": 0}

    def offload(self, parts: list[str]) -> dict[str, Any]:
        self.offloaded |= set(parts)
        return {}

    def onload(self, parts: list[str]) -> dict[str, Any]:
        self.offloaded -= set(parts)
        return {}

    def bucket(self, path: str, names: list[str]) -> dict[str, Any]:
        with open(path, "rb") as file:
            self.buckets.append(f"{','.join(names)}:{file.read(1)[0]}")
        return {}

    def set_version(self, version: int) -> dict[str, Any]:
        self.version = version
        return {"version": version}

    def resume(self) -> dict[str, Any]:
        self.paused = False
        return {}

    def health(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "progress": self.served,
            "held": len(self.held),
            "told": self.told,
            "buckets": self.buckets,
            "offloaded": sorted(self.offloaded),
            "paused": self.paused,
        }


def main(host: str, port: int) -> None:
    engine = Engine()
    # No name in Python.
    setattr(engine, "continue", engine.resume)
    application = web.Application()
    application.router.add_route("*", "/{call}", engine.answer)
    web.run_app(application, host=host, port=port, print=None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
