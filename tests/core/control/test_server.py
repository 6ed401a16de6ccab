"""Who may use the control server, and what is said to those who may not."""

import json
import logging
import os
import stat
from contextlib import closing

import httpx
import pytest

from rollout_core import ControlError, ControlServer, OutputError, PluginError, RemoteController, RolloutClient
from rollout_core.config import RolloutConfig
from rollout_core.control import Connection, RunStatus, link
from rollout_core.control.address import Address
from rollout_core.control.link import Link
from rollout_core.control.messages import Greeting


def connection_of(started):
    return Address(started.where).read()


def post(started, call, **arguments):
    connection = connection_of(started)
    headers = {"authorization": f"Bearer {connection.token}", "x-rollout-core": "0.1.0"}
    return httpx.post(f"{connection.url}/{call}", json=arguments, headers=headers)


def test_the_connection_file_is_this_users_alone_and_goes_with_the_server(run):
    started = run()
    assert stat.S_IMODE(os.stat(started.server.file).st_mode) == 0o600
    connection = connection_of(started)
    assert connection.url.startswith("http://127.0.0.1:")
    assert connection.token not in repr(connection)
    assert [entry.name for entry in started.server.file.parent.iterdir()] == ["control.json"]
    started.server.close()
    assert not started.server.file.exists()
    started.server.close()


def test_a_server_leaves_the_file_of_its_successor_alone(run):
    started = run()
    with ControlServer(started.controller, started.server.file):
        started.server.close()
        assert RemoteController.connect(started.where).close() is None


@pytest.mark.parametrize("authorization", [b"", b"Bearer wrong", b"Bearer \xff\xfe", b"Basic abc"])
def test_without_the_token_nothing_is_answered(run, authorization):
    reply = httpx.post(f"{connection_of(run()).url}/status", headers={"authorization": authorization})
    assert reply.status_code == 401
    assert "the token is wrong" in reply.json()["message"]


def test_a_wrong_token_is_told_to_clients_and_trainers(run):
    wrong = Connection(connection_of(run()).url, "wrong")
    for connect in (RolloutClient.connect, RemoteController.connect):
        with pytest.raises(ControlError, match="the token is wrong; read the connection file again"):
            connect(wrong)


def test_the_token_and_the_keys_are_not_logged(run, caplog):
    caplog.set_level(logging.DEBUG)
    started = run(api_keys=["very-secret"])
    with RemoteController.connect(started.where) as remote:
        remote.pause_generation("abort")
        remote.continue_generation()
    assert connection_of(started).token not in caplog.text
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize("version", ["0.2.0", "1.1.0", "nonsense"])
def test_another_minor_version_of_core_is_refused_with_both_versions(run, monkeypatch, version):
    started = run()
    monkeypatch.setattr(link, "__version__", version)
    with pytest.raises(ControlError, match=rf"this process has rollout-core {version}, and the controller 0\.1\.0"):
        RolloutClient.connect(started.where)


def test_another_patch_version_of_core_is_fine(run, monkeypatch):
    started = run()
    monkeypatch.setattr(link, "__version__", "0.1.99")
    with RemoteController.connect(started.where) as remote:
        assert remote.status().version == "0.1.0"


def test_an_unknown_call_and_wrong_arguments_are_told(run):
    started = run()
    assert post(started, "nothing").status_code == 404
    assert "there are abort_requests, attach" in post(started, "nothing").json()["message"]
    reply = post(started, "join", pid="many")
    assert (reply.status_code, reply.json()["message"].startswith("join: ")) == (400, True)
    assert post(started, "join", pid=1, more=2).status_code == 400
    assert post(started, "watch", member="x", epoch=0, in_flight=0, succeeded=[], wait_s=0).status_code == 410


def test_a_bug_in_the_controller_is_told_and_the_server_goes_on(run, monkeypatch):
    started = run()

    def broken():
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(started.controller, "status", broken)
        reply = post(started, "status")
    assert reply.status_code == 500
    assert "broke in the controller: ZeroDivisionError: a bug" in reply.json()["message"]
    assert post(started, "status").status_code == 200


def test_where_no_controller_is_the_error_says_so(tmp_path):
    with pytest.raises(ControlError, match=r"control\.json does not exist; it is there while the controller runs"):
        RolloutClient.connect(tmp_path)
    (tmp_path / "control.json").write_text("{}")
    with pytest.raises(ControlError, match="is no connection file of a controller"):
        RolloutClient.connect(tmp_path)


def test_a_file_that_a_killed_controller_left_behind_is_told_apart(tmp_path):
    (tmp_path / "control.json").write_text('{"url": "http://127.0.0.1:9", "token": "t", "pid": 4711}')
    with pytest.raises(ControlError, match=r"\(process 4711\) at http://127\.0\.0\.1:9 does not answer.*still running"):
        RolloutClient.connect(tmp_path)


def test_a_server_that_was_not_started_can_be_closed(run):
    ControlServer(run().controller).close()


def test_a_file_that_cannot_be_written_is_an_error_of_the_output(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"control\.json cannot be written"):
        ControlServer(run().controller, tmp_path / "file" / "control.json").start()


def test_the_config_travels_whole_with_its_secrets(run):
    started = run(api_keys=["very-secret"], env={"HF_TOKEN": "hf"}, log_dir=None, port_range=(21000, 22000))
    with closing(Link(connection_of(started))) as to_server:
        greeting = to_server.call("hello", Greeting)
    mine, theirs = started.controller.plugins.config, RolloutConfig.model_validate(greeting.config)
    assert theirs.api_keys[0].get_secret_value() == "very-secret"
    assert theirs.model_dump(exclude={"backend_options"}) == mine.model_dump(exclude={"backend_options"})
    assert greeting.model == started.controller.model


def test_a_client_without_the_runs_backend_says_what_to_install(run, monkeypatch):
    started = run()
    monkeypatch.setattr("rollout_core.plugins.manager.entry_points", lambda **_: [])
    with pytest.raises(PluginError, match="'remote-toy' is not installed"):
        RolloutClient.connect(started.where)


def test_the_status_is_json_without_secrets(run):
    started = run(api_keys=["very-secret"])
    reply = post(started, "status")
    assert "very-secret" not in reply.text
    status = json.loads(reply.text)
    assert status["controller"]["engines"][0]["state"] == "ready"
    assert isinstance(started.status(), RunStatus)
