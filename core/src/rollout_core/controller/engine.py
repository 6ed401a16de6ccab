"""One engine as the controller sees it: its workers, its state, and how often it failed in a row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rollout_core.controller.state import Endpoint, EngineState
from rollout_core.topology import Engine
from rollout_core.types import Health
from rollout_core.worker import Worker

__all__ = ["ManagedEngine"]


class ManagedEngine:
    """The server processes of one engine: they start, fail and stop together."""

    def __init__(self, engine: Engine, workers: list[Worker]) -> None:
        """The workers are those of the engine's processes, in order."""
        self.name = engine.name
        self.workers = workers
        self.state = EngineState.STARTING
        self.reason = ""
        self.faults = 0
        """Requests in a row that failed by the engine's fault."""
        self.failed_checks = 0
        """Health checks in a row that failed."""
        self.progress = -1
        # The end of the run may come while a failed engine is being stopped.
        self._stopping = threading.Lock()
        self.progressed_at = time.monotonic()

    @property
    def entry_workers(self) -> list[Worker]:
        """The workers whose servers take requests."""
        return [worker for worker in self.workers if worker.spec.accepts_requests]

    @property
    def weight_workers(self) -> list[Worker]:
        """The workers through whose servers weights are updated."""
        return [worker for worker in self.workers if worker.spec.update_ranks]

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where requests can be sent."""
        return [Endpoint(self.name, worker.server.url) for worker in self.entry_workers]

    def start(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        """Start all processes and wait until those that take requests are ready."""
        for worker in self.workers:
            worker.start()
        for worker in self.entry_workers:
            worker.wait_ready(deadline, cancelled)

    def exited(self) -> str | None:
        """Which process ended and how, or None while all run."""
        for worker in self.workers:
            if (status := worker.exit_status()) is not None:
                return f"{worker.spec.name} ended with status {status}; see {worker.spec.log_path}"
        return None

    def note_health(self, healths: list[Health], stalled_after_s: float) -> str | None:
        """Take in a round of health checks; return why the engine is stalled, or None."""
        progress = sum(health.progress for health in healths)
        busy = any(health.running or health.waiting for health in healths)
        now = time.monotonic()
        if progress != self.progress or not busy:
            self.progress, self.progressed_at = progress, now
        if now - self.progressed_at > stalled_after_s:
            return f"{self.name} has requests but made no progress for {now - self.progressed_at:.0f} s"
        return None

    def stop(self) -> None:
        """End all processes; twice is harmless, also from two threads at once."""
        with self._stopping:
            for worker in self.workers:
                worker.stop()
