"""What control calls answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollout_core.controller import ControllerStatus, View
from rollout_core.model import ModelInfo
from rollout_core.weights import UpdateOptions

__all__ = ["Greeting", "Joined", "Lease", "Nothing", "Plan", "RunStatus", "TrainerStatus", "Updated", "Wish"]


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
class Plan:
    """What a trainer needs to know to describe its weights."""

    options: UpdateOptions
    rank_counts: tuple[int, ...]
    """Ranks that each target updates."""


class Wish(StrEnum):
    """What a target of an update wants of the trainer."""

    BUCKET = "bucket"
    """The next one."""
    NOTHING = "nothing"
    """It has everything, or has given up."""
    REFUSED = "refused"
    """It has written nothing, and nobody else shall."""


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
