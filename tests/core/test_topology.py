"""The checks that a topology makes on construction."""

from dataclasses import replace

import pytest

from rollout_core.errors import TopologyError
from rollout_core.topology import Cluster, Engine, ServerProcess, Topology

TWO_GPUS = Cluster(2, 8, "gpu")


def process(rank: int, bundles: tuple[int, ...], updates: tuple[int, ...], **more: object) -> ServerProcess:
    return ServerProcess(rank=rank, bundles=bundles, update_ranks=updates, **more)  # type: ignore[arg-type]


def one_rank_engine(index: int, rank: int) -> Engine:
    return Engine(index, (rank,), (process(rank, (rank,), (rank,)),))


@pytest.mark.parametrize(("ranks", "size"), [(r, s) for r in (1, 2, 8, 16, 64) for s in (1, 2, 4, 8, 16, 64) if s <= r])
def test_a_uniform_topology_gives_every_rank_to_one_engine_and_updates_it_once(ranks: int, size: int) -> None:
    topology = Topology.uniform(Cluster(ranks, 8, "gpu"), size)
    assert [rank for engine in topology.engines for rank in engine.ranks] == list(range(ranks))
    assert sorted(rank for p in topology.processes for rank in p.update_ranks) == list(range(ranks))
    assert sorted(bundle for p in topology.processes for bundle in p.bundles) == list(range(ranks))
    assert all(len(engine.entrypoints) == 1 for engine in topology.engines)


def test_an_engine_over_two_nodes_has_one_process_per_node_and_only_the_first_takes_requests() -> None:
    (engine,) = Topology.uniform(Cluster(16, 8, "gpu"), 16).engines
    assert [p.node for p in engine.processes] == [0, 1]
    assert [p.node_rank for p in engine.processes] == [0, 1]
    assert [p.accepts_requests for p in engine.processes] == [True, False]
    assert engine.needs_rendezvous


@pytest.mark.parametrize(
    ("ranks", "per_node", "size", "message"),
    [(6, 8, 4, "do not divide"), (12, 6, 4, "straddle"), (24, 8, 12, "whole nodes"), (8, 8, 0, "do not divide")],
)
def test_sizes_that_do_not_fit_are_refused(ranks: int, per_node: int, size: int, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology.uniform(Cluster(ranks, per_node, "gpu"), size)


def test_a_cluster_has_ranks() -> None:
    with pytest.raises(TopologyError, match="at least one rank"):
        Cluster(0, 8)


def test_a_rank_in_two_engines_is_refused() -> None:
    with pytest.raises(TopologyError, match="rank 0 is in two engines"):
        Topology(TWO_GPUS, (one_rank_engine(0, 0), one_rank_engine(1, 0)))


def test_a_bundle_used_twice_is_refused() -> None:
    second = Engine(1, (1,), (process(1, (0,), (1,)),))
    with pytest.raises(TopologyError, match="bundle 0 is used twice"):
        Topology(TWO_GPUS, (one_rank_engine(0, 0), second))


def test_a_bundle_outside_the_cluster_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"bundles \[5\] are outside"):
        Topology(TWO_GPUS, (Engine(0, (0,), (process(0, (5,), (0,)),)),))


def test_an_engine_without_entrypoint_is_refused() -> None:
    with pytest.raises(TopologyError, match="no server process accepts requests"):
        Engine(0, (0,), (process(0, (0,), (0,), accepts_requests=False),))


def test_a_rank_that_no_process_updates_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"ranks \[1\] are updated through no process"):
        Engine(0, (0, 1), (process(0, (0, 1), (0,)),))


def test_a_rank_updated_through_two_processes_is_refused() -> None:
    with pytest.raises(TopologyError, match="rank 0 is updated through more than one"):
        Engine(0, (0, 1), (process(0, (0,), (0, 1)), process(1, (1,), (0,))))


def test_a_process_that_updates_a_rank_outside_its_engine_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"updates ranks \[7\] outside"):
        Engine(0, (0,), (process(0, (0,), (0, 7)),))


def test_the_owner_of_a_process_is_inside_its_engine() -> None:
    with pytest.raises(TopologyError, match="outside the engine"):
        Engine(0, (0,), (process(3, (0,), (0,)),))


def test_a_process_needs_a_bundle_and_a_node_rank_below_its_node_count() -> None:
    with pytest.raises(TopologyError, match="has no bundle"):
        Engine(0, (0,), (process(0, (), (0,)),))
    with pytest.raises(TopologyError, match="node rank 1 of 1"):
        Engine(0, (0,), (process(0, (0,), (0,), node_rank=1),))


def test_engines_are_numbered_from_zero_and_there_is_at_least_one() -> None:
    with pytest.raises(TopologyError, match="numbered from 0"):
        Topology(TWO_GPUS, (one_rank_engine(1, 0),))
    with pytest.raises(TopologyError, match="at least one engine"):
        Topology(TWO_GPUS, ())


def test_a_process_is_on_the_node_of_its_first_bundle() -> None:
    engine = one_rank_engine(0, 0)
    moved = Engine(0, (0,), (replace(engine.processes[0], node=1),))
    with pytest.raises(TopologyError, match="on node 1, but its first bundle is on node 0"):
        Topology(TWO_GPUS, (moved,))
