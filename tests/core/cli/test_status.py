"""``rollout status``"""

import json
import os
from dataclasses import replace

import pytest

from rollout_core import Controller, ControlServer, Plugins, RolloutConfig
from rollout_core.cli import status as command
from rollout_core.control import RunStatus, TrainerStatus
from rollout_core.controller import ClientStatus, ControllerStatus, EngineState, EngineStatus
from rollout_core.types import CachePolicy, MemoryPart, PauseMode
from rollout_transformers import plugin

FOUND = RunStatus(
    "0.1.0",
    ControllerStatus(
        pid=7,
        backend="toy",
        model="tiny",
        log_dir="logs",
        paused=None,
        weight_version=3,
        cache_policy=None,
        offloaded=(),
        weights_dropped=False,
        engines=(
            EngineStatus("engine-0", EngineState.READY, ("http://127.0.0.1:1",)),
            EngineStatus("engine-1", EngineState.FAILED, (), "it was killed"),
        ),
        clients=(ClientStatus("a", None, 4, 0.0, 10.0), ClientStatus("b", 8, 1, 1.23, 10.0)),
    ),
    (),
)


@pytest.fixture
def served(tmp_path):
    """The output folder of a job whose engines have not been started yet."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 100}')
    config = RolloutConfig(model_path=str(tmp_path / "model"))
    controller = Controller(Plugins.from_objects(config, plugin), log_dir=tmp_path / "logs")
    with ControlServer(controller, tmp_path / "out" / "control.json"):
        yield tmp_path / "out"
    controller.close()


def test_a_running_job_is_shown(cli, served):
    result = cli("status", str(served))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"job        transformers, model, process {os.getpid()}, rollout-core 0.1.0",
        "generation running",
        "weights    version 0",
        "memory     all loaded",
        "clients    0, 0 requests in flight",
    ]


def test_the_current_folder_is_the_default_and_json_is_for_programs(cli, served, monkeypatch):
    monkeypatch.chdir(served)
    shown = json.loads(cli("status", "--json").stdout)
    assert (shown["version"], shown["controller"]["paused"], shown["trainers"]) == ("0.1.0", None, [])


def test_without_a_controller_the_exit_code_is_1(cli, tmp_path):
    result = cli("status", str(tmp_path))
    assert result.exit_code == 1
    assert "no controller at" in result.stderr


def test_engines_and_clients_have_a_line_each():
    assert list(command._lines(FOUND))[4:] == [
        "engine-0   ready  http://127.0.0.1:1",
        "engine-1   failed  it was killed",
        "clients    2, 5 requests in flight",
        "           the job's own: 4 in flight",
        "           process 8: 1 in flight, heard of 1.2 s ago (lease 10 s)",
    ]


def test_a_weight_step_is_shown():
    run = replace(
        FOUND.controller,
        paused=PauseMode.ABORT,
        cache_policy=CachePolicy.FLUSH,
        offloaded=(MemoryPart.KV_CACHE, MemoryPart.WEIGHTS),
        weights_dropped=True,
        engines=(),
        clients=(),
    )
    found = replace(FOUND, controller=run, trainers=(TrainerStatus(9, 0.5, 30.0, True),), notice="a trainer was lost")
    assert list(command._lines(found))[1:] == [
        "generation paused (abort)",
        "weights    version 3, cache flush, discarded, to be written anew",
        "memory     offloaded: kv_cache, weights",
        "clients    0, 0 requests in flight",
        "trainer    process 9, heard of 0.5 s ago (lease 30 s), holds the pause",
        "notice     a trainer was lost",
    ]
