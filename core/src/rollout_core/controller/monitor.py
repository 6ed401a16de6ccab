"""Watches the engines in a thread: processes that end, checks that fail, requests that do not progress."""

from __future__ import annotations

import threading
import time

from rollout_core.config import RolloutConfig
from rollout_core.controller.engine import ManagedEngine
from rollout_core.controller.fleet import Fleet
from rollout_core.controller.health import check_engine

__all__ = ["Monitor"]

_EXIT_POLL_S = 0.2


class Monitor:
    """Takes an engine out of service when it is dead; busy is not dead."""

    def __init__(self, fleet: Fleet, config: RolloutConfig) -> None:
        """Does nothing before :meth:`start`."""
        self._fleet = fleet
        self._config = config
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollout-monitor", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and wait until a check in progress has ended; twice is harmless."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        interval_s = self._config.health_check_interval_s
        next_check = time.monotonic() + interval_s
        while not self._stopping.wait(min(_EXIT_POLL_S, interval_s)):
            for engine in self._fleet.ready:
                if (reason := engine.exited()) is not None:
                    self._fleet.fail(engine, reason)
            if time.monotonic() >= next_check:
                for engine in self._fleet.ready:
                    self._check(engine)
                next_check = time.monotonic() + interval_s

    def _check(self, engine: ManagedEngine) -> None:
        healths = check_engine(engine)
        dead = next((health for health in healths if not health.alive), None)
        if dead is None:
            engine.failed_checks = 0
            if (stalled := engine.note_health(healths, self._config.rollout_timeout_s)) is not None:
                self._fleet.fail(engine, stalled)
            return
        engine.failed_checks += 1
        if engine.failed_checks >= self._config.health_check_failure_threshold:
            self._fleet.fail(engine, f"{engine.failed_checks} health checks in a row failed: {dead.detail}")
