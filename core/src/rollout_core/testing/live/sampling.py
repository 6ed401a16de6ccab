"""Checks that sampling parameters do what they say."""

from __future__ import annotations

from typing import Any

from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect
from rollout_core.types import Capability, GenerateRequest, SampleParams

__all__ = ["SamplingChecks"]

_COMPANY = 15


class SamplingChecks(LiveSuite):
    """Greedy, filters, penalties, seeds and groups."""

    @check()
    def test_greedy_repeats(self) -> None:
        """Temperature 0 gives the same tokens every time."""
        for index in range(2):
            first, second = self.complete(self.greedy(index), self.greedy(index))
            self.expect_same(first, second, "two greedy runs")

    @check()
    def test_greedy_ignores_filters(self) -> None:
        """At temperature 0 top_k and top_p change nothing."""
        plain = self.complete_one(self.greedy(1))
        for params in ({"top_k": 3}, {"top_p": 0.5}):
            self.expect_same(plain, self.complete_one(self.greedy(1, **params)), f"greedy with {params}")

    @check()
    def test_top_k_filters(self) -> None:
        """top_k = 1 takes the most likely token at any temperature."""
        self._expect_greedy(temperature=10.0, top_k=1)

    @check()
    def test_top_p_filters(self) -> None:
        """A tiny top_p takes the most likely token at any temperature."""
        self._expect_greedy(temperature=2.0, top_p=1e-6)

    @check(Capability.MIN_P)
    def test_min_p_filters(self) -> None:
        """min_p = 1 takes the most likely token at any temperature."""
        self._expect_greedy(temperature=10.0, min_p=1.0)

    @check()
    def test_temperature_spreads(self) -> None:
        """A high temperature leaves the greedy path, and a tiny one stays on it."""
        self._expect_greedy(temperature=1e-3)
        plain = self.complete_one(self.greedy(0))
        hot = self.complete(*(self.greedy(0, temperature=10.0) for _ in range(8)))
        expect(any(r.token_ids != plain.token_ids for r in hot), "8 samples at temperature 10 are all greedy")

    @check(Capability.PENALTIES)
    def test_penalties_change_the_output(self) -> None:
        """Each of the three penalties changes what a repetitive prompt is continued with."""
        plain = self.complete(*self._repetitive())
        for params in ({"repetition_penalty": 5.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
            other = self.complete(*self._repetitive(**params))
            same = [a.token_ids == b.token_ids for a, b in zip(plain, other, strict=True)]
            expect(not all(same), f"{params} changes none of {len(same)} responses")

    @check(Capability.SEED)
    def test_seed_repeats_alone(self) -> None:
        """The same seed gives the same tokens."""
        first = self.complete_one(self._seeded(7))
        second = self.complete_one(self._seeded(7))
        expect(first.token_ids == second.token_ids, f"{first.token_ids} and {second.token_ids} with one seed")

    @check(Capability.SEED)
    def test_seed_repeats_in_company(self) -> None:
        """The same seed gives the same tokens among 15 other requests."""
        alone = self.complete_one(self._seeded(7))
        company = [self.request(i, max_tokens=8 + i, seed=100 + i) for i in range(_COMPANY)]
        among = self.complete(*company[:8], self._seeded(7), *company[8:])[8]
        expect(alone.token_ids == among.token_ids, f"{alone.token_ids} alone, {among.token_ids} in company")

    @check(Capability.SEED)
    def test_seeds_differ(self) -> None:
        """Different seeds give different samples."""
        results = self.complete(*(self._seeded(seed) for seed in range(8)))
        distinct = {result.token_ids for result in results}
        expect(len(distinct) > len(results) // 2, f"8 seeds gave {len(distinct)} distinct responses")

    @check()
    def test_group_gives_each_sample_once(self) -> None:
        """A group of 8 samples of one prompt comes back whole: each once, with ids of its own, not all alike."""
        prompt, params = self.prompt(2), SampleParams(max_tokens=24, **self.unending())
        requests = [GenerateRequest(prompt, params, group_id="conformance-group") for _ in range(8)]
        results = self.complete(*requests)
        expected, found = [r.request_id for r in requests], [r.request_id for r in results]
        expect(found == expected, f"asked for {expected}, got {found}")
        expect(len({r.token_ids for r in results}) > 1, "8 samples at temperature 1 are all alike")

    def _expect_greedy(self, **params: Any) -> None:
        for index in range(2):
            plain, other = self.complete(self.greedy(index), self.greedy(index, **params))
            self.expect_same(plain, other, f"{params} is not greedy")

    def _seeded(self, seed: int) -> GenerateRequest:
        return self.request(0, max_tokens=24, seed=seed, **self.unending())

    def _repetitive(self, **params: Any) -> list[GenerateRequest]:
        settings = self.greedy(max_tokens=32, **params).params
        return [GenerateRequest(self.prompt(i)[:3] * 6, settings) for i in range(4)]
