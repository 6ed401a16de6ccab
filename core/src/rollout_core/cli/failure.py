"""How a command fails: one message on standard error and an exit code, no traceback unless asked for."""

from __future__ import annotations

import traceback
from typing import Any

import click

from rollout_core.cli.lazy import LazyGroup
from rollout_core.errors import EngineError, RolloutError

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "RootGroup"]

EXIT_FAILED = 1
"""An engine failed, or some samples did."""
EXIT_USAGE = 2
"""A setting, a plugin, an input or an output folder is wrong."""
EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of the signal, as shells have it."""


class RootGroup(LazyGroup):
    """The group at the top, which turns errors of this package into messages."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit with 2 for wrong usage, 1 for an engine's failure, 130 for Ctrl-C."""
        try:
            return super().invoke(ctx)
        except RolloutError as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            click.echo(f"Error: {error}", err=True)
            ctx.exit(EXIT_FAILED if isinstance(error, EngineError) else EXIT_USAGE)
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted.", err=True)
            ctx.exit(EXIT_INTERRUPTED)
