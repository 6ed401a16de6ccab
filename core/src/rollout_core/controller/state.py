"""What clients see of the engines: immutable snapshots, made by the controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rollout_core.types import CachePolicy, PauseMode

__all__ = ["Endpoint", "EngineEvent", "EngineState", "PauseReport", "View"]


class EngineState(StrEnum):
    """Where an engine stands."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """Gets no more requests; its processes were ended."""
    QUARANTINED = "quarantined"
    """Its weights are in doubt: it runs, gets no requests, and comes back with the next update that succeeds."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that takes requests."""

    engine: str
    url: str
    """Base URL, such as ``http://127.0.0.1:20001``."""


@dataclass(frozen=True, slots=True)
class View:
    """The engines at one moment."""

    endpoints: tuple[Endpoint, ...]
    """Of the ready engines only."""
    states: dict[str, EngineState]
    reasons: dict[str, str] = field(default_factory=dict)
    """Why an engine failed."""
    paused: PauseMode | None = None
    """While generation is paused, clients send nothing."""
    weight_version: int = 0
    """The version that was published last."""
    cache_policy: CachePolicy | None = None
    """Of that update; None before the first one."""
    epoch: int = 0
    """Grows with every change."""


@dataclass(frozen=True, slots=True)
class PauseReport:
    """How the barrier of a pause was passed."""

    mode: PauseMode
    clients: int
    """Clients that closed their gates and said so."""
    lost_clients: int
    """Clients whose lease ended before they answered."""
    in_flight: int
    """Requests that the clients had in flight when they closed their gates."""
    aborted: int
    """Requests that the engines gave back with the tokens they had."""
    frozen: int
    """Requests that the engines hold and will go on with."""
    seconds: float


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A change of an engine's state, or a sign of life while it starts."""

    engine: str
    state: EngineState
    detail: str = ""
    seconds: float = 0.0
    """Since the engine's start began."""
