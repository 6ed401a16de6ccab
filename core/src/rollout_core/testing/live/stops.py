"""Checks of where a response ends, and of the reason that it gives."""

from __future__ import annotations

from itertools import pairwise

from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect, not_run
from rollout_core.types import Capability, FinishReason, GenerateRequest, GenerateResult, SampleParams

__all__ = ["StopChecks"]

_LENGTH = 20
_EOS_TRIES = 32


class StopChecks(LiveSuite):
    """Stop strings, stop ids, end of sequence and the token budget."""

    @check()
    def test_length(self) -> None:
        """A response that spends its budget has exactly that many tokens and ends with `length`."""
        for budget in (1, 5, 17):
            result = self.complete_one(self.greedy(0, max_tokens=budget))
            if result.finish_reason is FinishReason.STOP and not self.unending():
                continue
            self._expect_end(result, FinishReason.LENGTH)
            expect(len(result.token_ids) == budget, f"{len(result.token_ids)} tokens, the budget is {budget}")

    @check(Capability.STOP_STRINGS)
    def test_stop_string(self) -> None:
        """A stop string ends the response with `stop`, is named, and is cut from the text only."""
        found = 0
        for index in range(4):
            prefixes = self._prefixes(index)
            for stop, count in _stop_strings(prefixes)[:2]:
                found += 1
                result = self.complete_one(self.greedy(index, max_tokens=_LENGTH, stop=(stop,)))
                self._expect_end(result, FinishReason.STOP)
                expect(result.stop_reason == stop, f"the stop reason is {result.stop_reason!r}, expected {stop!r}")
                whole = prefixes[-1]
                expected = whole.text[: whole.text.index(stop)]
                expect(result.text == expected, f"the text is {result.text!r}, expected {expected!r}")
                expect(
                    result.token_ids == whole.token_ids[:count],
                    f"{len(result.token_ids)} ids for the stop {stop!r}, expected the {count} that complete it",
                )
        if not found:
            not_run("no response has a text of two characters or more")

    @check(Capability.STOP_STRINGS, Capability.INCLUDE_STOP)
    def test_include_stop(self) -> None:
        """A stop string that is to be included stays in the text, and the ids are the same."""
        prefixes = self._prefixes(0)
        stops = _stop_strings(prefixes)
        if not stops:
            not_run("the response has no text of two characters or more")
        stop, count = stops[0]
        result = self.complete_one(self.greedy(0, max_tokens=_LENGTH, stop=(stop,), include_stop=True))
        whole = prefixes[-1]
        expected = whole.text[: whole.text.index(stop) + len(stop)]
        expect(result.text == expected, f"the text is {result.text!r}, expected {expected!r}")
        expect(result.token_ids == whole.token_ids[:count], "including the stop string changes the ids")

    @check(Capability.STOP_TOKEN_IDS)
    def test_stop_token_id(self) -> None:
        """A stop token id ends the response with `stop`, is named, and stays in the ids."""
        for index in range(4):
            whole = self.complete_one(self.greedy(index, max_tokens=_LENGTH))
            token = whole.token_ids[-1]
            count = whole.token_ids.index(token) + 1
            result = self.complete_one(self.greedy(index, max_tokens=_LENGTH, stop_token_ids=(token,)))
            self._expect_end(result, FinishReason.STOP)
            expect(result.token_ids == whole.token_ids[:count], f"the ids are {result.token_ids}, expected {count}")
            expect(result.stop_reason == token, f"the stop reason is {result.stop_reason!r}, expected {token}")

    @check(Capability.STOP_TOKEN_IDS, Capability.MIN_TOKENS)
    def test_min_tokens(self) -> None:
        """No stop ends a response before min_tokens."""
        first = self.complete_one(self.greedy(1, max_tokens=1)).token_ids[0]
        early = self.complete_one(self.greedy(1, stop_token_ids=(first,)))
        late = self.complete_one(self.greedy(1, stop_token_ids=(first,), min_tokens=6))
        expect(len(early.token_ids) == 1, f"{len(early.token_ids)} tokens before the stop id, expected 1")
        expect(len(late.token_ids) >= 6, f"{len(late.token_ids)} tokens with min_tokens = 6")

    @check()
    def test_eos(self) -> None:
        """The end of sequence ends a response with `stop`, and its token stays in the ids."""
        _, result = self._ended_by_eos()
        self._expect_end(result, FinishReason.STOP)
        eos = self.eos_ids()
        if not eos:
            not_run("the model's config names no end-of-sequence token")
        expect(result.token_ids[-1] in eos, f"the last id is {result.token_ids[-1]}, expected one of {sorted(eos)}")
        expect(not eos & set(result.token_ids[:-1]), "the response goes on after an end of sequence")

    @check(Capability.IGNORE_EOS, Capability.SEED)
    def test_ignore_eos(self) -> None:
        """With ignore_eos the same response goes on to its budget."""
        request, ended = self._ended_by_eos()
        params = request.params.model_copy(update={"ignore_eos": True})
        result = self.complete_one(GenerateRequest(request.prompt_ids, params))
        self._expect_end(result, FinishReason.LENGTH)
        kept = result.token_ids[: len(ended.token_ids)]
        expect(kept == ended.token_ids, "ignoring the end of sequence changes the tokens before it")

    def _expect_end(self, result: GenerateResult, reason: FinishReason) -> None:
        expect(result.finish_reason is reason, f"the finish reason is {result.finish_reason}, expected {reason}")

    def _prefixes(self, index: int) -> list[GenerateResult]:
        """The greedy response cut after 1, 2, ... tokens: their texts say which token completes what."""
        return self.complete(*(self.greedy(index, max_tokens=count) for count in range(1, _LENGTH + 1)))

    def _ended_by_eos(self) -> tuple[GenerateRequest, GenerateResult]:
        """A request whose response ended by itself."""
        seeds = [{"seed": i} if self.face.offers(Capability.SEED) else {} for i in range(_EOS_TRIES)]
        prompts = [tuple(self.eos_prompt) or self.prompt(i % 8) for i in range(_EOS_TRIES)]
        requests = [
            GenerateRequest(prompt, SampleParams(max_tokens=96, **seed))
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        results = self.complete(*requests)
        ended = next((i for i, result in enumerate(results) if len(result.token_ids) < 96), None)
        if ended is None:
            not_run(f"none of {_EOS_TRIES} responses reached its end of sequence; set eos_prompt")
        return requests[ended], results[ended]


def _stop_strings(prefixes: list[GenerateResult]) -> list[tuple[str, int]]:
    """Strings of the text that straddle two tokens, each with the count of tokens that completes it."""
    found = []
    for before, after in pairwise(prefixes):
        at = len(before.text)
        stop = after.text[at - 1 : at + 1]
        # A prefix whose text is not a prefix of the next one ends in the middle of a character.
        grows = after.text.startswith(before.text) and prefixes[-1].text.startswith(after.text)
        if grows and len(stop) == 2 and "�" not in stop and after.text.index(stop) == at - 1:
            found.append((stop, len(after.token_ids)))
    return found
