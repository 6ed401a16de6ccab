"""Runs the workers of all engines in this process, on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rollout_core.errors import ConfigError
from rollout_core.plugins import Backend
from rollout_core.ports import PortLease
from rollout_core.topology import Engine, ServerProcess, Topology
from rollout_core.types import LaunchSpec
from rollout_core.worker import Worker, private_folder

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Makes the workers of an engine: leases ports, lays out folders, and writes the launch specifications."""

    def __init__(self, backend: Backend, topology: Topology, log_dir: Path) -> None:
        """Check that the topology fits on one machine.

        Raises:
            ConfigError: it needs several nodes.
        """
        if topology.cluster.nodes > 1:
            raise ConfigError(
                f"the topology needs {topology.cluster.nodes} nodes, and executor 'local' has one; "
                f"lower gpus to {topology.cluster.ranks_per_node}"
            )
        self._backend = backend
        self._log_dir = log_dir
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def workers(self, engine: Engine, weight_version: int) -> list[Worker]:
        """One worker per server process of the engine; none is started yet.

        Raises:
            LaunchError: no port is free.
        """
        rendezvous = self._lease() if engine.needs_rendezvous else None
        return [self._worker(engine, i, rendezvous, weight_version) for i in range(len(engine.processes))]

    def _worker(self, engine: Engine, index: int, rendezvous: PortLease | None, version: int) -> Worker:
        process = engine.processes[index]
        lease = self._lease()
        name = engine.name + (f".{index}" if index else "")
        spec = LaunchSpec(
            engine=engine.index,
            process=index,
            host=lease.host,
            port=lease.port,
            ranks=engine.ranks,
            update_ranks=process.update_ranks,
            bundles=process.bundles,
            accelerators=self._accelerators(process),
            accepts_requests=process.accepts_requests,
            node_rank=process.node_rank,
            node_count=process.node_count,
            rendezvous=f"{rendezvous.host}:{rendezvous.port}" if rendezvous else None,
            run_dir=private_folder(self._private(), name),
            log_path=self._log_dir / f"{name}.log",
            weight_version=version,
        )
        leases = [lease] if rendezvous is None or index else [lease, rendezvous]
        return Worker(self._backend, spec, leases)

    def _accelerators(self, process: ServerProcess) -> tuple[int, ...]:
        return () if self._backend.config.accelerator == "cpu" else process.bundles

    def _private(self) -> Path:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="rollout-")
        return Path(self._scratch.name)

    def _lease(self) -> PortLease:
        config = self._backend.config
        return PortLease.acquire(config.host, config.port_range)

    def close(self) -> None:
        """Remove the private folders; the logs stay."""
        if self._scratch is not None:
            self._scratch.cleanup()
