"""``rollout plugins``: what is installed, what it offers, and whether it works."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from rollout_core.cli.lazy import LazyCommand, LazyGroup
from rollout_core.cli.options import json_option

if TYPE_CHECKING:
    from rollout_core.plugins.catalog import PluginEntry

__all__ = ["plugins"]

_COMMANDS = {
    "check": LazyCommand("rollout_core.cli.plugins_check:check", "Run the conformance checks on a backend."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, invoke_without_command=True)
@json_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List the installed backends and extensions, what they offer and whether they work.

    Plugins are imported for it, their engines are not.

    \b
    Examples:
      rollout plugins
      rollout plugins --json
      rollout plugins check transformers
    """
    if ctx.invoked_subcommand is not None:
        return
    from rollout_core.plugins.catalog import list_plugins

    entries = list_plugins()
    if as_json:
        click.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
    elif entries:
        click.echo("\n\n".join("\n".join(_lines(entry)) for entry in entries))
    else:
        click.echo("No backend is installed. The embedded one: pip install 'rollout-transformers[engine]'")


def _lines(entry: PluginEntry) -> Sequence[str]:
    """One plugin: a headline, then what is known about it."""
    lines = [f"{entry.name}  ({entry.kind}, {entry.distribution} {entry.version})  {entry.status}"]
    if entry.detail:
        lines.append(_fact("engine" if entry.status == "engine missing" else "problem", entry.detail))
    if entry.engine_version:
        lines.append(_fact("engine", f"{entry.engine} {entry.engine_version}"))
    if entry.groups:
        lines.append(_fact("hooks", ", ".join(entry.groups)))
    if entry.capabilities:
        lines.append(_fact("offers", ", ".join(entry.capabilities)))
    return lines


def _fact(name: str, text: str) -> str:
    return click.wrap_text(f"{name:9} {text}", 110, initial_indent="  ", subsequent_indent=" " * 12)
