"""The engines of a run: started side by side, taken out of service when they fail, ended together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from rollout_core.controller.engine import ManagedEngine
from rollout_core.controller.state import EngineEvent, EngineState
from rollout_core.errors import EngineError
from rollout_core.executors import LocalExecutor
from rollout_core.plugins import Plugins
from rollout_core.topology import Topology
from rollout_core.worker import Worker

__all__ = ["Fleet"]

Answer = TypeVar("Answer")
_HEARTBEAT_S = 1.0


class Fleet:
    """Owns the engines and their states; safe to call from any thread."""

    def __init__(
        self,
        plugins: Plugins,
        topology: Topology,
        executor: LocalExecutor,
        on_change: Callable[[], None],
        on_event: Callable[[EngineEvent], None] | None,
    ) -> None:
        """``on_change`` is called after every change of a state, ``on_event`` hears what it was; neither may block."""
        self._plugins = plugins
        self._topology = topology
        self._executor = executor
        self._on_change = on_change
        self._on_event = on_event
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=len(topology.processes) + 1, thread_name_prefix="rollout")
        self.engines: list[ManagedEngine] = []

    def start(self) -> None:
        """Start all engines and return when every one is ready.

        Raises:
            LaunchError: a server ended before it was ready.
            DeadlineError: ``startup_timeout_s`` passed.
        """
        deadline = time.monotonic() + self._plugins.config.startup_timeout_s
        self.engines = [ManagedEngine(e, self._executor.workers(e, 0)) for e in self._topology.engines]
        self._wait_started([self._pool.submit(self._start_engine, e, deadline) for e in self.engines])

    def _wait_started(self, starts: list[Future[None]]) -> None:
        began = time.monotonic()
        while True:
            done, pending = wait(starts, timeout=_HEARTBEAT_S, return_when=FIRST_EXCEPTION)
            for start in done:
                start.result()
            if not pending:
                return
            for engine in self.engines:
                if engine.state is EngineState.STARTING:
                    self._tell(EngineEvent(engine.name, engine.state, "loading", time.monotonic() - began))

    def _start_engine(self, engine: ManagedEngine, deadline: float) -> None:
        began = time.monotonic()
        self._set_state(engine, EngineState.STARTING, "launching")
        try:
            engine.start(deadline, self._closing.is_set)
        except Exception as error:
            self._set_state(engine, EngineState.FAILED, str(error), time.monotonic() - began)
            raise
        self._set_state(engine, EngineState.READY, "", time.monotonic() - began)

    def close(self) -> None:
        """End every engine, and return when no process and no port is left; twice is harmless."""
        self._closing.set()
        stops = [self._pool.submit(self._stop_engine, engine) for engine in self.engines]
        wait(stops)
        self._pool.shutdown()
        self._executor.close()
        self.engines = []
        for stop in stops:
            stop.result()

    def _stop_engine(self, engine: ManagedEngine) -> None:
        engine.stop()
        if engine.state is not EngineState.FAILED:
            self._set_state(engine, EngineState.STOPPED)

    @property
    def ready(self) -> list[ManagedEngine]:
        """The engines in service."""
        return [engine for engine in self.engines if engine.state is EngineState.READY]

    def named(self, name: str) -> ManagedEngine | None:
        """The engine of a name."""
        return next((engine for engine in self.engines if engine.name == name), None)

    def note_success(self, name: str) -> None:
        """An engine answered a request."""
        engine = self.named(name)
        if engine is not None and engine.faults:
            engine.faults = 0

    def note_fault(self, name: str, reason: str) -> None:
        """An engine failed a request by its own fault; several in a row take it out of service."""
        engine = self.named(name)
        if engine is None or engine.state is not EngineState.READY:
            return
        config = self._plugins.config
        with self._lock:
            engine.faults += 1
            limit = config.max_retries_per_worker or config.health_check_failure_threshold
            out_of_service = engine.faults >= limit or engine.exited() is not None
        if out_of_service:
            self.fail(engine, engine.exited() or f"{engine.faults} requests in a row failed, the last: {reason}")

    def fail(self, engine: ManagedEngine, reason: str) -> None:
        """Take an engine out of service and end its processes, which ends the requests in flight on it."""
        with self._lock:
            if self._closing.is_set() or engine.state is not EngineState.READY:
                return
            self._set_state(engine, EngineState.FAILED, reason)
        self._pool.submit(engine.stop)

    @property
    def writable(self) -> list[ManagedEngine]:
        """The engines that can take new weights: those in service and those in quarantine."""
        return [e for e in self.engines if e.state in (EngineState.READY, EngineState.QUARANTINED)]

    def quarantine(self, engine: ManagedEngine, reason: str) -> None:
        """Send no requests to an engine whose weights are in doubt."""
        self._set_state(engine, EngineState.QUARANTINED, reason)

    def restore(self, engine: ManagedEngine) -> None:
        """Take an engine whose weights are current back into service."""
        if engine.state is EngineState.QUARANTINED:
            self._set_state(engine, EngineState.READY)

    def ask_all(self, ask: Callable[[Worker], Answer]) -> list[Answer]:
        """Ask the workers that take requests, all at once; an error is raised when all have answered.

        Raises:
            EngineError: no engine is in service.
        """
        answers = self._side_by_side(ask)
        return [answer.result() for _, answer in answers]

    def change_all(self, change: Callable[[Worker], Answer]) -> list[Answer]:
        """As :meth:`ask_all`; an engine that does not acknowledge is in doubt and goes out of service."""
        answers = self._side_by_side(change)
        for engine, answer in answers:
            if (error := answer.exception()) is not None:
                self.fail(engine, str(error))
        return [answer.result() for _, answer in answers]

    def _side_by_side(self, ask: Callable[[Worker], Answer]) -> list[tuple[ManagedEngine, Future[Answer]]]:
        targets = [(engine, worker) for engine in self.ready for worker in engine.entry_workers]
        if not targets:
            reasons = "; ".join(f"{e.name}: {e.reason}" for e in self.engines if e.reason)
            raise EngineError(f"no engine is in service{': ' + reasons if reasons else ''}")
        # Threads of their own: a control call is never queued behind the stop of another engine.
        with ThreadPoolExecutor(max_workers=len(targets), thread_name_prefix="rollout-control") as lane:
            return [(engine, lane.submit(ask, worker)) for engine, worker in targets]

    def _set_state(self, engine: ManagedEngine, state: EngineState, detail: str = "", seconds: float = 0.0) -> None:
        with self._lock:
            engine.state, engine.reason = state, detail
            self._on_change()
        self._tell(EngineEvent(engine.name, state, detail, seconds))
        self._plugins.hook.engine_changed(engine=engine.name, state=state.value, reason=detail)

    def _tell(self, event: EngineEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
