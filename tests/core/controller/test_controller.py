"""Engines are started, watched and ended as real processes."""

import asyncio
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollout_core import (
    CapabilityError,
    ConfigError,
    DeadlineError,
    EngineError,
    GenerateRequest,
    GenerateResult,
    LaunchError,
    ModelError,
    Plugins,
    RolloutClient,
    RolloutConfig,
    Status,
)
from rollout_core.controller import Controller, EngineEvent, EngineState
from rollout_core.types import PauseMode

Make = Callable[..., Controller]


def family(log_dir: Path) -> list[int]:
    """Process ids of the helpers that the toy servers started."""
    return [int(pid) for log in log_dir.glob("*.log") for pid in re.findall(r"helper (\d+)", log.read_text())]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def server_pid(controller: Controller, engine: int) -> int:
    return int(httpx.get(controller.view.endpoints[engine].url + "/health").json()["pid"])


def set_state(controller: Controller, engine: int, **state: Any) -> None:
    httpx.post(controller.view.endpoints[engine].url + "/state", json=state)


def generate(controller: Controller, count: int = 1) -> list[GenerateResult]:
    async def run() -> list[GenerateResult]:
        async with RolloutClient(controller) as client:
            return await asyncio.gather(*(client.generate(GenerateRequest((1, 2))) for _ in range(count)))

    return asyncio.run(run())


def test_engines_start_serve_and_leave_no_process_and_no_port(controller: Make) -> None:
    with controller(engines=3) as running:
        urls = [endpoint.url for endpoint in running.view.endpoints]
        results = generate(running, 30)
        helpers = family(running.log_dir)
    assert len(set(urls)) == 3
    assert {result.status for result in results} == {Status.COMPLETED}
    assert {result.engine for result in results} == {"engine-0", "engine-1", "engine-2"}
    assert len(helpers) == 3
    assert not any(map(alive, helpers))
    for url in urls:
        with socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1]))):
            pass


def test_every_change_of_an_engine_is_told(controller: Make) -> None:
    events: list[EngineEvent] = []
    with controller(on_event=events.append, backend_options={"behaviours": ["slow"]}):
        pass
    states = [event.state for event in events]
    assert states[0] is EngineState.STARTING
    assert states[-2:] == [EngineState.READY, EngineState.STOPPED]
    assert "loading" in {event.detail for event in events}


def test_a_server_that_dies_at_the_start_shows_the_end_of_its_log_and_stops_the_others(controller: Make) -> None:
    starting = controller(engines=2, backend_options={"behaviours": ["good", "crash"]})
    with pytest.raises(LaunchError, match=r"engine-1 ended with status 1(?s:.)*cannot load the weights"):
        starting.start()
    assert not any(map(alive, family(starting.log_dir)))


def test_a_server_that_never_listens_passes_the_startup_deadline(controller: Make) -> None:
    starting = controller(startup_timeout_s=0.7, backend_options={"behaviours": ["hang"]})
    with pytest.raises(DeadlineError, match=r"engine-0: becoming ready took longer(?s:.)*raise startup_timeout_s"):
        starting.start()
    assert not any(map(alive, family(starting.log_dir)))


def test_an_engine_that_is_killed_goes_out_of_service_and_the_rest_serves_on(controller: Make) -> None:
    with controller(engines=2) as running:
        os.kill(server_pid(running, 0), signal.SIGKILL)
        wait_for(lambda: len(running.view.endpoints) == 1)
        assert "ended with status 137" in running.view.reasons["engine-0"]
        assert {result.engine for result in generate(running, 4)} == {"engine-1"}


def test_a_request_on_an_engine_that_dies_is_served_by_another(controller: Make) -> None:
    with controller(engines=2, backend_options={"body": {"sleep_s": 1.0}}) as running:
        victim = server_pid(running, 0)

        async def run() -> list[GenerateResult]:
            async with RolloutClient(running) as client:
                tasks = [asyncio.create_task(client.generate(GenerateRequest((1,)))) for _ in range(4)]
                await asyncio.sleep(0.3)
                os.kill(victim, signal.SIGKILL)
                return await asyncio.gather(*tasks)

        results = asyncio.run(run())
    assert {result.status for result in results} == {Status.COMPLETED}
    assert sorted(result.attempts for result in results) == [1, 1, 2, 2]
    assert len({result.request_id for result in results}) == 4


def test_a_request_that_kills_every_engine_fails_after_its_attempts_with_the_reason(controller: Make) -> None:
    with controller(engines=2, backend_options={"body": {"die": True}}) as running:
        (result,) = generate(running)
    assert result.status is Status.FAILED
    assert re.search("was lost|no engine is in service", result.error or "")


def test_failed_health_checks_in_a_row_take_an_engine_out_of_service(controller: Make) -> None:
    with controller(health_check_interval_s=0.05, health_check_failure_threshold=2) as running:
        set_state(running, 0, healthy=False)
        wait_for(lambda: not running.view.endpoints)
        assert "2 health checks in a row failed" in running.view.reasons["engine-0"]
        with pytest.raises(EngineError, match="no engine is in service"):
            running.pause_generation(PauseMode.ABORT)


def test_an_engine_with_requests_but_without_progress_is_stalled(controller: Make) -> None:
    with controller(health_check_interval_s=0.05, rollout_timeout_s=0.4) as running:
        set_state(running, 0, running=3)
        wait_for(lambda: not running.view.endpoints)
        assert "has requests but made no progress" in running.view.reasons["engine-0"]


def test_a_busy_engine_that_progresses_stays_in_service_beyond_the_timeout(controller: Make) -> None:
    with controller(health_check_interval_s=0.05, rollout_timeout_s=0.4) as running:
        for progress in range(10):
            set_state(running, 0, running=3, progress=progress)
            time.sleep(0.1)
        assert len(running.view.endpoints) == 1


def test_control_calls_reach_every_engine(controller: Make) -> None:
    with controller(engines=2) as running:
        assert running.pause_generation(PauseMode.KEEP).mode is PauseMode.KEEP
        running.continue_generation()
        assert running.abort_requests(["a"]) == 2
        assert {name: health.alive for name, health in running.health().items()} == {"engine-0": True, "engine-1": True}


def test_a_mode_that_the_backend_lacks_is_refused_and_generation_goes_on(controller: Make) -> None:
    with controller() as running:
        with pytest.raises(CapabilityError, match="does not offer pause_wait"):
            running.pause_generation("wait")
        assert running.view.paused is None


def test_a_pause_is_undone_when_the_block_raises(controller: Make) -> None:
    def fail_inside(running: Controller) -> None:
        with running.paused("abort"):
            assert running.view.paused is PauseMode.ABORT
            raise ZeroDivisionError

    with controller() as running:
        with pytest.raises(ZeroDivisionError):
            fail_inside(running)
        assert running.view.paused is None
        assert generate(running)[0].status is Status.COMPLETED


def test_a_pause_that_an_engine_refuses_is_undone_at_the_gates(controller: Make) -> None:
    with controller() as running:
        set_state(running, 0, refuse=True)
        with pytest.raises(EngineError, match="answered 500"):
            running.pause_generation("abort")
        set_state(running, 0, refuse=False)
        assert running.view.paused is None


def test_pausing_twice_and_continuing_without_a_pause_are_harmless(controller: Make) -> None:
    with controller() as running:
        running.continue_generation()
        running.pause_generation("abort")
        running.pause_generation("abort")
        running.continue_generation()
        running.continue_generation()
        assert running.view.paused is None


def test_a_dead_client_holds_up_a_pause_no_longer_than_its_lease(controller: Make) -> None:
    with controller(client_lease_s=0.3) as running:
        silent = running.join(lambda: None)
        report = running.pause_generation("abort")
        assert (report.clients, report.lost_clients) == (0, 1)
        assert 0.1 < report.seconds < 2
        running.leave(silent)


def test_requests_made_while_paused_wait_at_the_gate_and_are_served_afterwards(controller: Make) -> None:
    with controller() as running:

        async def run() -> GenerateResult:
            async with RolloutClient(running) as client:
                running.pause_generation("keep")  # from the loop's own thread: must not deadlock
                aborted = await client.generate(GenerateRequest((1,)), when_paused="abort")
                assert (aborted.status, aborted.token_ids) == (Status.ABORTED, ())
                waiting = asyncio.create_task(client.generate(GenerateRequest((1,))))
                await asyncio.sleep(0.1)
                assert not waiting.done()
                running.continue_generation()
                return await waiting

        assert asyncio.run(run()).status is Status.COMPLETED


def test_a_pause_tells_what_the_clients_had_in_flight(controller: Make) -> None:
    with controller(backend_options={"body": {"sleep_s": 0.5}}) as running:

        async def run() -> int:
            async with RolloutClient(running) as client:
                tasks = [asyncio.create_task(client.generate(GenerateRequest((1,)))) for _ in range(5)]
                await asyncio.sleep(0.1)
                report = await asyncio.to_thread(running.pause_generation, "abort")
                running.continue_generation()
                await asyncio.gather(*tasks)
                assert report.clients == 1
                return report.in_flight

        assert asyncio.run(run()) == 5


def test_closing_twice_is_harmless(controller: Make) -> None:
    with controller() as running:
        running.close()
    running.close()


def test_a_missing_model_folder_is_refused_before_anything_starts(controller: Make) -> None:
    plugins = controller().plugins
    plugins.config = RolloutConfig(model_path="/no/such/model", backend="toy")
    with pytest.raises(ModelError, match="does not exist"):
        Controller(plugins)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"gpus": 16}, ConfigError, "needs 2 nodes, and executor 'local' has one"),
        ({"gpus": 2, "engines": 3}, ConfigError, "3 engines of 1 gpus need 3, but gpus is 2"),
        ({"tensor_parallel": 2}, CapabilityError, "tensor_parallel"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    controller: Make, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        controller(**settings)


def test_plugins_are_loaded_per_run(controller: Make) -> None:
    assert isinstance(controller().plugins, Plugins)
    assert controller().plugins is not controller().plugins


def test_an_engine_may_be_stopped_from_several_threads_at_once(controller: Make) -> None:
    with controller() as running:
        (engine,) = running._fleet.engines
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: engine.stop(), range(8)))
        assert engine.exited() is not None
