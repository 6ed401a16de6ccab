"""Owns one server process of an engine: starts it, waits for it, speaks control calls to it, ends it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import httpx
import orjson

from rollout_core.errors import DeadlineError, EngineError, LaunchError
from rollout_core.plugins import Backend
from rollout_core.ports import PortLease
from rollout_core.process import Spawner, log_tail
from rollout_core.types import (
    Ack,
    Health,
    HttpCall,
    LaunchSpec,
    MemoryPart,
    PauseMode,
    Reply,
    Server,
    WeightUpdate,
)

__all__ = ["Worker", "authorization"]

_POLL_S = 0.1
_READY_CALL_S = 5.0


class Worker:
    """One server process, from its launch to its end. Its methods block; the controller calls them in threads."""

    def __init__(self, backend: Backend, spec: LaunchSpec, leases: Sequence[PortLease]) -> None:
        """The worker keeps the leases of its ports until it is stopped."""
        self.spec = spec
        self._backend = backend
        self._leases = leases
        self._server: Server | None = None
        self._http = httpx.Client(headers=authorization(backend), trust_env=False)

    @property
    def server(self) -> Server:
        """The started server.

        Raises:
            EngineError: the worker was not started.
        """
        if self._server is None:
            raise EngineError(f"{self.spec.name} has not been started")
        return self._server

    def start(self) -> None:
        """Launch the server process without waiting for it."""
        config = self._backend.config
        spawn = Spawner(self.spec.log_path, config.shutdown_timeout_s, config.env)
        self._server = self._backend.launch_server(self.spec, spawn)

    def wait_ready(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        """Return once the server answers that it is ready.

        Args:
            deadline: on ``time.monotonic()``.
            cancelled: asked between two looks; true ends the wait with an error.

        Raises:
            LaunchError: the process ended before it was ready; with the tail of its log.
            DeadlineError: the deadline passed.
        """
        started = time.monotonic()
        while not self._is_ready():
            if (status := self.server.process.poll()) is not None:
                raise LaunchError(
                    f"{self.spec.name} ended with status {status} before it was ready; "
                    f"the end of {self.spec.log_path}:\n{log_tail(self.spec.log_path)}"
                )
            if cancelled():
                raise LaunchError(f"{self.spec.name}: the start was given up")
            if time.monotonic() >= deadline:
                raise DeadlineError(
                    self.spec.name,
                    "becoming ready",
                    time.monotonic() - started,
                    f"raise startup_timeout_s or look at {self.spec.log_path}:\n{log_tail(self.spec.log_path)}",
                )
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        ready = self.server.ready
        try:
            return self.call(HttpCall(ready.path, ready.body, ready.method, _READY_CALL_S)).ok
        except EngineError:
            return False

    def exit_status(self) -> int | None:
        """The exit status of the server process, or None while it runs."""
        return self.server.process.poll()

    def call(self, call: HttpCall) -> Reply:
        """Make a control call.

        Raises:
            DeadlineError: no reply within the call's time.
            EngineError: the server cannot be reached.
        """
        timeout_s = call.timeout_s or self._backend.config.control_timeout_s
        url = (self.server.control_url or self.server.url) + call.path
        content = None if call.body is None else orjson.dumps(call.body)
        try:
            reply = self._http.request(
                call.method,
                url,
                content=content,
                timeout=timeout_s,
                headers={"content-type": "application/json"},
            )
        except httpx.TimeoutException as error:
            raise DeadlineError(self.spec.name, f"{call.method} {call.path}", timeout_s) from error
        except httpx.HTTPError as error:
            raise EngineError(
                f"{self.spec.name}: {call.method} {call.path} got no reply: {type(error).__name__}: {error}"
            ) from error
        return Reply(reply.status_code, decode(reply.content))

    def check_health(self) -> Health:
        """How the engine feels; of a backend without the health hooks, whether it still answers."""
        config = self._backend.config
        if "health" in self._backend.groups:
            return self._backend.check_health(self.server, self._within(config.health_check_timeout_s))
        ready = self.server.ready
        reply = self.call(HttpCall(ready.path, ready.body, ready.method, config.health_check_timeout_s))
        return Health(alive=reply.ok, detail=f"status {reply.status}")

    def pause_generation(self, mode: PauseMode) -> Ack:
        """Stop generating."""
        return self._backend.pause_generation(self.server, mode, self.call)

    def continue_generation(self) -> Ack:
        """Undo a pause."""
        return self._backend.continue_generation(self.server, self.call)

    def abort_requests(self, request_ids: Sequence[str] | None) -> Ack:
        """Abort some requests, or all."""
        return self._backend.abort_requests(self.server, request_ids, self.call)

    def offload(self, parts: AbstractSet[MemoryPart], discard: bool) -> Ack:
        """Free memory."""
        return self._backend.offload(self.server, parts, discard, self.call)

    def onload(self, parts: AbstractSet[MemoryPart]) -> Ack:
        """Take memory back."""
        return self._backend.onload(self.server, parts, self.call)

    def update_weights(self, update: WeightUpdate) -> Ack:
        """Load new weights."""
        return self._backend.update_weights(self.server, update, self.call)

    def stop(self) -> None:
        """End the process with all its children, and give its ports back; twice is harmless."""
        if self._server is not None:
            self._server.process.stop()
        self._http.close()
        shutil.rmtree(self.spec.run_dir, ignore_errors=True)
        for lease in self._leases:
            lease.release()

    def _within(self, timeout_s: float) -> Callable[[HttpCall], Reply]:
        return lambda call: self.call(
            HttpCall(call.path, call.body, call.method, min(call.timeout_s or timeout_s, timeout_s))
        )


def authorization(backend: Backend) -> dict[str, str]:
    """The header with the first API key, or none."""
    keys = backend.config.api_keys
    return {"authorization": f"Bearer {keys[0].get_secret_value()}"} if keys else {}


def decode(content: bytes) -> object:
    """A body's JSON, or its text where it is not JSON."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content.decode("utf-8", errors="replace")


def private_folder(parent: Path, name: str) -> Path:
    """A new folder that only this user can enter."""
    folder = parent / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
