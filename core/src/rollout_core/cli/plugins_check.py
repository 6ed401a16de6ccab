"""``rollout plugins check``: the conformance checks of one backend, as a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollout_core.cli.options import json_option

if TYPE_CHECKING:
    from rollout_core.testing import Report, Row

__all__ = ["check"]

_COLOURS = {"passed": "green", "failed": "red"}


@click.command()
@click.argument("name")
@click.option("--live", is_flag=True, help="Start the engine and check that too. Takes some minutes.")
@click.option("--model", metavar="PATH", help="Checkpoint that the engine serves for --live; a small one will do.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one config value for the live checks, such as backend_options.threads=2. Repeatable.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report to a JSON file.")
@json_option
def check(name: str, live: bool, model: str | None, sets: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Run the conformance checks on an installed backend.

    Without --live no engine is needed: hooks, options, topology, payloads and replies are checked. With it, the engine
    is started and shown to keep the rules. What the backend does not declare is reported as not offered. Needs
    'rollout-core[testing]'.

    \b
    Exit code: 0 every check passed or does not apply, 1 a check failed, 2 wrong usage.

    \b
    Examples:
      rollout plugins check transformers
      rollout plugins check transformers --live --model path/to/checkpoint
    """
    try:
        from rollout_core.testing import check_backend
    except ModuleNotFoundError as error:
        raise click.ClickException("the checks need pytest: pip install 'rollout-core[testing]'") from error
    report = check_backend(name, live, model, _settings(sets), None if as_json else _show)
    document = json.dumps(report.to_dict(), indent=2)
    if output is not None:
        output.write_text(document + "\n", encoding="utf-8")
    click.echo(document if as_json else _summary(report))
    if report.failed:
        raise SystemExit(1)


def _settings(sets: tuple[str, ...]) -> dict[str, Any]:
    """What the options set, checked as the config of a run is."""
    from rollout_core.config import load_config

    config = load_config((), sets, {}, defaults={"model_path": "no-model"})
    return {field: getattr(config, field) for field in config.model_fields_set - {"model_path"}}


def _show(row: Row) -> None:
    """One check as it ends, so that the live ones show progress."""
    click.echo(click.style(f"{row.outcome.value:12}", _COLOURS.get(row.outcome.value)) + f"{row.suite:6}{row.title}")
    if row.detail:
        click.echo(click.wrap_text(row.detail, 110, initial_indent=" " * 18, subsequent_indent=" " * 18))


def _summary(report: Report) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in report.counts.items() if count)
    return f"\n{report.backend} {report.version} (engine: {report.engine}): {counts}"
