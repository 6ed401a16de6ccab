"""An httpx transport over aiohttp's connections, which hold at hundreds of requests where httpx's own pool does not.

Replies are read whole, and nothing is asked to be compressed, so what the general transports do for streams, cookies,
redirects and encodings is left out: it is a fifth of the cost of a call (``benchmarks/client.py``).
"""

from __future__ import annotations

import aiohttp
import httpx

__all__ = ["AiohttpConnections", "joined"]

_CONNECT_S = 10.0
_KEEPALIVE_S = 4.0
"""Below uvicorn's 5 s: the client drops an idle connection before the server does."""


class AiohttpConnections(httpx.AsyncBaseTransport):
    """Any number of connections: the engines' queues are the limit. Needs a running loop."""

    def __init__(self) -> None:
        """There is no read timeout: long samples are not failures, dead engines are."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_S),
            auto_decompress=False,
            trust_env=False,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and read the whole reply.

        Raises:
            httpx.ConnectError: there is no server.
            httpx.ReadError: no whole reply came.
        """
        headers, content = request.headers.multi_items(), await joined(request.stream)
        try:
            async with self._session.request(
                request.method, str(request.url), headers=headers, data=content, allow_redirects=False
            ) as reply:
                content = await reply.read()
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
            raise httpx.ConnectError(str(error)) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise httpx.ReadError(str(error) or type(error).__name__) from error
        return httpx.Response(reply.status, headers=reply.raw_headers, stream=httpx.ByteStream(content))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()


async def joined(stream: object) -> bytes:
    """All of a stream's bytes."""
    assert isinstance(stream, httpx.AsyncByteStream)
    return b"".join([part async for part in stream])
