"""Which engine owns which ranks, and which server processes run them where.

Pure data, checked on construction: a backend's ``build_topology`` returns it and the executor places it.
One rank is one accelerator, or one engine's share of the CPUs where there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rollout_core.errors import TopologyError

__all__ = ["Cluster", "Engine", "ServerProcess", "Topology"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines that a topology is built for; bundle ``i`` is on node ``i // ranks_per_node``."""

    ranks: int
    """Accelerators in all, or engines in all on CPU."""
    ranks_per_node: int
    accelerator: str = "none"
    """``gpu``, ``npu`` or ``none``."""

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.ranks_per_node < 1:
            raise TopologyError(
                f"a cluster needs at least one rank and one rank per node, got {self.ranks} and {self.ranks_per_node}"
            )

    @property
    def nodes(self) -> int:
        """How many nodes hold the ranks."""
        return -(-self.ranks // self.ranks_per_node)

    def node_of(self, rank: int) -> int:
        """The node that holds a rank."""
        return rank // self.ranks_per_node


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One server process of an engine."""

    rank: int
    """The rank it belongs to: the first of its own."""
    bundles: tuple[int, ...]
    """Placement-group bundles that it occupies, one per accelerator."""
    update_ranks: tuple[int, ...]
    """The ranks whose weights are updated through it."""
    accepts_requests: bool = True
    node: int = 0
    """The cluster node it runs on."""
    node_rank: int = 0
    """Its node's number within the engine."""
    node_count: int = 1
    """Nodes that the engine spans."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A set of ranks that generate together; its processes live and die together."""

    index: int
    ranks: tuple[int, ...]
    processes: tuple[ServerProcess, ...]

    @property
    def name(self) -> str:
        """As it appears in results and logs."""
        return f"engine-{self.index}"

    @property
    def entrypoints(self) -> tuple[ServerProcess, ...]:
        """The processes that take requests."""
        return tuple(process for process in self.processes if process.accepts_requests)

    @property
    def needs_rendezvous(self) -> bool:
        """Whether its processes must find each other at one address."""
        return len(self.processes) > 1

    def __post_init__(self) -> None:
        if not self.ranks:
            raise TopologyError(f"{self.name}: an engine needs at least one rank")
        if not self.entrypoints:
            raise TopologyError(f"{self.name}: no server process accepts requests; give it an entrypoint")
        for process in self.processes:
            self._check_process(process)
        updated = [rank for process in self.processes for rank in process.update_ranks]
        _refuse_repeats(f"{self.name}: rank", updated, "is updated through more than one server process")
        if missing := sorted(set(self.ranks) - set(updated)):
            raise TopologyError(f"{self.name}: the weights of ranks {missing} are updated through no process")

    def _check_process(self, process: ServerProcess) -> None:
        where = f"{self.name}: the server process of rank {process.rank}"
        if process.rank not in self.ranks:
            raise TopologyError(f"{where} belongs to a rank outside the engine ({list(self.ranks)})")
        if outside := sorted(set(process.update_ranks) - set(self.ranks)):
            raise TopologyError(f"{where} updates ranks {outside} outside the engine ({list(self.ranks)})")
        if not process.bundles:
            raise TopologyError(f"{where} has no bundle")
        if not 0 <= process.node_rank < process.node_count:
            raise TopologyError(
                f"{where} has node rank {process.node_rank} of {process.node_count} nodes; "
                f"expected 0 to {process.node_count - 1}"
            )


@dataclass(frozen=True, slots=True)
class Topology:
    """All engines of a run.

    Raises:
        TopologyError: a rank in two engines, a bundle used twice or outside the cluster, a process on another
            node than its first bundle, or an engine that is wrong in itself.
    """

    cluster: Cluster
    engines: tuple[Engine, ...]

    def __post_init__(self) -> None:
        if not self.engines:
            raise TopologyError("a topology needs at least one engine")
        if [engine.index for engine in self.engines] != list(range(len(self.engines))):
            raise TopologyError(f"engines are numbered from 0, got {[engine.index for engine in self.engines]}")
        ranks = [rank for engine in self.engines for rank in engine.ranks]
        bundles = [bundle for process in self.processes for bundle in process.bundles]
        _refuse_repeats("rank", ranks, "is in two engines")
        _refuse_repeats("bundle", bundles, "is used twice")
        for kind, numbers in (("ranks", ranks), ("bundles", bundles)):
            if outside := sorted(n for n in numbers if not 0 <= n < self.cluster.ranks):
                raise TopologyError(f"{kind} {outside} are outside the cluster of {self.cluster.ranks}")
        for process in self.processes:
            if process.node != self.cluster.node_of(process.bundles[0]):
                raise TopologyError(
                    f"the server process of rank {process.rank} is on node {process.node}, but its first bundle "
                    f"is on node {self.cluster.node_of(process.bundles[0])}"
                )

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The server processes of all engines, in order."""
        return tuple(process for engine in self.engines for process in engine.processes)

    @classmethod
    def uniform(cls, cluster: Cluster, ranks_per_engine: int) -> Topology:
        """Engines of equal size with one server process each, or one per node where an engine spans nodes.

        Of an engine over several nodes only the first process takes requests and updates all ranks.

        Raises:
            TopologyError: the ranks do not divide into engines, or an engine would straddle a node boundary.
        """
        size, per_node = ranks_per_engine, cluster.ranks_per_node
        if size < 1 or cluster.ranks % size:
            raise TopologyError(
                f"{cluster.ranks} ranks do not divide into engines of {size}; "
                f"change the number of GPUs or the parallel sizes"
            )
        if size <= per_node and per_node % size and cluster.nodes > 1:
            raise TopologyError(
                f"engines of {size} ranks would straddle nodes of {per_node}; choose a size that divides it"
            )
        if size > per_node and size % per_node:
            raise TopologyError(f"an engine of {size} ranks must fill whole nodes of {per_node}")
        starts = range(0, cluster.ranks, size)
        return cls(
            cluster,
            tuple(
                Engine(i, tuple(range(s, s + size)), tuple(_processes(cluster, s, size))) for i, s in enumerate(starts)
            ),
        )


def _processes(cluster: Cluster, start: int, size: int) -> Iterable[ServerProcess]:
    """The server processes of one engine of ``size`` consecutive ranks: one for each node that it spans."""
    step = min(size, cluster.ranks_per_node)
    ranks = tuple(range(start, start + size))
    for node_rank, first in enumerate(range(start, start + size, step)):
        yield ServerProcess(
            rank=first,
            bundles=tuple(range(first, first + step)),
            update_ranks=ranks if node_rank == 0 else (),
            accepts_requests=node_rank == 0,
            node=cluster.node_of(first),
            node_rank=node_rank,
            node_count=-(-size // step),
        )


def _refuse_repeats(what: str, numbers: Iterable[int], problem: str) -> None:
    for number, count in Counter(numbers).items():
        if count > 1:
            raise TopologyError(f"{what} {number} {problem}")
