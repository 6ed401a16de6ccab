"""How layouts are drawn that no installed backend makes."""

from rollout_core.cli.topology import _draw
from rollout_core.topology import Cluster, Topology


def test_an_engine_over_two_nodes_has_a_row_for_each_process(capsys):
    _draw(Topology.uniform(Cluster(32, 8, "gpu"), 16), "fake")
    lines = capsys.readouterr().out.splitlines()
    (first,) = (line for line in lines if "engine-1" in line)
    second = lines[lines.index(first) + 1]
    assert " ".join(first.split()) == "engine-1 2 (1 of 2) 0 16-31 16-23 yes ranks 16-31"
    assert " ".join(second.split()) == "3 (2 of 2) 1 24-31 no none"


def test_no_line_is_wrapped_when_piped(capsys):
    _draw(Topology.uniform(Cluster(64, 8, "gpu"), 2), "fake")
    assert len(capsys.readouterr().out.strip().splitlines()) == 32 + 4
