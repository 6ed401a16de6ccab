"""A controller that is killed, and one that comes in its place; a job of the command line."""

import json
import os
import subprocess
import sys

import pytest

from rollout_core import GenerateRequest, RemoteController, RolloutClient, Status

CONTROLLER = """
config = RolloutConfig(
    model_path=str(Path(where).parent / "model"), backend="remote-toy", client_lease_s=2.0, shutdown_timeout_s=2.0
)
with Controller(Plugins.load(config)) as controller, ControlServer(controller, Path(where) / "control.json"):
    say("serving")
    hear()
"""


async def draw_until(client, wanted):
    """Draw samples until one ends as wanted."""
    while True:
        result = await client.generate(GenerateRequest((1,)))
        if wanted(result):
            return result


@pytest.mark.usefixtures("run")
async def test_a_client_outlives_its_controller_and_goes_on_with_the_next(other, tmp_path):
    where = str(tmp_path / "run")
    first = other(CONTROLLER, where)
    assert first.heard() == "serving"
    async with RolloutClient.connect(where) as client:
        assert (await client.generate(GenerateRequest((1,)))).status is Status.COMPLETED
        first.kill()
        lost = await draw_until(client, lambda result: "not heard of" in (result.error or ""))
        assert f"(process {first.process.pid}) at http://127.0.0.1" in (lost.error or "")
        second = other(CONTROLLER, where)
        assert second.heard() == "serving"
        assert (await draw_until(client, lambda result: result.status is Status.COMPLETED)).engine == "engine-0"
        with RemoteController.connect(where) as remote:
            assert [client.pid for client in remote.status().controller.clients] == [os.getpid()]
            assert remote.pause_generation("abort").clients == 1
            remote.continue_generation()


def test_a_running_job_can_be_asked_and_paused(site, run, wait_for, tmp_path, save_tokenizer):
    save_tokenizer(tmp_path / "model")
    (tmp_path / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": [2]}) for _ in range(5)))
    words = ["run", "--backend", "remote-toy", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out")]
    words += ["--prompts", str(tmp_path / "prompts.jsonl"), "--max-tokens", "1"]
    rollout = [sys.executable, "-m", "rollout_core"]
    env = {**os.environ, "PYTHONPATH": site}
    job = subprocess.Popen([*rollout, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def status():
            return subprocess.run([*rollout, "status", str(tmp_path / "out")], capture_output=True, text=True).stdout

        wait_for(lambda: "the job's own: 5 in flight" in status(), 60)
        with RemoteController.connect(tmp_path / "out") as remote:
            with remote.paused("keep") as report:
                assert (report.clients, report.in_flight) == (1, 5)
                assert "paused (keep)" in status()
            assert remote.abort_requests() == 5
        job.wait(30)
        assert not (tmp_path / "out" / "control.json").exists()
    finally:
        job.kill()
        job.wait()
