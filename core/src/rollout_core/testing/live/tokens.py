"""Checks that the tokens are the model's own, and that their log-probabilities are what they are said to be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.live.reference import reference_logprobs
from rollout_core.testing.suite import check, expect, not_run
from rollout_core.types import Capability, FinishReason, GenerateRequest, GenerateResult, LogprobKind, Status

__all__ = ["TokenChecks"]


class TokenChecks(LiveSuite):
    """Tokens and log-probabilities."""

    def reference_logprobs(self, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Sequence[float] | None:
        """Log-probabilities (natural log) of the response's tokens by a forward pass of another implementation.

        Unless overridden, of the transformers library, where it and torch are installed; None leaves the check out.
        """
        return reference_logprobs(str(self.model), prompt_ids, token_ids)

    @check()
    def test_engine_starts(self) -> None:
        """The engine starts and serves a request."""
        self.complete_one(self.request())

    @check()
    def test_result_belongs_to_its_request(self) -> None:
        """A result carries its request's id, its exact prompt, its engine and a finish reason."""
        request = self.request(1)
        result = self.complete_one(request)
        expect(result.request_id == request.request_id, f"the result is of request {result.request_id}")
        expect(result.prompt_ids == request.prompt_ids, "the result's prompt is not the one that was sent")
        expect(result.engine == "engine-0", f"the result names the engine {result.engine}")
        expect(result.finish_reason is not None, "the result has no finish reason")

    @check()
    def test_tokens_follow_the_prompt(self) -> None:
        """The tokens of a response, sent back as a prompt, are continued exactly as before."""
        for index in range(4):
            whole = self.complete_one(self.greedy(index, max_tokens=12))
            if len(whole.token_ids) < 12:
                continue
            request = GenerateRequest(whole.prompt_ids + whole.token_ids[:6], self.greedy(max_tokens=6).params)
            rest = self.complete_one(request)
            expected = GenerateResult(
                "", (), whole.token_ids[6:], whole.logprobs[6:] if whole.logprobs is not None else None
            )
            self.expect_same(expected, rest, "a response cut in two is not the uncut one")

    @check()
    def test_tokens_against_a_reference(self) -> None:
        """The log-probabilities agree with a forward pass of another implementation."""
        for index in range(4):
            result = self.complete_one(self.request(index, max_tokens=24, **self._seed(index)))
            reference = self.reference_logprobs(result.prompt_ids, result.token_ids)
            if reference is None:
                not_run("there is no reference: transformers and torch are not installed, or do not load the model")
            self._expect_close(self._logprobs(result), reference, "the reference")

    @check(Capability.PROMPT_LOGPROBS)
    def test_prompt_logprobs(self) -> None:
        """Each prompt token but the first has a log-probability, the same as when it was sampled."""
        first = self.complete_one(self.greedy(2, max_tokens=12))
        prompt = first.prompt_ids + first.token_ids
        request = GenerateRequest(prompt, self.greedy(max_tokens=1, prompt_logprobs=True).params)
        found = self.complete_one(request).prompt_logprobs
        expect(found is not None and len(found) == len(prompt), f"{len(found or ())} entries for {len(prompt)} tokens")
        assert found is not None
        expect(found[0] is None, f"the first prompt token has the log-probability {found[0]}, expected none")
        known = [value for value in found[1:] if value is not None]
        expect(len(known) == len(prompt) - 1, "a prompt token after the first has no log-probability")
        if self.face.offers(Capability.MODEL_LOGPROBS):
            self._expect_close(known[-len(first.token_ids) :], self._logprobs(first), "the sampled response's")

    @check()
    def test_logprobs_are_probabilities(self) -> None:
        """Every token has a finite log-probability of 0 or less, of a kind that is declared."""
        declared = {
            LogprobKind.MODEL: Capability.MODEL_LOGPROBS,
            LogprobKind.SAMPLED: Capability.SAMPLED_LOGPROBS,
        }
        for result in self.complete(*(self.request(i, max_tokens=32, **self._seed(i)) for i in range(4))):
            values = self._logprobs(result)
            expect(len(values) == len(result.token_ids), f"{len(values)} values for {len(result.token_ids)} tokens")
            expect(all(math.isfinite(value) and value <= 0 for value in values), f"log-probabilities {values}")
            expect(any(value < 0 for value in values), "every sampled token has probability 1")
            kind = declared[result.logprob_kind]
            expect(self.face.offers(kind), f"the result says '{result.logprob_kind}', but {kind} is not declared")

    @check(Capability.MODEL_LOGPROBS)
    def test_model_logprobs_ignore_sampling(self) -> None:
        """The model's log-probability of a token is the same however it was sampled."""
        certain = []
        for index in range(4):
            plain = self.complete_one(self.greedy(index, max_tokens=1))
            certain.append(all(value == 0 for value in self._logprobs(plain)))
            for params in ({"temperature": 0.3, "top_k": 1}, {"temperature": 5.0, "top_p": 1e-6}):
                other = self.complete_one(self.greedy(index, max_tokens=1, **params))
                expect(other.logprob_kind is LogprobKind.MODEL, f"the kind is {other.logprob_kind} with {params}")
                if other.token_ids == plain.token_ids:
                    self._expect_close(self._logprobs(other), self._logprobs(plain), f"greedy, with {params}")
        expect(not all(certain), "greedy tokens all have probability 1: it is that of the tokens left by the filters")

    @check(Capability.SAMPLED_LOGPROBS)
    def test_sampled_logprobs(self) -> None:
        """The log-probabilities of the distribution that was drawn from are finite, and say what they are."""
        result = self.complete_one(self.request(1, temperature=0.5, max_tokens=24, **self._seed(1)))
        own = result.logprob_kind is LogprobKind.SAMPLED
        values = result.logprobs if own else result.sampled_logprobs
        expect(values is not None, "at temperature 0.5 the result has no log-probabilities of what was drawn from")
        assert values is not None
        expect(len(values) == len(result.token_ids), f"{len(values)} values for {len(result.token_ids)} tokens")
        expect(all(math.isfinite(value) and value <= 0 for value in values), f"log-probabilities {values}")
        expect(own or values != result.logprobs, "at temperature 0.5 they equal the model's own")

    @check()
    def test_logprobs_only_when_asked(self) -> None:
        """Without ``return_logprob`` a result has no log-probabilities, and the same tokens."""
        with_them = self.complete_one(self.greedy(3))
        without = self.complete_one(self.greedy(3, return_logprob=False))
        expect(without.logprobs is None, "the result has log-probabilities that were not asked for")
        self.expect_same(with_them, without, "without log-probabilities")

    @check(Capability.TOP_LOGPROBS)
    def test_top_logprobs(self) -> None:
        """The most likely tokens come in order, and the greedy token is the first of them."""
        result = self.complete_one(self.greedy(1, max_tokens=8, top_logprobs=4))
        rows = result.top_logprobs or ()
        expect(len(rows) == len(result.token_ids), f"{len(rows)} rows for {len(result.token_ids)} tokens")
        for token, value, row in zip(result.token_ids, self._logprobs(result), rows, strict=True):
            values = [item.logprob for item in row]
            expect(len({item.token_id for item in row}) >= 4, f"a row has fewer than 4 tokens: {row}")
            expect(values[:4] == sorted(values[:4], reverse=True), f"a row is not in order: {values}")
            own = {item.token_id: item.logprob for item in row}.get(token)
            expect(own is not None, f"the greedy token {token} is not among the most likely: {row}")
            self._expect_close([own or 0.0], [value], "the token's own log-probability")
            expect(value >= values[0] - self.tie_tolerance, f"the greedy token {token} is not the first of {row}")

    @check(Capability.ROUTED_EXPERTS)
    def test_routed_experts(self) -> None:
        """The experts cover every token but the last, in one dense array."""
        if not self.face.config.routed_experts:
            not_run("the suite's config does not set routed_experts")
        request = self.greedy(1, max_tokens=8, routed_experts=True)
        result = self.complete_one(request)
        experts = result.routed_experts
        assert experts is not None  # check_result has refused a result without them.
        tokens = len(result.prompt_ids) + len(result.token_ids) - 1
        expect(experts.shape[0] == tokens, f"the shape is {experts.shape} for {tokens} tokens")
        sizes = {"uint8": 1, "int16": 2, "int32": 4}
        expect(experts.dtype in sizes, f"the type is {experts.dtype}, expected one of {', '.join(sizes)}")
        expected = math.prod(experts.shape) * sizes[experts.dtype]
        expect(len(experts.data) == expected, f"{len(experts.data)} bytes for the shape {experts.shape}")

    @check(Capability.CONTINUATION)
    def test_continuation_is_exact(self) -> None:
        """A cut response that is continued is the uncut one."""
        for cut in (1, 7):
            whole = self.complete_one(self.greedy(2, max_tokens=20))
            begun = self.complete_one(self.greedy(2, max_tokens=cut))
            prior = GenerateResult(
                request_id=begun.request_id,
                prompt_ids=begun.prompt_ids,
                token_ids=begun.token_ids,
                logprobs=begun.logprobs,
                text=begun.text,
                finish_reason=FinishReason.ABORT,
                status=Status.ABORTED,
                weight_versions=begun.weight_versions,
            )
            joined = self.complete_one(
                GenerateRequest(begun.prompt_ids, self.greedy(max_tokens=20).params, prior=prior)
            )
            expect(joined.token_ids[:cut] == begun.token_ids, "the tokens of the prior are not kept")
            self.expect_same(whole, joined, f"continued after {cut} tokens")

    def _seed(self, index: int) -> dict[str, int]:
        return {"seed": index} if self.face.offers(Capability.SEED) else {}

    def _logprobs(self, result: GenerateResult) -> Sequence[float]:
        expect(result.logprobs is not None, "the result has no log-probabilities")
        return result.logprobs or ()

    def _expect_close(self, found: Sequence[float], expected: Sequence[float], what: str) -> None:
        expect(len(found) == len(expected), f"{len(found)} log-probabilities, and {len(expected)} of {what}")
        for position, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            expect(
                abs(mine - theirs) <= self.logprob_tolerance,
                f"the log-probability of token {position} is {mine:.6f}, and {theirs:.6f} by {what}",
            )
