"""RolloutClient against a trivial local server, beside a bare aiohttp loop and two ways of using httpx.

The server answers every generate call at once with a canned reply of about 4 KB, so all that is measured is what a
request costs on its way. Server and client share the machine's cores, in processes of their own.

    python benchmarks/client.py [--requests 4000] [--concurrency 512] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import orjson
import uvloop
from httpx_aiohttp import AiohttpTransport

from rollout_core import GenerateRequest, ModelInfo, Plugins, RolloutClient, RolloutConfig, SampleParams, Status
from rollout_core.controller import Endpoint, EngineState, Member, View

PROMPT = tuple(range(1, 101))
TOKENS = 128
REPLY = {
    "token_ids": list(range(1000, 1000 + TOKENS)),
    "logprobs": [-0.123456789 * i for i in range(TOKENS)],
    "sampled_logprobs": None,
    "top_logprobs": None,
    "prompt_logprobs": None,
    "routed_experts": None,
    "text": "a few words " * 40,
    "finish_reason": "length",
    "stop_reason": None,
    "weight_versions": [[0, 0, TOKENS]],
    "prompt_tokens": 100,
    "cached_tokens": 0,
    "timing": {"queued_s": 0.0, "prefill_s": 0.0, "decode_s": 0.0},
    "error": None,
}
Send = Callable[[int], Awaitable[None]]


def serve(listener: socket.socket) -> None:
    """The trivial server: a raw ASGI application that answers with the request's own id."""
    import uvicorn

    tail = orjson.dumps(REPLY)[1:]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        reply = b'{"request_id":' + orjson.dumps(orjson.loads(body)["request_id"]) + b"," + tail
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", backlog=4096)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


class Trivial:
    """The control plane of one engine that is always ready."""

    def __init__(self, url: str) -> None:
        self.plugins = Plugins.load(RolloutConfig(model_path="trivial", backend="transformers"))
        self.model = ModelInfo("trivial", "Trivial", vocab_size=50_000, context_length=None, fingerprint="")
        self.context_length = None
        self.view = View((Endpoint("engine-0", url),), {"engine-0": EngineState.READY}, {})

    def join(self, on_change: Callable[[], None]) -> Member:
        return Member(60, on_change)

    def acknowledge(self, member: Member, epoch: int, in_flight: int) -> None:
        return

    def leave(self, member: Member) -> None:
        return

    def report_success(self, engine_name: str) -> None:
        return

    def report_fault(self, engine_name: str, reason: str) -> None:
        raise RuntimeError(reason)


def body_of(index: int) -> bytes:
    """What the plain loops send: as much as RolloutClient does."""
    return orjson.dumps({"request_id": str(index), "prompt_ids": PROMPT, "max_tokens": TOKENS, "temperature": 1.0})


@contextlib.asynccontextmanager
async def rollout_client(url: str) -> AsyncIterator[Send]:
    params = SampleParams(max_tokens=TOKENS)
    async with RolloutClient(Trivial(url)) as client:

        async def send(index: int) -> None:
            result = await client.generate(GenerateRequest(PROMPT, params, request_id=str(index)))
            assert result.status is Status.COMPLETED, result.error

        yield send


@contextlib.asynccontextmanager
async def bare_aiohttp(url: str) -> AsyncIterator[Send]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(index: int) -> None:
            async with session.post(url + "/generate", data=body_of(index)) as reply:
                assert orjson.loads(await reply.read())["request_id"] == str(index)

        yield send


@contextlib.asynccontextmanager
async def httpx_client(url: str, transport: httpx.AsyncBaseTransport | None) -> AsyncIterator[Send]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(transport=transport, limits=limits, timeout=None) as client:

        async def send(index: int) -> None:
            reply = await client.post(url + "/generate", content=body_of(index))
            assert orjson.loads(reply.content)["request_id"] == str(index)

        yield send


CLIENTS: dict[str, Callable[[str], contextlib.AbstractAsyncContextManager[Send]]] = {
    "bare aiohttp loop": bare_aiohttp,
    "RolloutClient": rollout_client,
    "httpx over aiohttp": lambda url: httpx_client(
        url, AiohttpTransport(limits=httpx.Limits(max_connections=None, max_keepalive_connections=None))
    ),
    "plain httpx": lambda url: httpx_client(url, None),
}


async def measure(name: str, url: str, requests: int, concurrency: int) -> float:
    """Requests per second, with ``concurrency`` of them in flight at any time."""
    async with CLIENTS[name](url) as send:
        numbers = iter(range(requests))

        async def lane() -> None:
            for index in numbers:
                await send(index)

        await asyncio.gather(*(send(-1 - i) for i in range(concurrency)))
        started = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(concurrency)))
        return requests / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--concurrency", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-ones", action="store_true", help="also measure plain httpx, which takes a minute")
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    names = [name for name in CLIENTS if options.slow_ones or name != "plain httpx"]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            requests = min(options.requests, 1000) if name == "plain httpx" else options.requests
            rates[name].append(uvloop.run(measure(name, url, requests, options.concurrency)))
    server.terminate()
    bare = rates["bare aiohttp loop"]
    print(f"{options.concurrency} concurrent, {options.requests} requests, median of {options.rounds} rounds")
    for name in names:
        ratio = statistics.median(rate / floor for rate, floor in zip(rates[name], bare, strict=True))
        print(f"{name:20} {statistics.median(rates[name]):7.0f} requests/s   {ratio:4.2f} of the bare aiohttp loop")


if __name__ == "__main__":
    main()
