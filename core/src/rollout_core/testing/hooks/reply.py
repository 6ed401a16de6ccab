"""Checks of ``parse_response`` on good replies and broken ones.

The good replies are recorded ones in :class:`BackendConformance`, and of the running engine in
:class:`LiveBackendConformance`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from rollout_core.client import check_result
from rollout_core.errors import ReplyError
from rollout_core.testing.corruptions import ReplyExample, corrupted
from rollout_core.testing.suite import Suite, check, expect, not_run
from rollout_core.types import GenerateRequest, GenerateResult, Reply, Status

__all__ = ["ReplyChecks"]

_COMPARED = ("token_ids", "logprobs", "finish_reason", "stop_reason", "text", "request_id")


class ReplyChecks(Suite):
    """The hook ``parse_response``."""

    vocab_size: int = 1_000_000
    """Of the model that the examples are of."""

    def examples(self) -> Sequence[ReplyExample]:
        """Good replies; none where there is nothing to take them from."""
        return ()

    def broken(self) -> Mapping[str, tuple[GenerateRequest, Reply]]:
        """Broken replies of the backend's own, by name, beside those that the kit makes of the good ones."""
        return {}

    @check()
    def test_reply_good(self) -> None:
        """A good reply gives the ids, log-probabilities and finish reason that it says."""
        for example in self._some_examples():
            result = self._accept(example.request, example.reply)
            for name in _COMPARED:
                found, expected = getattr(result, name), getattr(example.expected, name)
                expect(found == expected, f"{name} is {found!r}, the reply says {expected!r}")

    @check()
    def test_reply_is_not_changed(self) -> None:
        """Reading a reply leaves it as it was."""
        example = self._some_examples()[0]
        before = copy.deepcopy(example.reply.body)
        self._accept(example.request, example.reply)
        expect(example.reply.body == before, "parse_response changed the body of the reply")

    @check()
    def test_reply_missing_ids(self) -> None:
        """A reply without token ids is refused; they are never made from text."""
        self._expect_refused("missing_ids")

    @check()
    def test_reply_short_logprobs(self) -> None:
        """A reply with fewer log-probabilities than tokens is refused."""
        self._expect_refused("short_logprobs")

    @check()
    def test_reply_missing_logprob(self) -> None:
        """A reply with a gap among the log-probabilities is refused, not filled."""
        self._expect_refused("missing_logprob")

    @check()
    def test_reply_nan_logprob(self) -> None:
        """A reply with a log-probability that is not a number is refused."""
        self._expect_refused("nan_logprob")

    @check()
    def test_reply_positive_logprob(self) -> None:
        """A reply with a log-probability above 0 is refused."""
        self._expect_refused("positive_logprob")

    @check()
    def test_reply_id_outside_the_vocabulary(self) -> None:
        """A reply with an id outside the vocabulary is refused."""
        self._expect_refused("id_outside_the_vocabulary")

    @check()
    def test_reply_unknown_finish_reason(self) -> None:
        """A reply with a finish reason that nobody knows is refused, not taken for a stop."""
        self._expect_refused("unknown_finish_reason")

    @check()
    def test_reply_of_another_request(self) -> None:
        """A reply that carries another request's id is refused."""
        self._expect_refused("another_request")

    @check()
    def test_reply_truncated_body(self) -> None:
        """A body that ends in the middle is refused."""
        self._expect_refused("truncated_body")

    @check()
    def test_reply_empty_body(self) -> None:
        """An empty body is refused."""
        self._expect_refused("empty_body")
        self._expect_refused("empty_object")

    @check()
    def test_reply_error_inside_a_200(self) -> None:
        """An error that comes with status 200 is an error."""
        self._expect_refused("error_inside_a_200")

    @check()
    def test_reply_broken_of_its_own(self) -> None:
        """The broken replies that the backend knows of are refused."""
        if not self.broken():
            not_run("the suite gives no broken_replies")
        for name, (request, reply) in self.broken().items():
            self._refuse(name, request, reply)

    def _some_examples(self) -> Sequence[ReplyExample]:
        examples = self.examples()
        if not examples:
            not_run("no recorded replies here: the suite's reply_examples is empty")
        return examples

    def _accept(self, request: GenerateRequest, reply: Reply) -> GenerateResult:
        return check_result(request, self.face.parse_response(request, reply), self.vocab_size)

    def _expect_refused(self, corruption: str) -> None:
        broken = [(e.request, reply) for e in self._some_examples() if (reply := corrupted(e, corruption))]
        if not broken:
            not_run(f"the replies have no place for: {corruption}")
        for request, reply in broken:
            self._refuse(corruption, request, reply)

    def _refuse(self, name: str, request: GenerateRequest, reply: Reply) -> None:
        try:
            result = self._accept(request, reply)
        except ReplyError:
            return
        except Exception as error:
            expect(False, f"{name}: raised {type(error).__name__} ({error}), expected ReplyError")
        else:
            failed = result.status is Status.FAILED and result.error
            expect(bool(failed), f"{name}: the broken reply was taken for a good one: {result}")
