"""Checks of an engine under load: every request once, with its own tokens, and a health that tells the truth."""

from __future__ import annotations

import time

import httpx

from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect
from rollout_core.types import Capability, Health

__all__ = ["ServingChecks"]

_REQUESTS = 64
_TOKENS = 8


class ServingChecks(LiveSuite):
    """Concurrency and health."""

    @check()
    def test_concurrent_requests_come_back_once(self) -> None:
        """64 requests at once come back each once, in their own name."""
        requests = [self.request(i, max_tokens=_TOKENS) for i in range(_REQUESTS)]
        results = self.complete(*requests)
        expected, found = [r.request_id for r in requests], [r.request_id for r in results]
        expect(found == expected, f"asked for {len(set(expected))} requests, got {len(set(found))} in order")

    @check()
    def test_concurrent_requests_keep_their_tokens(self) -> None:
        """Each of 16 requests at once gets the tokens that it gets alone."""
        alone = [self.complete_one(self.greedy(i, max_tokens=_TOKENS)) for i in range(16)]
        together = self.complete(*(self.greedy(i, max_tokens=_TOKENS) for i in range(16)))
        for index, (one, other) in enumerate(zip(alone, together, strict=True)):
            self.expect_same(one, other, f"request {index} alone and among 16")

    @check()
    def test_health_when_idle(self) -> None:
        """An idle engine is alive, with nothing running and nothing waiting."""
        self.need_health()
        self.complete_one(self.request())
        self.engine.wait_until(lambda now: now.running == 0 and now.waiting == 0, "the engine is idle")
        expect(self.engine.health().alive, "an idle engine says that it is not alive")

    @check()
    def test_health_progress(self) -> None:
        """The progress counter grows while the engine generates."""
        self.need_health()
        before = self.engine.health().progress
        future = self.engine.begin(self.long(0))
        self.engine.wait_until(lambda now: now.running > 0 and now.progress > before, "progress shows")
        middle = self.engine.health().progress
        later = self.engine.wait_until(lambda now: now.progress > middle or now.running == 0, "progress goes on")
        self.engine.wait(future, "the request that made progress")
        expect(later.progress > middle, f"the counter stood at {middle} until the response was complete")

    @check()
    def test_no_request_is_computed_twice(self) -> None:
        """The work that the engine reports is that of the requests that it was sent."""
        self.need_health()
        before = self._idle().progress
        results = self.complete(*(self.request(i, max_tokens=_TOKENS) for i in range(_REQUESTS)))
        done = self._idle().progress - before
        asked = sum(len(result.prompt_ids) + len(result.token_ids) for result in results)
        expect(done <= 1.5 * asked, f"{done} tokens computed for requests of {asked} tokens in all")

    @check(Capability.API_KEY)
    def test_api_key(self) -> None:
        """A request without the API key is refused with 401 or 403, and the engine serves those that have it."""
        call = self.face.build_payload(self.request())
        url = self.engine.controller.view.endpoints[0].url
        reply = httpx.post(url + call.path, json=call.body, timeout=self.check_timeout_s, trust_env=False)
        expect(reply.status_code in (401, 403), f"a request without the key was answered {reply.status_code}")
        self.complete_one(self.request())

    def _idle(self) -> Health:
        self.engine.wait_until(lambda now: now.running == 0 and now.waiting == 0, "the engine is idle")
        # A step that was under way may be counted just after.
        time.sleep(0.05)
        return self.engine.health()
