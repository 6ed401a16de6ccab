"""``rollout status``: how a running job stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rollout_core.cli.options import json_option

if TYPE_CHECKING:
    from rollout_core.control import RunStatus, TrainerStatus
    from rollout_core.controller import ClientStatus, ControllerStatus

__all__ = ["status"]


@click.command()
@click.argument("address", type=click.Path(path_type=Path), default=Path("."))
@json_option
def status(address: Path, as_json: bool) -> None:
    """Show engines, weights, clients and trainers of a running job.

    ADDRESS is the job's output folder, or any file or folder that a control server wrote its control.json to; without
    it, the current folder. Exit code: 0 a controller answered, 1 none did.

    \b
    Examples:
      rollout status out
      rollout status out --json
    """
    from rollout_core.control import RunStatus
    from rollout_core.control.address import Address
    from rollout_core.control.link import Link
    from rollout_core.control.wire import encode

    with closing(Link(Address(address).read())) as link:
        found = link.call("status", RunStatus)
    click.echo(encode(found) if as_json else "\n".join(_lines(found)))


def _lines(found: RunStatus) -> Iterator[str]:
    run = found.controller
    yield _fact("job", f"{run.backend}, {run.model}, process {run.pid}, rollout-core {found.version}")
    yield _fact("generation", f"paused ({run.paused.value})" if run.paused else "running")
    yield _fact("weights", _weights(run))
    yield _fact("memory", f"offloaded: {', '.join(run.offloaded)}" if run.offloaded else "all loaded")
    for engine in run.engines:
        yield _fact(engine.name, "  ".join(filter(None, (engine.state.value, *engine.urls, engine.reason))))
    yield _fact("clients", _counted(len(run.clients), sum(client.in_flight for client in run.clients)))
    yield from map(_client, run.clients)
    yield from map(_trainer, found.trainers)
    if found.notice:
        yield _fact("notice", found.notice)


def _weights(run: ControllerStatus) -> str:
    words: Sequence[str] = (
        f"version {run.weight_version}",
        f"cache {run.cache_policy.value}" if run.cache_policy else "",
        "discarded, to be written anew" if run.weights_dropped else "",
    )
    return ", ".join(filter(None, words))


def _counted(clients: int, in_flight: int) -> str:
    return f"{clients}, {in_flight} {'request' if in_flight == 1 else 'requests'} in flight"


def _client(client: ClientStatus) -> str:
    if client.pid is None:
        return _fact("", f"the job's own: {client.in_flight} in flight")
    return _fact("", f"process {client.pid}: {client.in_flight} in flight, {_lease(client.seen_s, client.lease_s)}")


def _trainer(trainer: TrainerStatus) -> str:
    held = ", holds the pause" if trainer.holds_pause else ""
    return _fact("trainer", f"process {trainer.pid}, {_lease(trainer.seen_s, trainer.lease_s)}{held}")


def _lease(seen_s: float, lease_s: float) -> str:
    return f"heard of {seen_s:.1f} s ago (lease {lease_s:g} s)"


def _fact(name: str, text: str) -> str:
    return f"{name:10} {text}"
