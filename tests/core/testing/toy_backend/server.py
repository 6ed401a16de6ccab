"""HTTP around a toy engine: ``python -m toy_backend.server --port P --engine ToyEngine ...``."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from aiohttp import web

from toy_backend import faults
from toy_backend.engine import BadRequest, ToyEngine

_OPEN = ("/ready",)


class Server:
    """The routes of one engine."""

    def __init__(self, engine: ToyEngine) -> None:
        self.engine = engine

    async def generate(self, request: web.Request) -> web.Response:
        return web.json_response(await self.engine.generate(await self._body(request)))

    async def abort(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        return web.json_response({"ok": True, "aborted": self.engine.abort(body["request_ids"])})

    async def pause(self, request: web.Request) -> web.Response:
        await self.engine.pause((await self._body(request))["mode"])
        return web.json_response({"ok": True})

    async def resume(self, request: web.Request) -> web.Response:
        self.engine.resume()
        return web.json_response({"ok": True})

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response(self.engine.stats())

    async def _body(self, request: web.Request) -> Any:
        try:
            return json.loads(await request.read())
        except ValueError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error


@web.middleware
async def _guard(request: web.Request, handler: Any) -> web.StreamResponse:
    key = os.environ.get("TOY_API_KEY")
    if key and request.path not in _OPEN and request.headers.get("authorization") != f"Bearer {key}":
        return web.json_response({"error": "unauthorized"}, status=401)
    try:
        response: web.StreamResponse = await handler(request)
    except BadRequest as error:
        return web.json_response({"error": {"message": str(error)}}, status=400)
    return response


async def application(engine: str, context_length: int) -> web.Application:
    server = Server(faults.ENGINES[engine](context_length))
    app = web.Application(middlewares=[_guard])
    app.add_routes(
        [
            web.post("/generate", server.generate),
            web.post("/abort", server.abort),
            web.post("/pause", server.pause),
            web.post("/resume", server.resume),
            web.get("/stats", server.stats),
            web.get("/ready", server.stats),
        ]
    )
    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", default="ToyEngine")
    parser.add_argument("--context-length", type=int, required=True)
    args = parser.parse_args()
    web.run_app(
        application(args.engine, args.context_length),
        host=args.host,
        port=args.port,
        # A client that disconnects cancels its request.
        handler_cancellation=not faults.ENGINES[args.engine].outlives_client,
        print=None,
    )


if __name__ == "__main__":
    main()
