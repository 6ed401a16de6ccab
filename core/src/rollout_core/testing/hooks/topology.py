"""Checks of ``build_topology`` over many clusters, without any accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollout_core.errors import CapabilityError, ConfigError, TopologyError
from rollout_core.testing.suite import Suite, check, expect, not_offered
from rollout_core.topology import Cluster, Topology
from rollout_core.types import Capability

__all__ = ["TopologyChecks"]

_NODE_SIZES = (1, 2, 4, 8)
_NODE_COUNTS = (1, 2, 3, 8)


class TopologyChecks(Suite):
    """The hook ``build_topology``."""

    @check()
    def test_topology_on_cpu(self) -> None:
        """Engines on CPU get one rank each, and none is left over."""
        for engines in (1, 2, 5):
            topology = self._build(Cluster(engines, engines), engines=engines)
            _expect_complete(topology, Cluster(engines, engines), 1)

    @check()
    def test_topology_on_accelerators(self) -> None:
        """Up to 64 accelerators on up to 8 nodes are all used, each by one engine."""
        for cluster in _clusters():
            _expect_complete(self._build_or_skip(cluster), cluster, 1)

    @check(Capability.TENSOR_PARALLEL)
    def test_topology_of_tensor_parallel_engines(self) -> None:
        """Engines of 2, 4 and 8 accelerators fill every node whose size they divide."""
        for size in (2, 4, 8):
            for cluster in _clusters():
                if cluster.ranks_per_node % size == 0:
                    topology = self._build_or_skip(cluster, tensor_parallel=size)
                    _expect_complete(topology, cluster, size)

    @check(Capability.DATA_PARALLEL)
    def test_topology_of_data_parallel_engines(self) -> None:
        """Engines that hold two copies of the weights fill the node."""
        topology = self._build_or_skip(Cluster(8, 8, "gpu"), data_parallel=2)
        _expect_complete(topology, Cluster(8, 8, "gpu"), 2)

    @check(Capability.EXPERT_PARALLEL)
    def test_topology_of_expert_parallel_engines(self) -> None:
        """Engines whose experts are spread over 8 accelerators fill the node."""
        settings = {"tensor_parallel": 8, "expert_parallel": 8}
        topology = self._build_or_skip(Cluster(8, 8, "gpu"), **settings)
        _expect_complete(topology, Cluster(8, 8, "gpu"), 8)

    @check(Capability.MULTI_NODE)
    def test_topology_over_nodes(self) -> None:
        """An engine of 16 accelerators spans two nodes of 8, with one entrypoint or more."""
        cluster = Cluster(32, 8, "gpu")
        topology = self._build_or_skip(cluster, tensor_parallel=16, cross_node_communication=True)
        _expect_complete(topology, cluster, 16)
        nodes = {process.node for process in topology.engines[0].processes}
        expect(nodes == {0, 1}, f"the first engine's processes are on the nodes {sorted(nodes)}, expected 0 and 1")

    @check()
    def test_topology_refuses_what_does_not_divide(self) -> None:
        """Sizes that do not divide the cluster are refused; no accelerator is left out silently."""
        for ranks, settings in ((6, {"tensor_parallel": 4}), (8, {"tensor_parallel": 3}), (7, {"data_parallel": 2})):
            self._expect_no_topology(Cluster(ranks, 8, "gpu"), **settings)

    @check()
    def test_topology_refuses_what_is_not_offered(self) -> None:
        """Parallel sizes that the backend does not declare are refused."""
        sizes: dict[Capability, dict[str, Any]] = {
            Capability.TENSOR_PARALLEL: {"tensor_parallel": 2},
            Capability.DATA_PARALLEL: {"data_parallel": 2},
            Capability.EXPERT_PARALLEL: {"tensor_parallel": 2, "expert_parallel": 2},
            Capability.MULTI_NODE: {"tensor_parallel": 16, "cross_node_communication": True},
        }
        missing = [capability for capability in sizes if not self.face.offers(capability)]
        for capability in missing:
            self._expect_no_topology(Cluster(32, 8, "gpu"), **sizes[capability])

    @check()
    def test_topology_is_pure(self) -> None:
        """The same config and cluster give the same topology."""
        first, second = (self._build(Cluster(2, 2), engines=2) for _ in range(2))
        expect(first == second, "two calls with the same arguments gave two topologies")

    def _build(self, cluster: Cluster, **settings: Any) -> Topology:
        if cluster.accelerator != "none":
            settings = {"gpus": cluster.ranks, "gpus_per_node": cluster.ranks_per_node, **settings}
        return self.load(**settings).backend.build_topology(cluster)

    def _build_or_skip(self, cluster: Cluster, **settings: Any) -> Topology:
        try:
            return self._build(cluster, **settings)
        except CapabilityError as error:
            not_offered(str(error))

    def _expect_no_topology(self, cluster: Cluster, **settings: Any) -> None:
        try:
            topology = self._build(cluster, **settings)
        except (TopologyError, CapabilityError):
            return
        except ConfigError as error:
            expect(False, f"{settings} on {cluster} raised {type(error).__name__}, expected TopologyError: {error}")
        else:
            sizes = [len(engine.ranks) for engine in topology.engines]
            expect(False, f"{settings} on {cluster} was accepted, with engines of {sizes} ranks")


def _clusters() -> Iterator[Cluster]:
    for per_node in _NODE_SIZES:
        for nodes in _NODE_COUNTS:
            yield Cluster(per_node * nodes, per_node, "gpu")


def _expect_complete(topology: Topology, cluster: Cluster, ranks_per_engine: int) -> None:
    expect(topology.cluster == cluster, f"the topology is for {topology.cluster}, asked for {cluster}")
    ranks = sorted(rank for engine in topology.engines for rank in engine.ranks)
    expect(ranks == list(range(cluster.ranks)), f"{cluster}: the engines hold the ranks {ranks}")
    sizes = {len(engine.ranks) for engine in topology.engines}
    expect(sizes == {ranks_per_engine}, f"{cluster}: engines of {sizes} ranks, expected {ranks_per_engine}")
