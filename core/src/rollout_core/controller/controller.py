"""Owns the engines of a run: starts them, watches them, answers where requests can go, and ends them."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rollout_core.controller.engine import ManagedEngine
from rollout_core.controller.monitor import Monitor
from rollout_core.controller.state import EngineEvent, EngineState, View
from rollout_core.errors import EngineError
from rollout_core.executors import LocalExecutor, cluster_for
from rollout_core.model import ModelInfo
from rollout_core.plugins import Plugins
from rollout_core.types import Ack, Health, PauseMode
from rollout_core.worker import Worker

__all__ = ["Controller"]

Answer = TypeVar("Answer")
_HEARTBEAT_S = 1.0


class Controller:
    """The control plane of one run.

    A context manager: entering starts all engines and waits until they are ready, leaving ends them. Its methods
    block and are safe to call from any thread.

    Attributes:
        plugins: the loaded plugins, with the validated config.
        model: what requests are checked against.
        topology: the engines and their places.
    """

    def __init__(
        self,
        plugins: Plugins,
        *,
        log_dir: Path | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
    ) -> None:
        """Check everything that can be checked before anything starts.

        Args:
            plugins: as loaded from the config.
            log_dir: folder of the servers' logs; the config's ``log_dir`` wins. Unset: a temporary folder.
            on_event: hears of every change of an engine, from any thread; must not block.

        Raises:
            ModelError, TopologyError, CapabilityError, ConfigError: the config cannot be run.
        """
        config = plugins.config
        self.plugins = plugins
        self.model = ModelInfo.read(config.model_path, trust_remote_code=config.trust_remote_code)
        self.topology = plugins.backend.build_topology(cluster_for(config))
        self.log_dir = Path(config.log_dir or log_dir or tempfile.mkdtemp(prefix="rollout-logs-"))
        self._executor = LocalExecutor(plugins.backend, self.topology, self.log_dir)
        self._on_event = on_event
        self._lock = threading.RLock()
        self._engines: list[ManagedEngine] = []
        self._pool = ThreadPoolExecutor(max_workers=len(self.topology.processes) + 1, thread_name_prefix="rollout")
        self._monitor = Monitor(self)
        self._closing = threading.Event()
        self._view = View((), {}, {})

    # Life

    def start(self) -> None:
        """Start all engines side by side and return when every one is ready.

        Raises:
            LaunchError: a server ended before it was ready; the others are stopped first.
            DeadlineError: ``startup_timeout_s`` passed.
        """
        deadline = time.monotonic() + self.plugins.config.startup_timeout_s
        try:
            self._engines = [ManagedEngine(e, self._executor.workers(e, 0)) for e in self.topology.engines]
            self._wait_started([self._pool.submit(self._start_engine, e, deadline) for e in self._engines])
        except BaseException:
            self.close()
            raise
        self._monitor.start()
        self.plugins.hook.run_started(config=self.plugins.config, topology=self.topology)

    def _wait_started(self, starts: list[Future[None]]) -> None:
        began = time.monotonic()
        while True:
            done, pending = wait(starts, timeout=_HEARTBEAT_S, return_when=FIRST_EXCEPTION)
            for start in done:
                start.result()
            if not pending:
                return
            for engine in self._engines:
                if engine.state is EngineState.STARTING:
                    self._tell(EngineEvent(engine.name, engine.state, "loading", time.monotonic() - began))

    def _start_engine(self, engine: ManagedEngine, deadline: float) -> None:
        began = time.monotonic()
        self._set_state(engine, EngineState.STARTING, "launching", 0.0)
        try:
            engine.start(deadline, self._closing.is_set)
        except Exception as error:
            self._set_state(engine, EngineState.FAILED, str(error), time.monotonic() - began)
            raise
        self._set_state(engine, EngineState.READY, "", time.monotonic() - began)

    def close(self) -> None:
        """End every engine, and return when no process and no port is left; twice is harmless."""
        self._closing.set()
        self._monitor.stop()
        stops = [self._pool.submit(self._stop_engine, engine) for engine in self._engines]
        wait(stops)
        self._pool.shutdown()
        self._executor.close()
        for stop in stops:
            stop.result()
        self._engines = []

    def _stop_engine(self, engine: ManagedEngine) -> None:
        engine.stop()
        if engine.state is not EngineState.FAILED:
            self._set_state(engine, EngineState.STOPPED)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What clients ask and report

    @property
    def view(self) -> View:
        """The engines at this moment; cheap, a client asks for every request."""
        return self._view

    @property
    def context_length(self) -> int | None:
        """Longest prompt and response together, in tokens; None where neither config nor model sets a limit."""
        return self.plugins.config.context_length or self.model.context_length

    def report_success(self, engine_name: str) -> None:
        """Hear that an engine answered a request."""
        engine = self._engine(engine_name)
        if engine is not None and engine.faults:
            engine.faults = 0

    def report_fault(self, engine_name: str, reason: str) -> None:
        """Hear that an engine failed a request by its own fault; several in a row take it out of service."""
        engine = self._engine(engine_name)
        if engine is None or engine.state is not EngineState.READY:
            return
        config = self.plugins.config
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

    # Control

    def health(self) -> dict[str, Health]:
        """Ask every ready engine how it feels; an engine that does not answer is not alive."""
        return {
            engine.name: healths[0] if len(healths) == 1 else _worst(healths)
            for engine in self.ready_engines()
            for healths in [self.check(engine)]
        }

    def check(self, engine: ManagedEngine) -> list[Health]:
        """One health check of each server of the engine that takes requests."""
        return [_health_of(worker) for worker in engine.entry_workers]

    def pause_generation(self, mode: PauseMode) -> list[Ack]:
        """Stop generation on all engines, and return when all are quiet."""
        return self._on_all(lambda worker: worker.pause_generation(mode))

    def continue_generation(self) -> list[Ack]:
        """Undo a pause on all engines."""
        return self._on_all(lambda worker: worker.continue_generation())

    def abort_requests(self, request_ids: Sequence[str] | None = None) -> int:
        """Abort the given requests, or all: each comes back to its caller with the tokens it has.

        Returns:
            How many requests the engines aborted.
        """
        return sum(ack.aborted for ack in self._on_all(lambda worker: worker.abort_requests(request_ids)))

    def _on_all(self, ask: Callable[[Worker], Answer]) -> list[Answer]:
        workers = [worker for engine in self.ready_engines() for worker in engine.entry_workers]
        if not workers:
            raise EngineError("no engine is in service; see the reasons in view.reasons")
        # Threads of their own: a control call is never queued behind the stop of another engine.
        with ThreadPoolExecutor(max_workers=len(workers), thread_name_prefix="rollout-control") as lane:
            return list(lane.map(ask, workers))

    def ready_engines(self) -> list[ManagedEngine]:
        """The engines in service."""
        return [engine for engine in self._engines if engine.state is EngineState.READY]

    def _engine(self, name: str) -> ManagedEngine | None:
        return next((engine for engine in self._engines if engine.name == name), None)

    def _set_state(self, engine: ManagedEngine, state: EngineState, detail: str = "", seconds: float = 0.0) -> None:
        with self._lock:
            engine.state, engine.reason = state, detail
            self._view = View(
                endpoints=tuple(endpoint for e in self.ready_engines() for endpoint in e.endpoints),
                states={e.name: e.state for e in self._engines},
                reasons={e.name: e.reason for e in self._engines if e.state is EngineState.FAILED},
            )
        self._tell(EngineEvent(engine.name, state, detail, seconds))
        self.plugins.hook.engine_changed(engine=engine.name, state=state.value, reason=detail)

    def _tell(self, event: EngineEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)


def _health_of(worker: Worker) -> Health:
    try:
        return worker.check_health()
    except EngineError as error:
        return Health(alive=False, detail=str(error))


def _worst(healths: Iterable[Health]) -> Health:
    """Of an engine with several servers: dead if one is dead, its counters added up."""
    healths = list(healths)
    return Health(
        alive=all(health.alive for health in healths),
        progress=sum(health.progress for health in healths),
        running=sum(health.running for health in healths),
        waiting=sum(health.waiting for health in healths),
        sleeping=any(health.sleeping for health in healths),
        weight_version=min((h.weight_version for h in healths if h.weight_version is not None), default=None),
        detail="; ".join(health.detail for health in healths if health.detail),
    )
