"""Memory really goes back to the system, and what is half written is never served."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
import transformers

from rollout_core import (
    Controller,
    EngineError,
    GenerateRequest,
    GenerateResult,
    Plugins,
    RolloutClient,
    RolloutConfig,
    SampleParams,
    Status,
)
from rollout_core.controller import EngineState
from rollout_core.weights import FromFolder, WeightPublisher
from rollout_core.weights.tensors import Portion, write_portion

WEIGHTS_MB = 150
PROMPT = tuple(range(100, 120))


@pytest.fixture(scope="module")
def big(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose weights are large beside the rest of the process."""
    folder = tmp_path_factory.mktemp("big")
    config = transformers.LlamaConfig.from_pretrained(checkpoint("llama"))
    config.hidden_size, config.intermediate_size, config.head_dim = 640, 1280, 160
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(checkpoint("llama")).save_pretrained(folder)
    assert (folder / "model.safetensors").stat().st_size > WEIGHTS_MB * 2**20
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Controller]]:
    """A function that starts a controller; it ends with the test."""
    started: list[Controller] = []

    def run(folder: Path, **settings: Any) -> Controller:
        config = RolloutConfig(model_path=str(folder), backend="transformers", **settings)
        controller = Controller(Plugins.load(config), log_dir=tmp_path / "logs")
        started.append(controller)
        controller.start()
        return controller

    yield run
    for controller in started:
        controller.close()


def server_of(controller: Controller) -> psutil.Process:
    """The engine's server process (its parent guards it)."""
    url = controller.view.endpoints[0].url
    port = int(url.rsplit(":", 1)[1])
    found = [
        child
        for child in psutil.Process().children(recursive=True)
        for connection in child.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    return found[0]


def resident_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def draw(controller: Controller, n: int = 1) -> list[GenerateResult]:
    async def run() -> list[GenerateResult]:
        async with RolloutClient(controller) as client:
            params = SampleParams(temperature=0, max_tokens=8, ignore_eos=True)
            requests = (GenerateRequest(PROMPT, params, session_id=f"s{i}") for i in range(n))
            return list(await asyncio.gather(*map(client.generate, requests)))

    return asyncio.run(run())


def test_offloaded_weights_leave_the_memory_of_the_process(start: Any, big: Path) -> None:
    controller = start(big)
    before_tokens = draw(controller)[0].token_ids
    server = server_of(controller)
    loaded = resident_mb(server)
    with controller.paused():
        controller.offload()
        asleep = resident_mb(server)
        controller.onload()
        awake = resident_mb(server)
    assert loaded - asleep > 0.9 * WEIGHTS_MB
    assert awake - asleep > 0.9 * WEIGHTS_MB
    assert draw(controller)[0].token_ids == before_tokens


def test_discarded_weights_leave_it_too(start: Any, big: Path) -> None:
    controller = start(big)
    server = server_of(controller)
    loaded = resident_mb(server)
    with controller.paused():
        controller.offload(["weights"], discard_weights=True)
        assert loaded - resident_mb(server) > 0.9 * WEIGHTS_MB
        controller.onload()
        controller.update_weights(FromFolder(big))
    assert draw(controller)[0].status is Status.COMPLETED


def test_an_offload_that_finds_the_disk_full_changes_nothing(start: Any, big: Path) -> None:
    controller = start(big, backend_options={"offload_folder": "/proc/no-such-folder"})
    tokens = draw(controller)[0].token_ids
    with controller.paused(), pytest.raises(EngineError, match="/offload answered 500"):
        controller.offload(["weights"])
    assert draw(controller)[0].token_ids == tokens


def test_a_request_to_a_sleeping_server_is_refused_with_the_reason(start: Any, checkpoint: Any) -> None:
    controller = start(checkpoint("llama"))
    url = controller.view.endpoints[0].url
    with controller.paused():
        controller.offload(["weights"])
        reply = httpx.post(f"{url}/generate", json={"prompt_ids": [1, 2]})
    assert reply.status_code == 503
    assert reply.json()["error"] == {"type": "asleep", "message": "nothing is generated: the weights are offloaded"}


def state_of(folder: Path) -> dict[str, torch.Tensor]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return dict(model.state_dict())


def test_an_engine_killed_in_the_middle_costs_the_others_nothing(start: Any, big: Path) -> None:
    controller = start(big, engines=2)
    tensors = state_of(big)
    victim = server_of(controller)
    with WeightPublisher(controller, bucket_bytes=2**20) as publisher:
        threading.Timer(0.15, lambda: os.kill(victim.pid, signal.SIGKILL)).start()
        report = publisher.publish(tensors.items())
    assert report.engines == ("engine-1",)
    assert "engine-0" in report.quarantined
    assert [result.engine for result in draw(controller, 4)] == ["engine-1"] * 4
    assert controller.view.states["engine-0"] in (EngineState.FAILED, EngineState.QUARANTINED)


def test_when_all_engines_die_while_asleep_requests_fail_and_do_not_wait(start: Any, checkpoint: Any) -> None:
    controller = start(checkpoint("llama"))

    def step() -> None:
        with controller.paused():
            controller.offload()
            os.kill(server_of(controller).pid, signal.SIGKILL)

    with pytest.raises(EngineError, match="no engine is in service"):
        step()
    (result,) = draw(controller)
    assert (result.status, controller.view.paused) == (Status.FAILED, None)
    assert "no engine is in service" in (result.error or "")


def test_a_half_written_engine_serves_nothing_until_an_update_succeeds(
    start: Any, checkpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint("llama")
    controller = start(folder)
    tokens, state = draw(controller)[0].token_ids, state_of(folder)
    url = controller.view.endpoints[0].url

    def breaks(portion: Portion, buffer: torch.Tensor) -> None:
        if "embed_tokens" not in portion.specs[0].name:  # the second bucket
            raise RuntimeError("out of memory")
        write_portion(portion, buffer)

    with WeightPublisher(controller, bucket_bytes=2**10) as publisher:
        with monkeypatch.context() as patch:
            patch.setattr("rollout_core.weights.publisher.write_portion", breaks)
            with pytest.raises(RuntimeError, match="out of memory"):
                publisher.publish(state.items())
        assert controller.view.states == {"engine-0": EngineState.QUARANTINED}
        health = httpx.get(f"{url}/health").json()
        assert (health["detail"], health["weight_version"]) == ("an update of the weights was not finished", 0)
        assert httpx.post(f"{url}/continue", json={}).status_code == 409
        refused = draw(controller)[0]
        assert (refused.status, refused.token_ids) == (Status.FAILED, ())
        assert "stopped sending weights: out of memory" in (refused.error or "")
        publisher.publish(state.items())
    assert draw(controller)[0].token_ids == tokens
