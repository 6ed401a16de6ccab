"""What clients are shown: whether generation is paused, which weights are served, and which engines are in service."""

from __future__ import annotations

import threading

from rollout_core.controller.engine import ManagedEngine
from rollout_core.controller.gate import Gate
from rollout_core.controller.state import EngineState, View
from rollout_core.types import CachePolicy, PauseMode

__all__ = ["Board"]

_UNFIT = (EngineState.FAILED, EngineState.QUARANTINED)


class Board:
    """Makes the view anew after every change, and tells all clients. Safe to use from any thread."""

    def __init__(self) -> None:
        """Nothing is served yet."""
        self.gate = Gate()
        self.view = View((), {})
        """What clients see now."""
        self._lock = threading.RLock()
        self._paused: PauseMode | None = None
        self._weight_version = 0
        self._cache_policy: CachePolicy | None = None
        self._engines: list[ManagedEngine] = []

    @property
    def paused(self) -> PauseMode | None:
        """The mode of the pause, or None while generation runs."""
        return self._paused

    @property
    def weight_version(self) -> int:
        """The version that was published last."""
        return self._weight_version

    def show_engines(self, engines: list[ManagedEngine]) -> None:
        """Their states changed."""
        with self._lock:
            self._engines = engines
            self._renew()

    def show_paused(self, mode: PauseMode | None) -> int:
        """Generation pauses or continues; returns the epoch in which clients see it."""
        with self._lock:
            self._paused = mode
            self._renew()
            return self.view.epoch

    def show_weights(self, version: int, policy: CachePolicy) -> None:
        """New weights are served."""
        with self._lock:
            self._weight_version, self._cache_policy = version, policy
            self._renew()

    def _renew(self) -> None:
        ready = [engine for engine in self._engines if engine.state is EngineState.READY]
        self.view = View(
            endpoints=tuple(endpoint for engine in ready for endpoint in engine.endpoints),
            states={engine.name: engine.state for engine in self._engines},
            reasons={engine.name: engine.reason for engine in self._engines if engine.state in _UNFIT},
            paused=self._paused,
            weight_version=self._weight_version,
            cache_policy=self._cache_policy,
            epoch=self.gate.epoch + 1,
        )
        self.gate.advance()
