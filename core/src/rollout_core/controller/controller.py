"""The control plane of one run: starts and watches the engines, and answers where and when requests can go."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rollout_core.controller.board import Board
from rollout_core.controller.fleet import Fleet
from rollout_core.controller.gate import Member
from rollout_core.controller.health import check_engine, combined
from rollout_core.controller.memory import ALL_PARTS, MemoryState
from rollout_core.controller.monitor import Monitor
from rollout_core.controller.probe import dissenters, fingerprint, probe_request
from rollout_core.controller.state import EngineEvent, PauseReport, View
from rollout_core.controller.status import ControllerStatus, status_of
from rollout_core.controller.weights import UpdateReport, transfer
from rollout_core.errors import StateError, WeightUpdateError
from rollout_core.executors import LocalExecutor, cluster_for
from rollout_core.model import ModelInfo
from rollout_core.plugins import Plugins
from rollout_core.types import CachePolicy, Capability, Health, MemoryPart, PauseMode
from rollout_core.weights import UpdateOptions, WeightSource

__all__ = ["Controller"]


class Controller:
    """Owns the engines of a run.

    A context manager: entering starts all engines and waits until they are ready, leaving ends them. Its methods
    block and are safe to call from any thread.

    Attributes:
        plugins: the loaded plugins, with the validated config.
        model: what requests are checked against.
        topology: the engines and their places.
        log_dir: folder of the servers' logs.
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
        executor = LocalExecutor(plugins.backend, self.topology, self.log_dir)
        self._board = Board()
        self._fleet = Fleet(plugins, self.topology, executor, self._board.show_engines, on_event)
        self._monitor = Monitor(self._fleet, config)
        self._memory = MemoryState()
        self._control = threading.RLock()
        self._verify_within: float | None = None
        """Set by an update whose engines are still to be compared."""

    # Life

    def start(self) -> None:
        """Start all engines side by side and return when every one is ready.

        Raises:
            LaunchError: a server ended before it was ready; the others are stopped first.
            DeadlineError: ``startup_timeout_s`` passed.
        """
        try:
            self._fleet.start()
        except BaseException:
            self.close()
            raise
        self._monitor.start()
        self.plugins.hook.run_started(config=self.plugins.config, topology=self.topology)

    def close(self) -> None:
        """End every engine, and return when no process and no port is left; twice is harmless."""
        self._monitor.stop()
        self._fleet.close()

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
        return self._board.view

    @property
    def context_length(self) -> int | None:
        """Longest prompt and response together, in tokens; None where neither config nor model sets a limit."""
        return self.plugins.config.context_length or self.model.context_length

    def join(self, on_change: Callable[[], None], pid: int | None = None) -> Member:
        """Add a client.

        Args:
            on_change: called from any thread after a change of :attr:`view`; must not block.
            pid: of the client's process, if it is not this one.
        """
        return self._board.gate.join(Member(self.plugins.config.client_lease_s, on_change, pid))

    def acknowledge(self, member: Member, epoch: int, in_flight: int) -> bool:
        """Hear that a client has acted on the view of ``epoch``, with so many requests in flight.

        Returns:
            False when the client is not known (any more), and must join again.
        """
        return self._board.gate.acknowledge(member.name, epoch, in_flight)

    def leave(self, member: Member) -> None:
        """Forget a client."""
        self._board.gate.leave(member.name)

    def report_success(self, engine_name: str) -> None:
        """Hear that an engine answered a request."""
        self._fleet.note_success(engine_name)

    def report_fault(self, engine_name: str, reason: str) -> None:
        """Hear that an engine failed a request by its own fault; several in a row take it out of service."""
        self._fleet.note_fault(engine_name, reason)

    # Control

    def status(self) -> ControllerStatus:
        """How the run stands; asks no engine."""
        config, members = self.plugins.config, self._board.gate.members()
        return status_of(config, str(self.log_dir), self._board.view, self._memory, members)

    def health(self) -> dict[str, Health]:
        """Ask every ready engine how it feels; an engine that does not answer is not alive."""
        return {engine.name: combined(check_engine(engine)) for engine in self._fleet.ready}

    def pause_generation(self, mode: PauseMode | str = PauseMode.ABORT) -> PauseReport:
        """Stop generation: a barrier over all clients and engines.

        First every client closes its gate and says so, then the engines pause; when this returns nothing is being
        generated. Pausing again with the same mode is harmless, with another mode it applies that to what is left.

        Args:
            mode: ``abort`` gives the requests in flight back with the tokens they have, ``wait`` lets them finish,
                ``keep`` freezes them.

        Raises:
            CapabilityError: the backend cannot pause, or not in this mode.
            EngineError: an engine did not acknowledge; generation goes on.
        """
        mode = PauseMode(mode)
        started = time.monotonic()
        with self._control:
            self.plugins.backend.require(mode.capability, f"pausing with mode '{mode.value}'")
            before = self._board.paused
            members, lost = self._board.gate.wait_acknowledged(self._board.show_paused(mode))
            try:
                # Engines in quarantine are paused already, and an update may bring them back.
                asleep = self._fleet.writable and not self._fleet.ready
                acks = [] if asleep else self._fleet.ask_all(lambda worker: worker.pause_generation(mode))
            except BaseException:
                if before is None:
                    self.continue_generation()
                raise
        return PauseReport(
            mode=mode,
            clients=len(members),
            lost_clients=len(lost),
            in_flight=sum(member.in_flight for member in members),
            aborted=sum(ack.aborted for _, ack in acks),
            frozen=sum(ack.running + ack.waiting for _, ack in acks),
            seconds=time.monotonic() - started,
        )

    def continue_generation(self) -> None:
        """Undo a pause: first on the engines, then at the clients' gates. Harmless when not paused.

        Raises:
            StateError: something is offloaded, or discarded weights were not written again.
            WeightUpdateError: the engines were to be compared after an update, and no two agree.
        """
        with self._control:
            # Without any engine the gates open all the same: requests then fail with the reason instead of waiting.
            if self._fleet.writable:
                self._memory.require_servable()
            if self._board.paused is None:
                return
            try:
                if self._fleet.ready:
                    self._fleet.ask_all(lambda worker: worker.continue_generation())
                if self._verify_within is not None:
                    self.verify(self._verify_within)
            finally:
                self._verify_within = None
                self._board.show_paused(None)

    def verify(self, within: float = 1e-3) -> dict[str, tuple[float, ...]]:
        """Compare what all engines make of one fixed prompt; those that disagree with most are quarantined.

        Args:
            within: largest difference of a log-probability (natural log) that counts as agreement; 1e-3 suits
                float32, 16-bit engines need more.

        Returns:
            By engine: the log-probabilities.

        Raises:
            WeightUpdateError: no two engines agree; all are quarantined.
            EngineError: an engine did not answer.
        """
        backend = self.plugins.backend
        request = probe_request(backend, self.model)
        found = dict(self._fleet.ask_all(lambda worker: fingerprint(backend, worker, request)))
        against = dissenters(found, within)
        for engine in self._fleet.ready:
            if engine.name in against:
                self._fleet.quarantine(engine, against[engine.name])
        if len(against) == len(found):
            raise WeightUpdateError(f"no two engines agree: {against}")
        return found

    @contextmanager
    def paused(self, mode: PauseMode | str = PauseMode.ABORT) -> Iterator[PauseReport]:
        """Pause for the length of a ``with`` block; generation continues whatever the block raises.

        What is still offloaded at the end of the block is loaded again.
        """
        report = self.pause_generation(mode)
        try:
            yield report
        finally:
            try:
                self.onload()
            finally:
                self.continue_generation()

    def offload(
        self, parts: Iterable[MemoryPart | str] = ALL_PARTS, *, discard_weights: bool = False
    ) -> frozenset[MemoryPart]:
        """Give the engines' memory to the trainer; only while paused.

        Args:
            parts: ``weights``, ``kv_cache`` or both; parts that are offloaded already are passed over.
            discard_weights: drop the weights instead of keeping them aside; nothing is served before
                :meth:`update_weights` has written new ones.

        Returns:
            What was offloaded by this call.

        Raises:
            StateError: generation is not paused.
            CapabilityError: the backend does not offer it.
            EngineError: an engine did not acknowledge; the others took it back.
        """
        with self._control:
            if self._board.paused is None:
                raise StateError("generation is running: pause_generation() before offload()")
            asked = self._memory.to_offload(frozenset(map(MemoryPart, parts)), discard_weights)
            for part in asked:
                self.plugins.backend.require(Capability(f"offload_{part.value}"), f"offloading {part.value}")
            if discard_weights and MemoryPart.WEIGHTS in asked:
                self.plugins.backend.require(Capability.DISCARD_WEIGHTS, "discarding the weights")
            if asked:
                # Dropped weights cannot be taken back.
                undo = None if discard_weights else lambda worker: worker.onload(asked)
                self._fleet.change_all(lambda worker: worker.offload(asked, discard_weights), undo)
                self._memory.note_offloaded(asked, discard_weights)
            return asked

    def onload(self, parts: Iterable[MemoryPart | str] = ALL_PARTS) -> frozenset[MemoryPart]:
        """Take memory back; parts that are loaded are passed over.

        Returns:
            What was loaded by this call.

        Raises:
            EngineError: no engine acknowledged; one that does not is taken out of service.
        """
        with self._control:
            asked = frozenset(map(MemoryPart, parts)) & self._memory.offloaded
            if asked:
                self._fleet.change_all(lambda worker: worker.onload(asked))
                self._memory.note_onloaded(asked)
            return asked

    def onload_weights(self) -> None:
        """Take the memory of the weights back; after a discarding offload they still have to be written."""
        self.onload([MemoryPart.WEIGHTS])

    def onload_kvcache(self) -> None:
        """Take the memory of the K/V cache back."""
        self.onload([MemoryPart.KV_CACHE])

    def update_weights(
        self,
        source: WeightSource,
        *,
        version: int | None = None,
        keep_cache: bool = False,
        refuse_non_finite: bool = False,
        verify_within: float | None = None,
    ) -> UpdateReport:
        """Bring new weights to all engines: pause, transfer, publish the version, continue.

        Called while paused it leaves generation paused; else requests are frozen meanwhile (or aborted, where the
        backend cannot freeze). An engine that fails in the middle is quarantined: it gets no requests until an
        update succeeds.

        Args:
            source: a :class:`rollout_core.weights.FromFolder`, or what a ``WeightPublisher`` makes.
            version: above the present one. Unset: the next.
            keep_cache: keep K/V that was computed with the old weights; by default prefixes are computed again.
            refuse_non_finite: look at every value first, and refuse NaN and infinity.
            verify_within: compare the engines before any request goes out again; see :meth:`verify`.

        Raises:
            WeightUpdateError: the update was refused and nothing was written; or no engine took it.
            StateError: the weights are offloaded.
        """
        with self._control:
            self.plugins.backend.require(source.capability, "this update")
            self._memory.require_writable()
            served = self._board.weight_version
            version = served + 1 if version is None else version
            if version <= served:
                raise WeightUpdateError(
                    f"version {version} is not above {served}, which is served; nothing was written"
                )
            options = self._update_options(version, keep_cache, refuse_non_finite)
            with contextlib.nullcontext() if self._board.paused else self.paused(self._update_mode()):
                report = self._update(source, options)
                self._verify_within = verify_within
                return report

    def _update(self, source: WeightSource, options: UpdateOptions) -> UpdateReport:
        if not self._fleet.writable:
            raise WeightUpdateError("no engine is there to take the weights")
        report = transfer(self._fleet.writable, source, options)
        for engine in self._fleet.writable:
            if engine.name in report.quarantined:
                self._fleet.quarantine(engine, report.quarantined[engine.name])
        if report.broken is not None:
            raise report.broken
        if report.refusal is not None:
            raise WeightUpdateError(f"version {options.version} was refused, nothing was written: {report.refusal}")
        if not report.engines:
            raise WeightUpdateError(f"no engine serves version {options.version}: {report.quarantined}")
        self._memory.note_written()
        for engine in self._fleet.writable:
            if engine.name in report.engines:
                self._fleet.restore(engine)
        self._board.show_weights(options.version, CachePolicy.KEEP if options.keep_cache else CachePolicy.FLUSH)
        self.plugins.hook.weights_updated(version=options.version)
        return report

    def _update_options(self, version: int, keep_cache: bool, refuse_non_finite: bool) -> UpdateOptions:
        config = self.plugins.config
        host, port = config.weight_update_host or config.host, config.weight_update_port or 0
        return UpdateOptions(version, keep_cache, refuse_non_finite, host, port)

    def _update_mode(self) -> PauseMode:
        return PauseMode.KEEP if self.plugins.backend.offers(Capability.PAUSE_KEEP) else PauseMode.ABORT

    def abort_requests(self, request_ids: Sequence[str] | None = None) -> int:
        """Abort the given requests, or all: each comes back to its caller with the tokens it has.

        Returns:
            How many requests the engines aborted.
        """
        acks = self._fleet.ask_all(lambda worker: worker.abort_requests(request_ids))
        return sum(ack.aborted for _, ack in acks)
