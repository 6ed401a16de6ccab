"""The HTTP face of the engine, as a plain ASGI application with JSON bodies."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson

from rollout_transformers.engine.engine import Engine, EngineStopped
from rollout_transformers.engine.model import describe
from rollout_transformers.engine.request import BadRequest, parse_body
from rollout_transformers.engine.training_routes import Route, TrainingRoutes
from rollout_transformers.engine.training_step import StateConflict
from rollout_transformers.engine.weights import WeightsRefused

__all__ = ["App"]

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[Any, Receive], Awaitable[Any]]


class HttpError(Exception):
    """An error reply: status, error type and message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class ClientGone(Exception):
    """The client closed the connection; nobody waits for a reply."""


class App:
    """Routes requests to the engine. Runs in the asyncio thread; never touches the model."""

    def __init__(self, engine: Engine, api_keys: Sequence[str] = ()) -> None:
        self._engine = engine
        self._authorizations = [b"Bearer " + key.encode() for key in api_keys]
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/generate"): self._generate,
            ("POST", "/abort"): self._abort,
            ("GET", "/health"): self._health,
            ("GET", "/info"): self._info,
            ("GET", "/metrics"): self._metrics,
        }
        for path, route in TrainingRoutes(engine).table().items():
            self._routes["POST", path] = partial(_without_receive, route)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection event, as ASGI asks."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                status, reply = 200, await self._answer(scope, receive)
            except HttpError as err:
                status, reply = err.status, {"error": {"type": err.kind, "message": str(err)}}
            except ClientGone:
                return
            await _send_reply(send, status, reply)

    async def _answer(self, scope: dict[str, Any], receive: Receive) -> Any:
        handler = self._routes.get((scope["method"], scope["path"]))
        if handler is None:
            known = any(path == scope["path"] for _, path in self._routes)
            raise HttpError(405 if known else 404, "not_found", f"no route {scope['method']} {scope['path']}")
        self._authorize(dict(scope["headers"]).get(b"authorization", b""))
        try:
            return await handler(await _read_body(receive), receive)
        except BadRequest as err:
            raise HttpError(400, err.kind, str(err)) from err
        except WeightsRefused as err:
            raise HttpError(400, "weights_refused", str(err)) from err
        except StateConflict as err:
            raise HttpError(409, "state", str(err)) from err
        except EngineStopped as err:
            raise HttpError(503, "unavailable", str(err)) from err
        except (HttpError, ClientGone):
            raise
        except Exception as err:
            raise HttpError(500, "internal", f"{type(err).__name__}: {err}") from err

    def _authorize(self, given: bytes) -> None:
        if self._authorizations and not any(hmac.compare_digest(given, key) for key in self._authorizations):
            raise HttpError(401, "unauthorized", "a valid API key is required: Authorization: Bearer KEY")

    async def _generate(self, data: Any, receive: Receive) -> Any:
        body = parse_body(data)
        self._engine.limits.check(body)
        if (missing := self._engine.step.missing) is not None:
            raise HttpError(503, "asleep", f"nothing is generated: {missing}")
        most = self._engine.settings.max_queue
        if most is not None and self._engine.counts()[1] >= most:
            raise HttpError(429, "overloaded", f"{most} requests are waiting already")
        number, future = self._engine.generate(body)
        reply = asyncio.wrap_future(future)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((reply, gone), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                self._engine.abort_number(number)
                raise ClientGone
            return reply.result()
        finally:
            gone.cancel()

    async def _abort(self, data: Any, receive: Receive) -> Any:
        fields = _object(data, {"request_ids", "all"})
        if fields.get("all") is True:
            return {"aborted": await asyncio.wrap_future(self._engine.abort_all())}
        names = fields.get("request_ids")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadRequest('give "request_ids" as a list of strings, or "all": true')
        return {"aborted": await asyncio.wrap_future(self._engine.abort(names))}

    async def _health(self, data: Any, receive: Receive) -> Any:
        engine = self._engine
        if not engine.alive:
            raise HttpError(500, "dead", f"the engine's thread is not running: {engine.failure}")
        running, waiting = engine.counts()
        return {
            "alive": True,
            "progress": engine.metrics.progress,
            "running": running,
            "waiting": waiting,
            "paused": engine.step.paused,
            "sleeping": engine.step.parameters.offloaded or engine.step.kv_offloaded,
            "weight_version": engine.scheduler.weight_version,
            "detail": engine.step.missing,
        }

    async def _info(self, data: Any, receive: Receive) -> Any:
        return describe(self._engine.loaded, self._engine.settings)

    async def _metrics(self, data: Any, receive: Receive) -> Any:
        return self._engine.metrics.render(*self._engine.counts())


async def _without_receive(route: Route, data: Any, receive: Receive) -> Any:
    return await route(data)


async def _read_body(receive: Receive) -> Any:
    """The decoded JSON body; None when there is none."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    data = b"".join(parts)
    try:
        return orjson.loads(data) if data else None
    except orjson.JSONDecodeError as err:
        raise BadRequest(f"the body is not JSON: {err}") from err


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _object(data: Any, allowed: set[str]) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object")
    unknown = sorted(set(data) - allowed)
    if unknown:
        raise BadRequest(f"{unknown[0]}: unknown field")
    return data


async def _send_reply(send: Send, status: int, reply: Any) -> None:
    is_text = isinstance(reply, str)
    data = reply.encode() if is_text else orjson.dumps(reply)
    kind = b"text/plain; version=0.0.4" if is_text else b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
