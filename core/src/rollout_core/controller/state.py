"""What clients see of the engines: immutable snapshots, made by the controller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Endpoint", "EngineEvent", "EngineState", "View"]


class EngineState(StrEnum):
    """Where an engine stands."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """Gets no more requests; its processes were ended."""
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
    reasons: dict[str, str]
    """Why an engine failed."""
    weight_version: int = 0


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A change of an engine's state, or a sign of life while it starts."""

    engine: str
    state: EngineState
    detail: str = ""
    seconds: float = 0.0
    """Since the engine's start began."""
