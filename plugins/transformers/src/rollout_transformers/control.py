"""Control calls of the embedded server, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rollout_core import EngineError, WeightUpdateError
from rollout_core.types import Ack, Call, Health, HttpCall, MemoryPart, PauseMode

__all__ = ["abort", "acknowledged", "ask", "health", "offload", "onload", "pause", "resume"]


def pause(mode: PauseMode, call: Call) -> Ack:
    """Pause; the server answers once it is quiet."""
    body = ask(HttpCall("/pause", {"mode": mode.value}), call)
    if body.get("paused") is not True:
        raise EngineError(f"/pause did not pause: {body}")
    return acknowledged(body)


def resume(call: Call) -> Ack:
    """Undo a pause."""
    return acknowledged(ask(HttpCall("/continue", {}), call))


def abort(request_ids: Sequence[str] | None, call: Call) -> Ack:
    """Abort some requests, or all."""
    body = {"all": True} if request_ids is None else {"request_ids": list(request_ids)}
    reply = ask(HttpCall("/abort", body), call)
    if "aborted" not in reply:
        raise EngineError(f"/abort does not say what it aborted: {reply}")
    return Ack(aborted=reply["aborted"])


def offload(parts: AbstractSet[MemoryPart], discard: bool, call: Call) -> Ack:
    """Free memory; the server answers once it is free."""
    body = {"parts": sorted(part.value for part in parts), "discard": discard}
    return acknowledged(ask(HttpCall("/offload", body), call))


def onload(parts: AbstractSet[MemoryPart], call: Call) -> Ack:
    """Take memory back."""
    return acknowledged(ask(HttpCall("/onload", {"parts": sorted(part.value for part in parts)}), call))


def health(call: Call) -> Health:
    """How the server feels; it answers while the model runs, from another thread."""
    reply = call(HttpCall("/health", method="GET"))
    if not reply.ok or not isinstance(reply.body, Mapping) or "alive" not in reply.body:
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


def ask(http_call: HttpCall, call: Call) -> Mapping[str, Any]:
    """The body of a 2xx reply.

    Raises:
        WeightUpdateError: the server refused the weights before it wrote anything.
        EngineError: any other reply.
    """
    reply = call(http_call)
    error = reply.body.get("error") if isinstance(reply.body, Mapping) else None
    if reply.ok and error is None and isinstance(reply.body, Mapping):
        return reply.body
    if isinstance(error, Mapping) and error.get("type") == "weights_refused":
        raise WeightUpdateError(str(error.get("message")))
    raise EngineError(f"{http_call.path} answered {reply.status}: {str(error or reply.body)[:500]}")


def acknowledged(body: Mapping[str, Any]) -> Ack:
    """What the server says of itself after a control call.

    Raises:
        EngineError: it says nothing.
    """
    if "weight_version" not in body:
        raise EngineError(f"not an acknowledgement: {str(body)[:500]}")
    return Ack(
        weight_version=body["weight_version"],
        aborted=body.get("aborted", 0),
        running=body.get("running", 0),
        waiting=body.get("waiting", 0),
    )
