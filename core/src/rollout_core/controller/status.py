"""How a run stands, for people and programs that ask."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rollout_core.config import RolloutConfig
from rollout_core.controller.gate import Member
from rollout_core.controller.memory import MemoryState
from rollout_core.controller.state import EngineState, View
from rollout_core.types import CachePolicy, MemoryPart, PauseMode

__all__ = ["ClientStatus", "ControllerStatus", "EngineStatus", "status_of"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine."""

    name: str
    state: EngineState
    urls: tuple[str, ...] = ()
    """Where it takes requests; empty while it is out of service."""
    reason: str = ""
    """Why it is out of service."""


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """One client."""

    name: str
    pid: int | None
    """Process id; None for a client in the controller's own process."""
    in_flight: int
    """Requests that it had in flight when it was last heard of."""
    seen_s: float
    """Seconds since then."""
    lease_s: float
    """It is taken for dead when it is not heard of for so long."""


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """A controller at one moment."""

    pid: int
    backend: str
    model: str
    log_dir: str
    paused: PauseMode | None
    weight_version: int
    cache_policy: CachePolicy | None
    offloaded: tuple[MemoryPart, ...]
    weights_dropped: bool
    """The weights were discarded, and nothing was written since."""
    engines: tuple[EngineStatus, ...]
    clients: tuple[ClientStatus, ...]


def status_of(
    config: RolloutConfig, log_dir: str, view: View, memory: MemoryState, members: Iterable[Member]
) -> ControllerStatus:
    """The status as it follows from what clients are shown and what they said."""
    return ControllerStatus(
        pid=os.getpid(),
        backend=config.backend,
        model=config.name,
        log_dir=log_dir,
        paused=view.paused,
        weight_version=view.weight_version,
        cache_policy=view.cache_policy,
        offloaded=tuple(sorted(memory.offloaded)),
        weights_dropped=memory.weights_dropped,
        engines=tuple(_engine(name, view) for name in view.states),
        clients=tuple(map(_client, members)),
    )


def _engine(name: str, view: View) -> EngineStatus:
    urls = tuple(endpoint.url for endpoint in view.endpoints if endpoint.engine == name)
    return EngineStatus(name, view.states[name], urls, view.reasons.get(name, ""))


def _client(member: Member) -> ClientStatus:
    seen_s = max(0.0, time.monotonic() - member.seen_at)
    return ClientStatus(member.name, member.pid, member.in_flight, seen_s, member.lease_s)
