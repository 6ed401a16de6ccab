"""``rollout config``: write, check and show config files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollout_core.cli.lazy import LazyGroup
from rollout_core.cli.options import config_options
from rollout_core.errors import BackendNotFoundError, OutputError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rollout_core.config import RolloutConfig
    from rollout_core.plugins import Plugins

__all__ = ["config"]

sets_only = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one value. Repeatable.")


@click.group(cls=LazyGroup)
def config() -> None:
    """Write, check and show config files.

    A config is a TOML file. Values of the command line win over those of files, and an unknown key is an error.
    """


@config.command()
@click.option("--backend", default="transformers", show_default=True, help="Backend whose options to include.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here, not to the screen.")
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
def init(backend: str, output: Path | None, force: bool) -> None:
    """Write a config file with every setting, its meaning and its default.

    \b
    Example:
      rollout config init --backend transformers -o run.toml
    """
    from rollout_core.config.document import template

    text = template(backend, _options_of(backend))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(f"{output}: there is such a file already; choose another name, or add --force") from None
    except OSError as error:
        raise OutputError(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}. Set model_path in it, then: rollout config check {output}", err=True)


@config.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@sets_only
def check(files: tuple[Path, ...], sets: tuple[str, ...]) -> None:
    """Check config files, the backend's options included; several files are laid over each other.

    \b
    Example:
      rollout config check run.toml --set gpus=8
    """
    from rollout_core.config import load_config
    from rollout_core.executors import cluster_for

    settings = load_config(files, sets)
    plugins, note = _load_plugins(settings)
    cluster = cluster_for(settings)
    if plugins is not None:
        plugins.backend.build_topology(cluster)
    click.echo(f"OK{note}")


@config.command()
@config_options
def show(config_files: tuple[Path, ...], sets: tuple[str, ...]) -> None:
    """Show every value that a run would use, as TOML; secrets are masked.

    \b
    Example:
      rollout config show -c run.toml --set gpus=8
    """
    from rollout_core.config import load_config
    from rollout_core.config.document import resolved

    settings = load_config(config_files, sets)
    plugins, note = _load_plugins(settings)
    click.echo(resolved(plugins.config if plugins else settings), nl=False)
    if note:
        click.echo(note.removeprefix("; "), err=True)


@config.command()
@click.option("--backend", help="Installed backend whose options to describe under backend_options.")
def schema(backend: str | None) -> None:
    """Write the JSON schema of the config, for editors and other programs.

    \b
    Example:
      rollout config schema --backend transformers > rollout.schema.json
    """
    from rollout_core.config import RolloutConfig

    document = RolloutConfig.model_json_schema()
    # As written by hand it is a table; the model's other form is only met in a running program.
    document["properties"]["backend_options"] = {
        "type": "object",
        "description": document["properties"]["backend_options"]["description"],
    }
    if backend is not None:
        options = _options_of(backend).model_json_schema()
        document["$defs"] = document.get("$defs", {}) | options.pop("$defs", {})
        document["properties"]["backend_options"] |= options
        document["properties"]["backend"]["const"] = backend
    click.echo(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | document, indent=2))


def _options_of(backend: str) -> type[BaseModel]:
    from rollout_core.config import RolloutConfig
    from rollout_core.plugins import Plugins

    # The model is not looked at when plugins are loaded.
    settings: Any = {"backend": backend, "model_path": "unset"}
    return Plugins.load(RolloutConfig.model_validate(settings)).backend.info.options


def _load_plugins(settings: RolloutConfig) -> tuple[Plugins | None, str]:
    """The plugins of the config; None, and a note that says so, where the backend is not installed here."""
    from rollout_core.plugins import Plugins

    try:
        return Plugins.load(settings), ""
    except BackendNotFoundError as error:
        return None, f"; backend_options were not checked: {error}"
