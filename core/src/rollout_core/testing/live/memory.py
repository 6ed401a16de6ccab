"""Checks of offload and onload: what was freed comes back, and nothing is generated without it."""

from __future__ import annotations

from rollout_core.errors import RolloutError
from rollout_core.testing.live.base import LiveSuite
from rollout_core.testing.suite import check, expect
from rollout_core.types import Capability, MemoryPart

__all__ = ["MemoryChecks"]


class MemoryChecks(LiveSuite):
    """The memory of weights and K/V cache."""

    @check(Capability.OFFLOAD_WEIGHTS)
    def test_offloaded_weights_come_back(self) -> None:
        """Weights that were offloaded and loaded again give the same tokens."""
        self._expect_same_after(MemoryPart.WEIGHTS)

    @check(Capability.OFFLOAD_KV_CACHE)
    def test_offloaded_kv_cache_comes_back(self) -> None:
        """An engine whose K/V cache was offloaded and loaded again gives the same tokens."""
        self._expect_same_after(MemoryPart.KV_CACHE)

    @check(Capability.OFFLOAD_WEIGHTS)
    def test_sleeping_engine_refuses(self) -> None:
        """While the weights are offloaded the engine says that it sleeps, and generates nothing."""
        controller = self.engine.controller
        with controller.paused():
            controller.offload([MemoryPart.WEIGHTS])
            if "health" in self.face.groups:
                expect(self.engine.health().sleeping, "the health of an offloaded engine does not say that it sleeps")
            try:
                controller.continue_generation()
            except RolloutError:
                return
            expect(False, "generation continued while the weights were offloaded")

    @check(Capability.PAUSE_KEEP, Capability.OFFLOAD_KV_CACHE)
    def test_kept_requests_survive_an_offload(self) -> None:
        """Requests that are frozen while the K/V cache is offloaded go on exactly where they were."""
        uncut = self.complete_one(self.greedy(0, max_tokens=48))
        future = self.begin_long(self.greedy(0, max_tokens=48))
        with self.engine.controller.paused("keep"):
            self.engine.controller.offload([MemoryPart.KV_CACHE])
        self.expect_same(uncut, self.engine.wait(future, "a request over an offload"), "a request over an offload")

    def _expect_same_after(self, part: MemoryPart) -> None:
        before = self.complete_one(self.greedy(2))
        controller = self.engine.controller
        with controller.paused():
            freed = controller.offload([part])
            expect(freed == {part}, f"asked to offload {part.value}, and {sorted(freed)} was offloaded")
        self.expect_same(before, self.complete_one(self.greedy(2)), f"after an offload of {part.value}")
