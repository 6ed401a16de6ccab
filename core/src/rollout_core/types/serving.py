"""A running server: how it was started, how it feels, and what it says to control calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from rollout_core.types.backend import Capability
from rollout_core.types.http import HttpCall

__all__ = [
    "Ack",
    "Health",
    "LaunchSpec",
    "MemoryPart",
    "PauseMode",
    "Process",
    "Server",
    "Spawn",
]


class PauseMode(StrEnum):
    """What happens to the requests in flight when generation is paused."""

    ABORT = "abort"
    """They come back at once, with the tokens they have."""
    WAIT = "wait"
    """They finish; nothing new starts."""
    KEEP = "keep"
    """They freeze and go on exactly where they were."""

    @property
    def capability(self) -> Capability:
        """What a backend declares when it has the mode."""
        return Capability(f"pause_{self.value}")


class MemoryPart(StrEnum):
    """What can be offloaded."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"


class Process(Protocol):
    """A server process with all its children."""

    @property
    def pid(self) -> int:
        """Of the process group's leader."""

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""

    def stop(self) -> None:
        """Ask it to end, kill what is left after the launch's grace, and return when nothing is left."""


class Spawn(Protocol):
    """Starts a process of its own group, whose output goes to the launch's log file."""

    def __call__(self, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        """Run ``argv`` with ``env`` laid over the caller's environment."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything one server process needs to know about its place; the rest is in the config."""

    engine: int
    """Index of the engine in the topology."""
    process: int
    """Index of the server process in its engine."""
    host: str
    port: int
    """Leased for this process until it has bound it."""
    ranks: tuple[int, ...]
    """All ranks of the engine."""
    update_ranks: tuple[int, ...]
    """The ranks whose weights are updated through this process."""
    bundles: tuple[int, ...]
    """Placement-group bundles (one accelerator each) of this process."""
    accelerators: tuple[int, ...]
    """Local accelerator ids of this process; empty on CPU."""
    accepts_requests: bool
    node_rank: int
    node_count: int
    rendezvous: str | None
    """``host:port`` shared by the processes of the engine; None for a single process."""
    run_dir: Path
    """A private folder of this launch (mode 0700), for key and settings files."""
    log_path: Path
    weight_version: int = 0

    @property
    def name(self) -> str:
        """``engine-<index>``, with the process index where an engine has several."""
        return f"engine-{self.engine}" + (f".{self.process}" if self.process else "")

    @property
    def url(self) -> str:
        """Base URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Server:
    """A started server process; it may not be ready yet."""

    url: str
    process: Process
    control_url: str | None = None
    """Where control calls go, if not to ``url``."""
    ready: HttpCall = field(default_factory=lambda: HttpCall("/health", method="GET"))
    """Answers 2xx once the server can take requests."""


@dataclass(frozen=True, slots=True)
class Ack:
    """An engine's acknowledgement of a control call."""

    weight_version: int | None = None
    """The version that the engine serves now, as it says itself."""
    aborted: int = 0
    running: int = 0
    waiting: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """How an engine feels. Busy is not dead: an engine whose ``progress`` grows is healthy."""

    alive: bool
    progress: int = 0
    """A counter that grows with every token prefilled or generated."""
    running: int = 0
    waiting: int = 0
    sleeping: bool = False
    weight_version: int | None = None
    detail: str = ""
