"""A client whose engines are functions: the edge is faked, everything of ours is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import orjson
import pytest

from rollout_core import ModelInfo, Plugins, RolloutClient, RolloutConfig
from rollout_core.controller import Endpoint, EngineState, Member, View
from rollout_core.types import PauseMode
from rollout_transformers import plugin

Body = Mapping[str, Any]
Engine = Callable[[Body], "httpx.Response | dict[str, Any]"]


def good_reply(body: Body, **more: Any) -> dict[str, Any]:
    """What the embedded server answers to a request for two tokens."""
    reply = {
        "request_id": body["request_id"],
        "token_ids": [5, 6],
        "logprobs": [-0.5, -1.5],
        "sampled_logprobs": None,
        "top_logprobs": None,
        "prompt_logprobs": None,
        "routed_experts": None,
        "text": "ab",
        "finish_reason": "length",
        "stop_reason": None,
        "weight_versions": [[3, 0, 2]],
        "prompt_tokens": len(body["prompt_ids"]),
        "cached_tokens": 0,
        "timing": {"queued_s": 0.1, "prefill_s": 0.2, "decode_s": 0.3},
        "error": None,
    }
    return {**reply, **more}


class Fleet:
    """Engines named ``engine-0`` and on, and what the client reports of them."""

    def __init__(self, engines: list[Engine], **settings: Any) -> None:
        config = RolloutConfig(model_path="m", **settings)
        self.plugins = Plugins.from_objects(config, plugin)
        self.model = ModelInfo("m", "Toy", vocab_size=100, context_length=16, eos_token_ids=(2,), fingerprint="")
        self.context_length = 16
        self.engines = engines
        self.dead: set[str] = set()
        self.paused: PauseMode | None = None
        self.successes: list[str] = []
        self.faults: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, Body]] = []
        """What each engine was sent."""

    @property
    def view(self) -> View:
        names = [f"engine-{i}" for i in range(len(self.engines)) if f"engine-{i}" not in self.dead]
        return View(
            tuple(Endpoint(name, f"http://{name}") for name in names),
            dict.fromkeys(names, EngineState.READY),
            dict.fromkeys(self.dead, "it was killed"),
            self.paused,
        )

    def join(self, on_change: Callable[[], None]) -> Member:
        self.on_change = on_change
        return Member(60, on_change)

    def acknowledge(self, member: Member, epoch: int, in_flight: int) -> None:
        self.acknowledged = (epoch, in_flight)

    def leave(self, member: Member) -> None:
        self.on_change = lambda: None

    def pause(self, mode: PauseMode | None) -> None:
        self.paused = mode
        self.on_change()

    def report_success(self, engine_name: str) -> None:
        self.successes.append(engine_name)

    def report_fault(self, engine_name: str, reason: str) -> None:
        self.faults.append((engine_name, reason))

    def client(self) -> RolloutClient:
        return RolloutClient(self, transport=httpx.MockTransport(self._answer))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        host, body = request.url.host, orjson.loads(request.content)
        self.bodies.append((host, body))
        await asyncio.sleep(0)  # as on a network, others are sent meanwhile
        answer = self.engines[int(host.removeprefix("engine-"))](body)
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)


MakeFleet = Callable[..., Fleet]


@pytest.fixture
def fleet() -> MakeFleet:
    """Makes a fleet of the given engines; without arguments, of one good engine."""

    def make(*engines: Engine, **settings: Any) -> Fleet:
        return Fleet(list(engines) or [good_reply], **settings)

    return make


@pytest.fixture
def reply() -> Callable[..., dict[str, Any]]:
    """Makes a good reply, with the given fields replaced."""
    return good_reply
