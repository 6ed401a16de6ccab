"""What control calls answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollout_core.controller import ControllerStatus, View
from rollout_core.model import ModelInfo

__all__ = ["Greeting", "Joined", "Lease", "Nothing", "RunStatus", "TrainerStatus", "Updated"]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Done."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a process needs to know to work with the run. Holds secrets."""

    config: dict[str, Any]
    model: ModelInfo
    context_length: int | None


@dataclass(frozen=True, slots=True)
class Joined:
    """A new member."""

    member: str
    lease_s: float
    view: View


@dataclass(frozen=True, slots=True)
class Lease:
    """A trainer's."""

    trainer: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class Updated:
    """An update that was published; see :class:`rollout_core.controller.UpdateReport`."""

    version: int
    engines: tuple[str, ...]
    quarantined: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """A trainer in another process."""

    pid: int
    seen_s: float
    """Seconds since it was last heard of."""
    lease_s: float
    holds_pause: bool
    """Generation is paused for it."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands."""

    version: str
    """Of rollout-core."""
    controller: ControllerStatus
    trainers: tuple[TrainerStatus, ...]
    notice: str = ""
    """What became of the trainer that was lost last."""
