"""The checks of a running engine."""

from __future__ import annotations

from collections.abc import Sequence

from rollout_core.testing.corruptions import ReplyExample
from rollout_core.testing.hooks.reply import ReplyChecks
from rollout_core.testing.live.interrupts import InterruptChecks
from rollout_core.testing.live.limits import LimitChecks
from rollout_core.testing.live.memory import MemoryChecks
from rollout_core.testing.live.sampling import SamplingChecks
from rollout_core.testing.live.serving import ServingChecks
from rollout_core.testing.live.stops import StopChecks
from rollout_core.testing.live.tokens import TokenChecks
from rollout_core.testing.live.weights import WeightChecks
from rollout_core.testing.suite import check, expect

__all__ = ["LiveBackendConformance"]


class LiveBackendConformance(
    LimitChecks,
    WeightChecks,
    MemoryChecks,
    InterruptChecks,
    ServingChecks,
    StopChecks,
    SamplingChecks,
    ReplyChecks,
    TokenChecks,
):
    """What every backend keeps, shown on its real engine.

    ``backend`` and ``model`` are enough: ``class TestMineLive(LiveBackendConformance): backend, model = "mine", path``.
    The engine is started by the first check that needs it, and ended after the last.
    """

    def examples(self) -> Sequence[ReplyExample]:
        """A reply of the running engine, broken in a dozen ways by the checks."""
        request = self.greedy(1, max_tokens=6)
        reply = self.send_raw(request)
        expect(reply.ok, f"the engine answered {reply.status}: {reply.body}")
        return (ReplyExample(request, reply, self.face.parse_response(request, reply)),)

    @property
    def vocab_size(self) -> int:  # type: ignore[override]
        """Of the model that the engine serves."""
        return self.model_info.vocab_size

    @check()
    def test_engine_is_in_service_at_the_end(self) -> None:
        """After all checks the engine is in service."""
        self.complete_one(self.request())
        expect(self.engine.alive, f"the engine says: {self.engine.controller.health()}")
