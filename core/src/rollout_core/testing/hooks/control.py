"""Checks of the optional hooks with a ``call`` that answers as engines in trouble do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rollout_core.errors import EngineError
from rollout_core.testing.suite import Suite, check, expect, not_offered
from rollout_core.types import Ack, Call, Capability, Health, HttpCall, PauseMode, Reply, Server

__all__ = ["ControlChecks"]

_TROUBLE = (
    Reply(500, {"error": "internal error"}),
    Reply(404, "Not Found"),
    Reply(200, {"error": {"message": "the engine is gone"}}),
    Reply(200, {"status": "error", "message": "the engine is gone"}),
    Reply(200, {"success": False, "message": "the engine is gone"}),
)
_MODES = {
    Capability.PAUSE_ABORT: PauseMode.ABORT,
    Capability.PAUSE_WAIT: PauseMode.WAIT,
    Capability.PAUSE_KEEP: PauseMode.KEEP,
}


class ControlChecks(Suite):
    """The hooks of the groups ``generation`` and ``health``."""

    @check()
    def test_control_failures_are_errors(self) -> None:
        """A control call that the engine refuses is an error, also when it says so with status 200."""
        self._need("generation")
        for name, run in self._control_hooks():
            for trouble in _TROUBLE:
                try:
                    ack = run(_answering(trouble))
                except EngineError:
                    continue
                expect(False, f"{name}: {trouble} was taken for success: {ack}")

    @check()
    def test_control_passes_on_lost_connections(self) -> None:
        """A control call that gets no reply is an error."""
        self._need("generation")
        for name, run in self._control_hooks():
            try:
                run(_unreachable)
            except EngineError:
                continue
            expect(False, f"{name}: no reply came, and it was taken for success")

    @check()
    def test_control_calls_paths_of_the_server(self) -> None:
        """Control hooks go through the given call, to paths of the server."""
        self._need("generation")
        for name, run in self._control_hooks():
            _expect_calls(name, run)

    @check()
    def test_health_of_an_engine_in_trouble(self) -> None:
        """A health check that the engine answers with an error finds it not alive."""
        self._need("health")
        for trouble in _TROUBLE:
            try:
                health = self._check_health(_answering(trouble))
            except EngineError:
                continue
            expect(not health.alive, f"{trouble} was taken for a living engine: {health}")

    @check()
    def test_health_asks_the_server(self) -> None:
        """A health check goes through the given call."""
        self._need("health")
        _expect_calls("check_health", self._check_health)

    def _need(self, group: str) -> None:
        if group not in self.face.groups:
            not_offered(f"the hooks of the group '{group}'")

    def _control_hooks(self) -> Iterator[tuple[str, Callable[[Call], Ack]]]:
        face, server = self.face, _server()
        for capability, mode in _MODES.items():
            if face.offers(capability):
                yield f"pause_generation({mode})", partial(face.pause_generation, server, mode)
        yield "continue_generation", partial(face.continue_generation, server)
        if face.offers(Capability.ABORT):
            yield "abort_requests", partial(face.abort_requests, server, ["a", "b"])
            yield "abort_requests(all)", partial(face.abort_requests, server, None)

    def _check_health(self, call: Call) -> Health:
        return self.face.check_health(_server(), call)


class _Process:
    pid = 1

    def poll(self) -> int | None:
        return None

    def stop(self) -> None:
        return


def _server() -> Server:
    return Server("http://127.0.0.1:21999", _Process())


def _answering(reply: Reply) -> Call:
    return lambda call: reply


def _unreachable(call: HttpCall) -> Reply:
    raise EngineError(f"{call.path}: connection refused")


def _expect_calls(name: str, run: Callable[[Call], Any]) -> None:
    calls: list[HttpCall] = []

    def record(call: HttpCall) -> Reply:
        calls.append(call)
        return _TROUBLE[0]

    # The reply is one of trouble; only the call matters here.
    with contextlib.suppress(EngineError):
        run(record)
    expect(bool(calls), f"{name} made no call")
    expect(calls[0].path.startswith("/"), f"{name} called {calls[0].path!r}; start the path with /")
