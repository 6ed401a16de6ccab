"""Writes cli.md from the commands' own help. Run it after a change of a command: a test compares the two."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from rollout_core.cli import main

PAGE = Path(__file__).with_name("cli.md")

INTRO = """# Command line

Every command says what it does with `--help`. Results go to standard output, everything else to standard error, so
output can be piped.

| exit code | meaning |
|---|---|
| 0 | all went well |
| 1 | an engine failed, or some samples did |
| 2 | wrong usage: an option, a config, a plugin, an input file or an output folder |
| 130 | stopped by Ctrl-C |

An error is a message without a traceback; `rollout --debug COMMAND ...` shows the traceback too.
"""


def page() -> str:
    """The whole page."""
    return INTRO + "".join(_commands(main, None, "rollout"))


def _commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    if parent is not None:
        yield _section(command, context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _commands(found, context, child)


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {context.command_path}", f"```console\n$ {context.command_path} {usage}\n```"]
    parts += _prose(command.help or "")
    rows = [row for param in command.get_params(context) if (row := _row(param, context))]
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n" + "\n\n".join(parts) + "\n"


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; indented lines of a preformatted one become a code block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        lines = paragraph.splitlines()
        if lines[0] != "\b":
            yield paragraph
            continue
        said = [line for line in lines[1:] if not line.startswith("  ")]
        typed = [line.strip() for line in lines[1:] if line.startswith("  ")]
        if said:
            yield "\n".join(said)
        if typed:
            yield "\n".join(["```console", *_prompts(typed), "```"])


def _prompts(lines: list[str]) -> Iterator[str]:
    """Shell lines with a prompt where a command begins, not where one goes on after a backslash."""
    for before, line in zip(["", *lines], lines, strict=False):
        yield f"    {line}" if before.endswith("\\") else f"$ {line}"


def _row(param: click.Parameter, context: click.Context) -> str | None:
    record = param.get_help_record(context)
    if "--help" in param.opts or record is None or not record[1]:
        return None
    # A bar would end the cell.
    names, meaning = (" ".join(text.split()).replace("|", "/") for text in record)
    return f"| `{names}` | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
