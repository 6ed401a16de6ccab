"""``rollout run``: draw samples for a file of prompts."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rollout_core.cli.options import json_option
from rollout_core.cli.run_options import SectionedCommand, run_options

if TYPE_CHECKING:
    from rollout_core.run.prompt_file import PromptFile
    from rollout_core.run.session import Ending
    from rollout_core.run.setup import RunOptions, RunSetup
    from rollout_core.types import SampleParams

__all__ = ["run"]

_SAMPLING = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "ignore_eos",
    "top_logprobs",
)


@click.command(cls=SectionedCommand)
@run_options
@json_option
@click.pass_context
def run(ctx: click.Context, /, dry_run: bool, quiet: bool, as_json: bool, **flags: Any) -> None:
    """Draw samples for a file of prompts, with token ids and log-probabilities.

    Every sample is on disk before it is counted: after Ctrl-C, a kill or a full disk, the same command with --resume
    finishes exactly what is missing. Exit code: 0 all samples completed, 1 some did not, 2 wrong usage.

    \b
    Examples:
      rollout run --model ./SmolLM2 --prompts prompts.jsonl --output out
      rollout run --model ./SmolLM2 --prompts gsm8k.jsonl --prompt-field question --chat -n 4 --seed 1 \\
                  --reward examples/rewards.py:gsm8k --output out
      rollout run ... --output out --resume
    """
    from rollout_core.config import load_config
    from rollout_core.run.progress import open_progress
    from rollout_core.run.session import run_session
    from rollout_core.run.setup import RunSetup

    if flags["resume"] and flags["output"] is None:
        raise click.UsageError("--resume needs --output, the folder of the run to finish")
    with _prompt_file(flags) as prompts:
        options = _options(flags, prompts)
        config = load_config(flags["config_files"], flags["sets"], _overrides(flags))
        setup = RunSetup.check(options, config)
        if dry_run:
            _describe(setup, as_json)
            return
        progress = open_progress(quiet=quiet)
        for error in setup.scan.broken:
            progress.warn(f"broken: {error}")
        ending = run_session(setup, progress)
    _report(ending, quiet=quiet, as_json=as_json)
    ctx.exit(0 if ending.complete and ending.error is None else 1)


@contextmanager
def _prompt_file(flags: Mapping[str, Any]) -> Iterator[PromptFile]:
    """The prompts; those on standard input are read to the end first, because they are needed twice."""
    from rollout_core.run.prompt_file import PromptFile, spool_stdin

    path, field, limit = flags["prompts"], flags["prompt_field"], flags["limit"]
    if str(path) != "-":
        yield PromptFile(path, field, limit)
        return
    with tempfile.TemporaryDirectory(prefix="rollout-") as folder:
        copy = Path(folder) / "stdin.jsonl"
        spool_stdin(sys.stdin.buffer, copy)
        yield PromptFile(copy, field, limit, name="standard input")


def _options(flags: Mapping[str, Any], prompts: PromptFile) -> RunOptions:
    from rollout_core.run.setup import RunOptions

    return RunOptions(
        prompts=prompts,
        params=_params(flags),
        output=flags["output"] or Path("rollout-out") / datetime.now().strftime("%Y-%m-%d-%H%M%S"),
        **{
            name: flags[name]
            for name in ("n", "seed", "concurrency", "file_format", "resume", "strict", "chat", "reward")
        },
    )


def _params(flags: Mapping[str, Any]) -> SampleParams:
    from pydantic import ValidationError

    from rollout_core.types import SampleParams

    try:
        return SampleParams(**{name: flags[name] for name in _SAMPLING})
    except ValidationError as error:
        problems = (problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        raise click.UsageError("; ".join(problems)) from error


def _overrides(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "backend": flags["backend"],
        "model_path": flags["model"],
        "engines": flags["engines"],
        "system_prompt": flags["system"],
    }


def _describe(setup: RunSetup, as_json: bool) -> None:
    """Show what would run."""
    from rollout_core.run.output import check_folder

    check_folder(setup.options.output, setup.identity(), resume=setup.options.resume)
    first = setup.first_prompt()
    ids = setup.renderer.render(first.value)
    facts: dict[str, Any] = {
        "output": str(setup.options.output),
        **setup.facts(),
        "samples": setup.planned,
        "first_prompt": {"place": first.place, "token_ids": ids, "text": setup.renderer.decode(ids)},
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    backend = setup.plugins.backend
    click.echo(f"model      {setup.model.path} ({setup.model.architecture}, {setup.model.vocab_size} token ids)")
    click.echo(f"backend    {backend.name}, {len(setup.topology.engines)} x {setup.topology.cluster.accelerator}")
    click.echo(f"prompts    {setup.scan.prompts}, {setup.scan.broken_count} of them broken")
    click.echo(f"samples    {setup.planned}, {setup.plan.concurrency} in flight at most")
    click.echo(f"output     {setup.options.output} ({setup.options.file_format})")
    click.echo(f"first      {first.place}, {len(ids)} tokens:\n{setup.renderer.decode(ids)}")
    click.echo("nothing was started (--dry-run)")


def _report(ending: Ending, *, quiet: bool, as_json: bool) -> None:
    """Print the summary, or what ended the run before there was one."""
    from rollout_core.run.summary import summary_lines

    if as_json:
        click.echo(json.dumps(ending.summary))
    elif ending.error is None or ending.summary["session"]["samples"]:
        lines = [] if quiet else summary_lines(ending.summary)
        label = "" if quiet else "output     "
        click.echo("\n".join([*lines, f"{label}{ending.summary['output']}"]))
    if ending.error is not None:
        click.echo(f"Error: {ending.error}", err=True)
    elif not ending.complete and not quiet:
        click.echo("Some samples are missing: the same command with --resume draws them.", err=True)
