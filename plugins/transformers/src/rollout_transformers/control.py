"""Control calls of the embedded server, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout_core import EngineError
from rollout_core.types import Ack, Call, Health, HttpCall, PauseMode

__all__ = ["abort", "health", "pause", "resume"]


def pause(mode: PauseMode, call: Call) -> Ack:
    """Pause; the server answers once it is quiet."""
    body = _ask(HttpCall("/pause", {"mode": mode.value}), call)
    if body.get("paused") is not True:
        raise EngineError(f"/pause did not pause: {body}")
    return _ack(body)


def resume(call: Call) -> Ack:
    """Undo a pause."""
    return _ack(_ask(HttpCall("/continue", {}), call))


def abort(request_ids: Sequence[str] | None, call: Call) -> Ack:
    """Abort some requests, or all."""
    body = {"all": True} if request_ids is None else {"request_ids": list(request_ids)}
    return _ack(_ask(HttpCall("/abort", body), call))


def health(call: Call) -> Health:
    """How the server feels; it answers while the model runs, from another thread."""
    reply = call(HttpCall("/health", method="GET"))
    if not reply.ok or not isinstance(reply.body, Mapping):
        return Health(alive=False, detail=f"/health answered {reply.status}: {str(reply.body)[:500]}")
    body = reply.body
    return Health(
        alive=bool(body["alive"]),
        progress=body["progress"],
        running=body["running"],
        waiting=body["waiting"],
        sleeping=body["sleeping"],
        weight_version=body["weight_version"],
        detail=body.get("detail") or "",
    )


def _ask(http_call: HttpCall, call: Call) -> Mapping[str, Any]:
    reply = call(http_call)
    if not reply.ok or not isinstance(reply.body, Mapping) or "error" in reply.body:
        raise EngineError(f"{http_call.path} answered {reply.status}: {str(reply.body)[:500]}")
    return reply.body


def _ack(body: Mapping[str, Any]) -> Ack:
    return Ack(
        weight_version=body.get("weight_version"),
        aborted=body.get("aborted", 0),
        running=body.get("running", 0),
        waiting=body.get("waiting", 0),
    )
