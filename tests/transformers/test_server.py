"""The HTTP face, over a real server process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

KEY = "a-key"


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


class Server:
    """A server process and a client of it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "rollout_transformers.engine", "--config-json"]
        self.process = subprocess.Popen([*command, json.dumps({**settings, "port": port})])
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {KEY}"}, timeout=60
        )

    def ready(self) -> bool:
        assert self.process.poll() is None, "the server ended"
        try:
            return self.client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.client.post(path, json=body)

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.client.get("/health").json()
        return health

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text(KEY)
    server = Server(
        {
            "model_path": str(checkpoint("llama")),
            "api_key_file": str(key_file),
            "max_batch_size": 4,
            "max_queue": 6,
            "served_model_name": "tiny",
            "weight_version": 7,
            "log_level": "warning",
            "threads": 1,
        }
    )
    try:
        wait_until(server.ready, 60)
        yield server
    finally:
        server.close()


PROMPT = [5, 6, 7, 8, 9, 10]
LONG: dict[str, Any] = {"prompt_ids": PROMPT, "max_tokens": 500, "ignore_eos": True}


def test_a_sample_is_generated_over_http(server: Server) -> None:
    body = {"request_id": "one", "prompt_ids": PROMPT, "max_tokens": 4, "seed": 1, "ignore_eos": True}
    reply = server.post("/generate", body).json()
    assert reply["request_id"] == "one"
    assert len(reply["token_ids"]) == len(reply["logprobs"]) == 4
    assert (reply["finish_reason"], reply["weight_versions"]) == ("length", [[7, 0, 4]])
    assert set(reply["timing"]) == {"queued_s", "prefill_s", "decode_s"}
    assert server.post("/generate", body).json()["token_ids"] == reply["token_ids"]


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        ({"prompt_ids": []}, "bad_request", "prompt_ids"),
        ({"prompt_ids": [1], "colour": 2}, "bad_request", "colour"),
        ({"prompt_ids": [49152]}, "bad_request", "prompt_ids.0"),
        ({"prompt_ids": [1] * 512}, "context_length", "prompt_ids"),
        (None, "bad_request", "JSON object"),
    ],
)
def test_a_bad_request_is_answered_with_400(server: Server, body: Any, kind: str, field: str) -> None:
    response = server.post("/generate", body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == kind
    assert field in response.json()["error"]["message"]


def test_a_body_that_is_not_json_is_answered_with_400(server: Server) -> None:
    assert server.client.post("/generate", content=b"{oops").status_code == 400


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}])
def test_without_the_key_nothing_is_served(server: Server, header: dict[str, str]) -> None:
    for method, path in (("POST", "/generate"), ("GET", "/health"), ("POST", "/pause")):
        response = httpx.request(method, server.client.base_url.join(path), headers=header)
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "unauthorized"


def test_unknown_routes_and_methods_are_told_apart(server: Server) -> None:
    assert server.client.get("/nothing").status_code == 404
    assert server.client.get("/generate").status_code == 405


def in_background(server: Server, body: dict[str, Any]) -> tuple[threading.Thread, list[httpx.Response]]:
    replies: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: replies.append(server.post("/generate", body)))
    thread.start()
    return thread, replies


def test_health_answers_and_progresses_while_generating(server: Server) -> None:
    thread, replies = in_background(server, LONG)
    wait_until(lambda: server.health()["running"] == 1)
    before = server.health()["progress"]
    wait_until(lambda: server.health()["progress"] > before)
    assert server.health()["weight_version"] == 7
    assert server.post("/abort", {"all": True}).json() == {"aborted": 1}
    thread.join()
    reply = replies[0].json()
    assert reply["finish_reason"] == "abort"
    assert 0 < len(reply["token_ids"]) < 500


def test_abort_by_name_spares_the_others(server: Server) -> None:
    threads = [in_background(server, {**LONG, "request_id": name}) for name in ("keep", "drop")]
    wait_until(lambda: server.health()["running"] == 2)
    assert server.post("/abort", {"request_ids": ["drop", "unknown"]}).json() == {"aborted": 1}
    threads[1][0].join()
    assert threads[1][1][0].json()["finish_reason"] == "abort"
    assert server.health()["running"] == 1
    server.post("/abort", {"all": True})
    threads[0][0].join()
    assert server.post("/abort", {"names": ["x"]}).status_code == 400
    assert server.post("/abort", {}).status_code == 400


def test_a_client_that_leaves_cancels_its_request(server: Server) -> None:
    with pytest.raises(httpx.ReadTimeout):
        server.client.post("/generate", json=LONG, timeout=0.1)
    wait_until(lambda: server.health()["running"] == 0 and server.health()["waiting"] == 0, 5)


def test_pause_and_continue_over_http(server: Server) -> None:
    thread, replies = in_background(server, {**LONG, "max_tokens": 300, "seed": 2})
    wait_until(lambda: server.health()["running"] == 1)
    state = server.post("/pause", {"mode": "keep"}).json()
    assert state == {"paused": True, "aborted": 0, "running": 1, "waiting": 0, "weight_version": 7}
    assert server.health()["paused"] == "keep"
    assert server.post("/pause", {"mode": "sleep"}).status_code == 400
    assert server.post("/continue").json()["paused"] is False
    thread.join()
    assert len(replies[0].json()["token_ids"]) == 300


def test_a_full_queue_is_answered_with_429(server: Server) -> None:
    server.post("/pause", {"mode": "keep"})
    background = [in_background(server, {**LONG, "max_tokens": 2}) for _ in range(6)]
    wait_until(lambda: server.health()["waiting"] == 6)
    response = server.post("/generate", LONG)
    assert (response.status_code, response.json()["error"]["type"]) == (429, "overloaded")
    server.post("/continue")
    for thread, replies in background:
        thread.join()
        assert replies[0].json()["finish_reason"] == "length"


def test_info_describes_the_model(server: Server) -> None:
    info = server.client.get("/info").json()
    assert info["model"] == "tiny"
    assert (info["architecture"], info["dtype"], info["device"]) == ("LlamaForCausalLM", "float32", "cpu")
    assert (info["context_length"], info["vocab_size"], info["eos_token_ids"]) == (512, 49152, [2])
    assert KEY not in json.dumps(info)


def test_metrics_count_what_happened(server: Server) -> None:
    text = server.client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['rollout_requests_total{finish_reason="length"}']) > 0
    assert int(values["rollout_generated_tokens_total"]) > 0


def test_sigterm_ends_the_server_quickly_even_while_it_generates(checkpoint: Callable[[str], Path]) -> None:
    server = Server({"model_path": str(checkpoint("llama")), "log_level": "warning", "threads": 1})
    try:
        wait_until(server.ready, 60)
        thread, _ = in_background(server, {**LONG, "max_tokens": None})
        wait_until(lambda: server.health()["running"] == 1)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=20) in (0, -signal.SIGTERM)
        assert time.monotonic() - started < 5
        thread.join()
    finally:
        server.close()
