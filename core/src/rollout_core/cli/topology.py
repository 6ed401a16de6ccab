"""``rollout topology``: draw which engine owns what, without any accelerator."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollout_core.cli.options import config_options, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from rollout_core.topology import Engine, ServerProcess, Topology

__all__ = ["topology"]

_COLUMNS = ("engine", "node", "process", "ranks", "bundles", "takes requests", "updates weights of")


@click.command()
@click.option("--backend", help="Installed backend that lays the engines out.")
@click.option("--gpus", type=int, metavar="N", help="Accelerators in all; 0 draws engines on CPU.")
@click.option("--gpus-per-node", type=int, metavar="N", help="Accelerators of one node.")
@click.option("--tensor-parallel", type=int, metavar="N", help="Accelerators that hold one copy of the weights.")
@click.option("--data-parallel", type=int, metavar="N", help="Copies of the weights inside one engine.")
@click.option("--expert-parallel", type=int, metavar="N", help="Accelerators that share the experts.")
@click.option("--engines", type=int, metavar="N", help="Engines; unset: as many as the accelerators hold.")
@click.option("--device", metavar="KIND", help="auto, cpu, gpu or npu.")
@config_options
@json_option
def topology(config_files: tuple[Path, ...], sets: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Draw which engine owns which ranks, bundles and nodes, and where requests and weights go.

    Nothing is started, and neither accelerators nor a model are needed. A rank is one accelerator, a bundle its place
    in the cluster.

    \b
    Examples:
      rollout topology --gpus 16 --gpus-per-node 8
      rollout topology --backend vllm --gpus 16 --tensor-parallel 2 --json
      rollout topology --backend vllm --gpus 16 --tensor-parallel 16 --set cross_node_communication=true
    """
    from rollout_core.config import load_config
    from rollout_core.executors import cluster_for
    from rollout_core.plugins import Plugins

    config = load_config(config_files, sets, flags, defaults={"model_path": "no-model"})
    backend = Plugins.load(config).backend
    layout = backend.build_topology(cluster_for(config))
    if as_json:
        click.echo(json.dumps({"backend": backend.name, **_as_json(layout)}, indent=2))
    else:
        _draw(layout, backend.name)


def _as_json(layout: Topology) -> dict[str, Any]:
    cluster = {**asdict(layout.cluster), "nodes": layout.cluster.nodes}
    engines = [{"name": engine.name, **asdict(engine)} for engine in layout.engines]
    return {"cluster": cluster, "engines": engines}


def _draw(layout: Topology, backend: str) -> None:
    from rich.console import Console

    # Piped output has no width of its own, and a wrapped table is hard to read.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(_headline(layout, backend))
    console.print(_table(layout.engines))


def _headline(layout: Topology, backend: str) -> str:
    cluster = layout.cluster
    kind = "CPU rank" if cluster.accelerator == "none" else cluster.accelerator.upper()
    return (
        f"{backend}: {_counted(len(layout.engines), 'engine')} on {_counted(cluster.ranks, kind)}, "
        f"{_counted(cluster.nodes, 'node')}"
    )


def _table(engines: Iterable[Engine]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(*_COLUMNS, box=box.SIMPLE_HEAD)
    for engine in engines:
        for index, process in enumerate(engine.processes):
            table.add_row(engine.name if index == 0 else "", *_cells(engine, index, process))
    return table


def _cells(engine: Engine, index: int, process: ServerProcess) -> Sequence[str]:
    return (
        f"{process.node}" + (f" ({process.node_rank + 1} of {process.node_count})" if process.node_count > 1 else ""),
        str(index),
        _ranges(engine.ranks) if index == 0 else "",
        _ranges(process.bundles),
        "yes" if process.accepts_requests else "no",
        f"ranks {_ranges(process.update_ranks)}" if process.update_ranks else "none",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """``0-3, 6`` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
