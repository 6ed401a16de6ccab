"""The engines of a run: started side by side, taken out of service when they fail, ended together."""

from __future__ import annotations

import contextlib
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
from rollout_core.types import Capability, PauseMode
from rollout_core.worker import Worker

__all__ = ["Fleet"]

Answer = TypeVar("Answer")
_HEARTBEAT_S = 1.0
_END_SHOWS_S = 1.0


class Fleet:
    """Owns the engines and their states; safe to call from any thread."""

    def __init__(
        self,
        plugins: Plugins,
        topology: Topology,
        executor: LocalExecutor,
        on_change: Callable[[list[ManagedEngine]], None],
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
        self._on_change(self.engines)
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
        """Send no requests to an engine whose weights are in doubt; what it is working on comes back."""
        self._set_state(engine, EngineState.QUARANTINED, reason)
        if self._plugins.backend.offers(Capability.PAUSE_ABORT):
            for worker in engine.entry_workers:
                with contextlib.suppress(EngineError):
                    worker.pause_generation(PauseMode.ABORT)

    def restore(self, engine: ManagedEngine) -> None:
        """Take an engine whose weights are current back into service."""
        if engine.state is EngineState.QUARANTINED:
            self._set_state(engine, EngineState.READY)

    def ask_all(self, ask: Callable[[Worker], Answer]) -> list[tuple[str, Answer]]:
        """Ask the workers that take requests, all at once; each answer with its engine's name.

        An engine whose process has ended is taken out of service, and does not count.

        Raises:
            EngineError: of an engine that lives, once all have answered; or no engine is in service.
        """
        answers = self._side_by_side(ask)
        gone = {id(engine) for engine, answer in answers if answer.exception() is not None and self._is_gone(engine)}
        left = [(engine.name, answer.result()) for engine, answer in answers if id(engine) not in gone]
        if not left:
            raise self._no_engine()
        return left

    def _is_gone(self, engine: ManagedEngine) -> bool:
        """Whether the engine's process has ended; its connections break a moment before its end shows."""
        deadline = time.monotonic() + _END_SHOWS_S
        while (reason := engine.exited()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if reason is not None:
            self.fail(engine, reason)
        return reason is not None

    def _no_engine(self) -> EngineError:
        reasons = "; ".join(f"{e.name}: {e.reason}" for e in self.engines if e.reason)
        return EngineError(f"no engine is in service{': ' + reasons if reasons else ''}")

    def change_all(self, change: Callable[[Worker], Answer], undo: Callable[[Worker], Answer] | None = None) -> None:
        """Change the state of all engines in service alike.

        An engine that does not acknowledge goes out of service. With ``undo``, the change is taken back everywhere
        instead, and only an engine that does not acknowledge that goes out of service; an engine whose process has
        ended goes in any case, and does not count.

        Raises:
            EngineError: the change was taken back, or no engine acknowledged.
        """
        errors = [(engine, error) for engine, error in self._errors(change) if not self._is_gone(engine)]
        if not self.ready:
            raise self._no_engine()
        if not errors:
            return
        broken = errors if undo is None else self._errors(undo)
        for engine, error in broken:
            self.fail(engine, str(error))
        if undo is not None or not self.ready:
            raise errors[0][1]

    def _errors(self, ask: Callable[[Worker], Answer]) -> list[tuple[ManagedEngine, BaseException]]:
        answers = self._side_by_side(ask)
        return [(engine, error) for engine, answer in answers if (error := answer.exception()) is not None]

    def _side_by_side(self, ask: Callable[[Worker], Answer]) -> list[tuple[ManagedEngine, Future[Answer]]]:
        targets = [(engine, worker) for engine in self.ready for worker in engine.entry_workers]
        if not targets:
            raise self._no_engine()
        # Threads of their own: a control call is never queued behind the stop of another engine.
        with ThreadPoolExecutor(max_workers=len(targets), thread_name_prefix="rollout-control") as lane:
            return [(engine, lane.submit(ask, worker)) for engine, worker in targets]

    def _set_state(self, engine: ManagedEngine, state: EngineState, detail: str = "", seconds: float = 0.0) -> None:
        with self._lock:
            engine.state, engine.reason = state, detail
            self._on_change(self.engines)
        self._tell(EngineEvent(engine.name, state, detail, seconds))
        self._plugins.hook.engine_changed(engine=engine.name, state=state.value, reason=detail)

    def _tell(self, event: EngineEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
