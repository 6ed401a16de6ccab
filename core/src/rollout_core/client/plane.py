"""What a client needs of the control plane: a controller of this process has it, or ``control.RemotePlane``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rollout_core.controller import Member, View
from rollout_core.model import ModelInfo
from rollout_core.plugins import Plugins

__all__ = ["ControlPlane"]


class ControlPlane(Protocol):
    """The engines as a client sees them."""

    @property
    def plugins(self) -> Plugins:
        """The plugins of the run, with its config."""

    @property
    def model(self) -> ModelInfo:
        """What requests are checked against."""

    @property
    def view(self) -> View:
        """The engines now."""

    @property
    def context_length(self) -> int | None:
        """Longest prompt and response together, in tokens."""

    def join(self, on_change: Callable[[], None]) -> Member:
        """Add a client, which is called after every change of the view."""

    def acknowledge(self, member: Member, epoch: int, in_flight: int) -> object:
        """Say that the client has acted on the view of ``epoch``."""

    def leave(self, member: Member) -> None:
        """Forget a client."""

    def report_success(self, engine_name: str) -> None:
        """An engine answered."""

    def report_fault(self, engine_name: str, reason: str) -> None:
        """An engine failed a request by its own fault."""
