"""HTTP to the engines: httpx's interface over aiohttp's connections.

httpx's own connection pool collapses at hundreds of connections (``benchmarks/client.py`` measures both), so requests
go to an aiohttp transport. They go there directly, past ``httpx.AsyncClient``: engines set no cookies and send no
redirects, and its per-request work is a third of the cost of a call.
"""

from __future__ import annotations

import aiohttp
import httpx
import orjson
from httpx_aiohttp import AiohttpTransport

from rollout_core.types import HttpCall, Reply
from rollout_core.worker import decode

__all__ = ["Transport", "open_transport"]

_CONNECT_S = 10.0
_KEEPALIVE_S = 4.0
"""Below uvicorn's 5 s: the client drops an idle connection before the server does."""


def open_transport() -> httpx.AsyncBaseTransport:
    """A transport without a limit on connections: the engines' queues are the limit. Needs a running loop."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        trust_env=False,
    )
    return AiohttpTransport(client=session, trust_env=False)


class Transport:
    """Sends generation calls. There is no read timeout: long samples are not failures, dead engines are."""

    def __init__(self, headers: dict[str, str], transport: httpx.AsyncBaseTransport) -> None:
        """``headers`` go with every call; they may hold the API key."""
        self._headers = {**headers, "content-type": "application/json"}
        self._transport = transport
        self._extensions = {"timeout": {"connect": _CONNECT_S, "read": None, "write": None, "pool": None}}

    async def send(self, url: str, call: HttpCall) -> Reply:
        """Make a call; cancelling it closes the connection, which cancels the request in the engine.

        Raises:
            httpx.TransportError: no whole reply came.
        """
        request = httpx.Request(
            call.method,
            url + call.path,
            headers=self._headers,
            content=orjson.dumps(call.body),
            extensions=self._extensions,
        )
        response = await self._transport.handle_async_request(request)
        try:
            content = await response.aread()
        finally:
            await response.aclose()
        return Reply(response.status_code, decode(content))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()
