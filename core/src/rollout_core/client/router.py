"""Chooses the server of a request: the least loaded one, and the same one for a session or group."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from rollout_core.controller import Endpoint

__all__ = ["Router"]


class Router:
    """Counts requests in flight per server and remembers which sessions live where. For one event loop."""

    def __init__(self, session_timeout_s: float) -> None:
        """A session without a request for ``session_timeout_s`` seconds is forgotten."""
        self._timeout_s = session_timeout_s
        self._in_flight: Counter[str] = Counter()
        self._homes: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def pick(
        self, endpoints: Collection[Endpoint], affinity: str | None, avoid: Collection[str] = ()
    ) -> Endpoint | None:
        """The server for a request.

        Args:
            endpoints: of the engines in service.
            affinity: what keeps related requests together; None for a request of its own.
            avoid: engines that failed this request; one of them is taken only when there is no other.

        Returns:
            None when there is no endpoint at all.
        """
        choices = [endpoint for endpoint in endpoints if endpoint.engine not in avoid] or list(endpoints)
        if not choices:
            return None
        home = self._homes.get(affinity) if affinity is not None else None
        chosen = next((e for e in choices if home is not None and e.url == home[0]), None)
        if chosen is None:
            chosen = min(choices, key=lambda endpoint: self._in_flight[endpoint.url])
        if affinity is not None:
            self._settle(affinity, chosen.url)
        return chosen

    def _settle(self, affinity: str, url: str) -> None:
        now = time.monotonic()
        self._homes[affinity] = (url, now)
        self._homes.move_to_end(affinity)
        while now - next(iter(self._homes.values()))[1] > self._timeout_s:
            self._homes.popitem(last=False)

    @contextmanager
    def sending(self, endpoint: Endpoint) -> Iterator[None]:
        """Count a request while it is in flight."""
        self._in_flight[endpoint.url] += 1
        try:
            yield
        finally:
            self._in_flight[endpoint.url] -= 1

    def in_flight(self, endpoint: Endpoint) -> int:
        """Requests in flight to a server."""
        return self._in_flight[endpoint.url]
