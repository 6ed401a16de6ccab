"""The options of ``rollout run``, and a help that groups them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rollout_core.cli.options import config_options

__all__ = ["SectionedCommand", "run_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_SECTIONS = {
    "Prompts": ("prompts", "prompt_field", "limit", "strict", "system", "chat"),
    "Model and engines": ("backend", "model", "engines", "concurrency", "config_files", "sets"),
    "Sampling": (
        "n",
        "max_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "ignore_eos",
        "top_logprobs",
    ),
    "Output": ("output", "file_format", "resume", "reward"),
}

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--prompts",
        required=True,
        metavar="FILE",
        type=click.Path(path_type=Path, allow_dash=True),
        help="Prompts, by suffix: .jsonl, .json (a list), .csv or .parquet; - reads JSONL from standard input.",
    ),
    click.option(
        "--prompt-field",
        default="prompt",
        show_default=True,
        metavar="NAME",
        help="Field with the prompt: a text, chat messages or token ids. The other fields go to the output.",
    ),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N prompts."),
    click.option("--strict", is_flag=True, help="Refuse a file with a broken line, instead of failing its samples."),
    click.option("--system", metavar="TEXT", help="System prompt of chats that have none. Plain text is left alone."),
    click.option(
        "--chat/--no-chat", help="Wrap prompts that are plain text as a user's message, instead of completing them."
    ),
    click.option("--backend", metavar="NAME", help="Backend that serves the model (rollout plugins lists them)."),
    click.option("--model", metavar="PATH", help="Checkpoint folder, or its id on the Hugging Face hub."),
    click.option("--engines", type=click.IntRange(min=1), metavar="N", help="Engines to start."),
    click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        metavar="N",
        help="Requests in flight. Unset: twice what the engines run at once.",
    ),
    config_options,
    click.option(
        "-n", "n", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Samples per prompt."
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=256,
        show_default=True,
        metavar="N",
        help="Longest response, in tokens.",
    ),
    click.option(
        "--min-tokens", type=click.IntRange(min=0), default=0, metavar="N", help="No end before so many tokens."
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(0, 100),
        default=1.0,
        show_default=True,
        metavar="T",
        help="0 always takes the most likely token.",
    ),
    click.option(
        "--top-p",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        metavar="P",
        help="Draw from the smallest set of tokens with this probability.",
    ),
    click.option(
        "--top-k", type=click.IntRange(min=0), default=0, metavar="K", help="Draw from the K most likely tokens."
    ),
    click.option(
        "--min-p",
        type=click.FloatRange(0, 1),
        default=0.0,
        metavar="P",
        help="Drop tokens below this fraction of the most likely one's probability.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**63 - 1),
        metavar="N",
        help="Makes the run repeatable; every sample gets a seed of its own from it.",
    ),
    click.option("--stop", multiple=True, metavar="TEXT", help="Text that ends a response. Repeatable."),
    click.option("--ignore-eos", is_flag=True, help="Go on after the model's end-of-sequence token."),
    click.option(
        "--top-logprobs",
        type=click.IntRange(0, 1000),
        default=0,
        metavar="K",
        help="Also record the K most likely tokens at every position.",
    ),
    click.option(
        "--output",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        help="Folder for samples, manifest, summary and logs.  [default: rollout-out/<time>]",
    ),
    click.option(
        "--format",
        "file_format",
        type=click.Choice(["jsonl", "parquet"]),
        default="jsonl",
        show_default=True,
        help="samples.jsonl, or a folder samples/ of Parquet files.",
    ),
    click.option("--resume", is_flag=True, help="Finish the run in --output: draw what is missing, failed or aborted."),
    click.option(
        "--reward",
        metavar="WHERE",
        help="Score samples with module:function or file.py:function, from a Sample to a number.",
    ),
    click.option(
        "--dry-run", is_flag=True, help="Check everything, show the first prompt and what would run; start nothing."
    ),
    click.option("--quiet", is_flag=True, help="Print only errors and the output folder."),
)


def run_options(command: Command) -> Command:
    """Add all options but ``--json``."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


class SectionedCommand(click.Command):
    """A command whose help groups its many options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section; what is in none comes last."""
        rows = {param.name: row for param in self.get_params(ctx) if (row := param.get_help_record(ctx))}
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([rows.pop(name) for name in names])
        with formatter.section("Other"):
            formatter.write_dl(list(rows.values()))
