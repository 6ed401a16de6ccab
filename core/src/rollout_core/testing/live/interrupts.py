"""Checks of abort, cancellation and pause: a request that is interrupted comes back once, with what it had."""

from __future__ import annotations

from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect
from rollout_core.types import Capability, FinishReason, GenerateResult, PauseMode, Status

__all__ = ["InterruptChecks"]


class InterruptChecks(LiveSuite):
    """Abort, cancellation and pause."""

    @check(Capability.ABORT)
    def test_abort_one(self) -> None:
        """An aborted request comes back with its partial tokens, and its neighbour goes on."""
        request, neighbour = self.long(0), self.long(1)
        futures = [self.begin_long(neighbour), self.begin_long(request)]
        self.engine.controller.abort_requests([request.request_id])
        self._expect_aborted(self.engine.wait(futures[1], "the aborted request"))
        result = self.engine.wait(futures[0], "the neighbour of an aborted request")
        expect(result.status is Status.COMPLETED, f"the neighbour came back {result.status}: {result.error}")

    @check(Capability.ABORT)
    def test_abort_all(self) -> None:
        """Aborting all requests brings each back once with its partial tokens, and new ones are served."""
        futures = [self.begin_long(self.long(index)) for index in range(3)]
        self.engine.controller.abort_requests(None)
        for future in futures:
            self._expect_aborted(self.engine.wait(future, "an aborted request"))
        self.complete_one(self.request(3))

    @check(Capability.ABORT)
    def test_abort_unknown(self) -> None:
        """Aborting a request that the engine does not know harms nothing."""
        self.engine.controller.abort_requests(["conformance-nobody"])
        self.complete_one(self.request(3))

    @check(Capability.CANCEL_ON_DISCONNECT)
    def test_cancellation_frees_the_engine(self) -> None:
        """A request whose client is gone is given up by the engine."""
        self.need_health()
        before = self.engine.health().progress
        request = self.long(0)
        self.begin_long(request).cancel()
        after = self.engine.wait_until(lambda now: now.running == 0, "a cancelled request is given up")
        computed = after.progress - before - len(request.prompt_ids)
        expect(
            computed < self.long_tokens,
            f"the engine computed all {self.long_tokens} tokens of a request that was cancelled early",
        )

    @check(Capability.PAUSE_ABORT)
    def test_pause_abort(self) -> None:
        """Pausing with `abort` brings the requests in flight back at once, with their partial tokens."""
        future = self.begin_long(self.long(0))
        try:
            self.engine.controller.pause_generation(PauseMode.ABORT)
            self._expect_aborted(self.engine.wait(future, "a request that a pause aborts"))
        finally:
            self.engine.controller.continue_generation()
        self.complete_one(self.request(3))

    @check(Capability.PAUSE_WAIT)
    def test_pause_wait(self) -> None:
        """Pausing with `wait` lets the requests in flight finish."""
        uncut = self.complete_one(self.greedy(0, max_tokens=48))
        future = self.begin_long(self.greedy(0, max_tokens=48))
        try:
            self.engine.controller.pause_generation(PauseMode.WAIT)
            result = self.engine.wait(future, "a request that a pause waits for")
        finally:
            self.engine.controller.continue_generation()
        self.expect_same(uncut, result, "a request over a pause that waits")
        self.complete_one(self.request(3))

    @check(Capability.PAUSE_KEEP)
    def test_pause_keep(self) -> None:
        """Pausing with `keep` freezes the requests in flight; they go on exactly where they were."""
        uncut = self.complete_one(self.greedy(0, max_tokens=48))
        future = self.begin_long(self.greedy(0, max_tokens=48))
        try:
            self.engine.controller.pause_generation(PauseMode.KEEP)
            if "health" in self.face.groups:
                first, second = self.engine.health(), self.engine.health()
                expect(first.progress == second.progress, "the engine goes on while it is paused")
        finally:
            self.engine.controller.continue_generation()
        self.expect_same(uncut, self.engine.wait(future, "a request that was kept"), "a request over a pause")

    def _expect_aborted(self, result: GenerateResult) -> None:
        expect(
            result.status is Status.ABORTED and result.finish_reason is FinishReason.ABORT,
            f"came back {result.status} ({result.finish_reason}), expected aborted: {result.error}",
        )
        expect(len(result.token_ids) > 0, "the tokens that were generated before the abort are lost")
        expect(len(result.token_ids) < self.long_tokens, "the aborted request has all its tokens")
        expect(
            result.logprobs is not None and len(result.logprobs) == len(result.token_ids),
            f"{len(result.logprobs or ())} log-probabilities for {len(result.token_ids)} tokens",
        )
