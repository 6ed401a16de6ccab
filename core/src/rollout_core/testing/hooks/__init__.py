"""The checks that need no engine: each hook alone, with its edges replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rollout_core.testing.corruptions import ReplyExample
from rollout_core.testing.hooks.control import ControlChecks
from rollout_core.testing.hooks.describe import DescribeChecks
from rollout_core.testing.hooks.launch import LaunchChecks
from rollout_core.testing.hooks.payload import PayloadChecks
from rollout_core.testing.hooks.reply import ReplyChecks
from rollout_core.testing.hooks.topology import TopologyChecks
from rollout_core.types import GenerateRequest, Reply

__all__ = ["BackendConformance"]


class BackendConformance(ControlChecks, ReplyChecks, PayloadChecks, LaunchChecks, TopologyChecks, DescribeChecks):
    """What every backend keeps, shown without its engine.

    ``class TestMine(BackendConformance): backend = "mine"`` is enough; recorded replies make it complete.
    """

    reply_examples: ClassVar[Sequence[ReplyExample]] = ()
    """Replies recorded from the real engine; the kit also breaks them in a dozen ways."""

    broken_replies: ClassVar[Mapping[str, tuple[GenerateRequest, Reply]]] = {}
    """Replies in which the engine is known to go wrong, by name; each must be refused."""

    def examples(self) -> Sequence[ReplyExample]:
        """The class attribute ``reply_examples``."""
        return self.reply_examples

    def broken(self) -> Mapping[str, tuple[GenerateRequest, Reply]]:
        """The class attribute ``broken_replies``."""
        return self.broken_replies
