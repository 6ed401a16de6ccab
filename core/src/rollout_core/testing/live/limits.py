"""Checks of what is too much or plainly wrong: it costs one request, never the engine."""

from __future__ import annotations

from rollout_core.errors import RequestError
from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect, not_offered
from rollout_core.types import (
    FinishReason,
    GenerateRequest,
    GenerateResult,
    Reply,
    SampleParams,
    Status,
)

__all__ = ["LimitChecks"]

_ROOM = 6
_BAD_BODIES = (b"{}", b"[]", b'"text"', b'{"prompt_ids": [1, 2', b'{"input_ids": "text"}', b"")


class LimitChecks(LiveSuite):
    """The context limit, and bad requests."""

    @check()
    def test_context_limit(self) -> None:
        """A response that fills the context ends with `context_length`, not with `length`."""
        if not self.unending():
            not_offered("ignore_eos, without which no response is sure to reach the limit")
        prompt = self._prompt_of(self.context_length - _ROOM)
        for budget in (None, 10 * _ROOM):
            params = SampleParams(temperature=0.0, max_tokens=budget, **self.unending())
            result = self.complete_one(GenerateRequest(prompt, params))
            expect(
                result.finish_reason is FinishReason.CONTEXT_LENGTH,
                f"the finish reason is {result.finish_reason} with a budget of {budget}, expected context_length",
            )
            expect(
                len(result.token_ids) == _ROOM,
                f"{len(result.token_ids)} tokens in a context that has room for {_ROOM}",
            )

    @check()
    def test_budget_below_the_context_limit(self) -> None:
        """A response that spends its budget just before the context is full ends with `length`."""
        prompt = self._prompt_of(self.context_length - _ROOM)
        params = SampleParams(temperature=0.0, max_tokens=_ROOM - 1, **self.unending())
        result = self.complete_one(GenerateRequest(prompt, params))
        if result.finish_reason is not FinishReason.STOP:
            expect(
                result.finish_reason is FinishReason.LENGTH,
                f"the finish reason is {result.finish_reason}, expected length",
            )

    @check()
    def test_prompt_too_long(self) -> None:
        """A prompt over the context fails alone, and says why."""
        length = self.context_length + 1
        params = SampleParams(max_tokens=4)
        long = GenerateRequest(self._prompt_of(length), params)
        failed, good = self.engine.generate(long, self.request(1))
        self._expect_failed(failed)
        expect("context" in str(failed.error), f"the error does not speak of the context: {failed.error}")
        expect(good.status is Status.COMPLETED, f"its neighbour came back {good.status}: {good.error}")

    @check()
    def test_prompt_too_long_for_the_engine(self) -> None:
        """The engine itself refuses a prompt over the context with a 4xx that says why, and lives."""
        request = GenerateRequest(self._prompt_of(self.context_length + 1), SampleParams(max_tokens=4))
        reply = self.send_raw(request)
        self._expect_refusal("a prompt over the context", reply)
        expect(len(str(reply.body)) > 10, f"the refusal does not say why: {reply.body!r}")
        self._expect_in_service()

    @check()
    def test_bad_ids(self) -> None:
        """Ids that are negative or outside the vocabulary are refused before they reach the engine."""
        try:
            GenerateRequest((1, -1))
        except RequestError as error:
            expect("-1" in str(error), f"the error does not name the id: {error}")
        else:
            expect(False, "a negative id was accepted")
        size = self.model_info.vocab_size
        failed = self.engine.generate(GenerateRequest((1, size), SampleParams(max_tokens=4)))[0]
        self._expect_failed(failed)
        expect(str(size) in str(failed.error), f"the error does not name the id {size}: {failed.error}")
        self._expect_in_service()

    @check()
    def test_bad_bodies(self) -> None:
        """Requests that make no sense are answered with a 4xx, and the engine lives."""
        path = self.face.build_payload(self.request()).path
        for body in _BAD_BODIES:
            reply = self.engine.post(path, body)
            self._expect_refusal(repr(body), reply)
        self._expect_in_service()

    def _prompt_of(self, length: int) -> tuple[int, ...]:
        base = self.prompt(0)
        return (base * (length // len(base) + 1))[:length]

    def _expect_failed(self, result: GenerateResult) -> None:
        expect(result.status is Status.FAILED, f"the request came back {result.status}, expected failed")
        expect(bool(result.error), "the failed request does not say why")

    def _expect_refusal(self, what: str, reply: Reply) -> None:
        expect(400 <= reply.status < 500, f"{what}: the engine answered {reply.status}, expected a 4xx: {reply.body}")

    def _expect_in_service(self) -> None:
        result = self.engine.generate(self.request(3))[0]
        expect(
            result.status is Status.COMPLETED, f"after that, a good request came back {result.status}: {result.error}"
        )
