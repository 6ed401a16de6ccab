"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["config_options", "json_option"]

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(command: Command) -> Command:
    """Add ``-c/--config`` and ``--set``: ``config_files: tuple[Path, ...]`` and ``sets: tuple[str, ...]``."""
    add_sets = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set one config value, such as gpus=8 or backend_options.threads=2. Wins over files. Repeatable.",
    )
    add_files = click.option(
        "-c",
        "--config",
        "config_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="TOML file with config values; a later file wins over an earlier one. Repeatable.",
    )
    return add_files(add_sets(command))


def json_option(command: Command) -> Command:
    """Add ``--json``: ``as_json: bool``."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")(command)
