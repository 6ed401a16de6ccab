"""Sends generation calls to the engines, past ``httpx.AsyncClient``: they set no cookies and send no redirects."""

from __future__ import annotations

from functools import lru_cache

import httpx
import orjson

from rollout_core.client.connections import joined
from rollout_core.types import HttpCall, Reply
from rollout_core.worker import decode

__all__ = ["Transport"]

_parsed = lru_cache(maxsize=256)(httpx.URL)
"""Parsing a URL costs a tenth of a call, and there are only as many as servers and paths."""


class Transport:
    """Calls with the headers that all of them have."""

    def __init__(self, headers: dict[str, str], transport: httpx.AsyncBaseTransport) -> None:
        """``headers`` go with every call; they may hold the API key."""
        self._headers = httpx.Headers({**headers, "content-type": "application/json"})
        self._transport = transport

    async def send(self, url: str, call: HttpCall) -> Reply:
        """Make a call; cancelling it closes the connection, which cancels the request in the engine.

        Raises:
            httpx.TransportError: no whole reply came.
        """
        # Given as streams, request and reply pass httpx without a look at their headers and encodings.
        content = httpx.ByteStream(orjson.dumps(call.body))
        request = httpx.Request(call.method, _parsed(url + call.path), headers=self._headers, stream=content)
        response = await self._transport.handle_async_request(request)
        return Reply(response.status_code, decode(await joined(response.stream)))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()
