"""A running engine for checks: blocking calls on one side, the client's event loop in a thread on the other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import httpx

from rollout_core.client import RolloutClient
from rollout_core.controller import Controller
from rollout_core.errors import DeadlineError
from rollout_core.plugins import Plugins
from rollout_core.types import GenerateRequest, GenerateResult, Health, Reply
from rollout_core.worker import authorization, decode

__all__ = ["LiveEngine"]

Answer = TypeVar("Answer")
_POLL_S = 0.02


class LiveEngine:
    """Starts the engines of a config and ends them; every wait has the limit ``timeout_s`` (seconds)."""

    def __init__(self, plugins: Plugins, log_dir: Path, timeout_s: float) -> None:
        """Start the engines and return when they are ready.

        Raises:
            RolloutError: whatever the controller raises.
        """
        self.timeout_s = timeout_s
        self.controller = Controller(plugins, log_dir=log_dir)
        self.controller.start()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance", daemon=True)
        self._thread.start()
        self._client: RolloutClient = self.wait(self._submit(RolloutClient(self.controller).__aenter__()))

    def close(self) -> None:
        """End the engines."""
        self.wait(self._submit(self._client.aclose()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.controller.close()

    @property
    def alive(self) -> bool:
        """Whether every engine is in service and says that it lives."""
        healths = self.controller.health().values()
        return bool(healths) and all(health.alive for health in healths)

    def begin(self, request: GenerateRequest) -> Future[GenerateResult]:
        """Send a request; cancelling the future cancels the request."""
        return self._submit(self._client.generate(request))

    def generate(self, *requests: GenerateRequest) -> list[GenerateResult]:
        """Send requests side by side, and return their results in the same order."""

        async def all_of_them() -> list[GenerateResult]:
            return list(await asyncio.gather(*map(self._client.generate, requests)))

        return self.wait(self._submit(all_of_them()), f"{len(requests)} requests")

    def wait(self, future: Future[Answer], what: str = "a request") -> Answer:
        """The answer of a future.

        Raises:
            DeadlineError: it did not come in time.
        """
        try:
            return future.result(self.timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise DeadlineError("the engine", f"answering {what}", self.timeout_s) from error

    def health(self) -> Health:
        """The health of the first engine."""
        return next(iter(self.controller.health().values()))

    def wait_until(self, holds: Callable[[Health], bool], what: str) -> Health:
        """Look at the first engine's health until something holds.

        Raises:
            DeadlineError: it did not hold in time; the message has the last health.
        """
        deadline = time.monotonic() + self.timeout_s
        while not holds(health := self.health()):
            if time.monotonic() > deadline:
                raise DeadlineError("the engine", f"waiting until {what}", self.timeout_s, f"its health is {health}")
            time.sleep(_POLL_S)
        return health

    def post(self, path: str, content: bytes) -> Reply:
        """Send any body to the engine, past the client."""
        plugins = self.controller.plugins
        url = self.controller.view.endpoints[0].url + path
        headers = {"content-type": "application/json", **authorization(plugins.backend)}
        with httpx.Client(timeout=self.timeout_s, trust_env=False) as http:
            reply = http.post(url, content=content, headers=headers)
        return Reply(reply.status_code, decode(reply.content))

    def _submit(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
