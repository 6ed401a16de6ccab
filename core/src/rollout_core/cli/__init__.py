"""The command line ``rollout``. Only click is imported before a subcommand is known."""

from __future__ import annotations

import click

from rollout_core import __version__
from rollout_core.cli.failure import RootGroup
from rollout_core.cli.lazy import LazyCommand

__all__ = ["main"]

_COMMANDS = {
    "run": LazyCommand("rollout_core.cli.run:run", "Draw samples for a file of prompts."),
    "status": LazyCommand("rollout_core.cli.status:status", "Show how a running job stands."),
    "config": LazyCommand("rollout_core.cli.config:config", "Write, check and show config files."),
    "topology": LazyCommand("rollout_core.cli.topology:topology", "Draw which engine owns which accelerators."),
    "plugins": LazyCommand("rollout_core.cli.plugins:plugins", "List backends and extensions, and check them."),
}


@click.group(
    cls=RootGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="rollout")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Draw samples from language models, with any inference engine.

    \b
    A first run, on a laptop, from a file with one {"prompt": "..."} a line:
      rollout run --model HuggingFaceTB/SmolLM2-135M-Instruct --prompts prompts.jsonl --output out

    \b
    What is installed, and what an engine would look like on a cluster:
      rollout plugins
      rollout topology --gpus 16 --gpus-per-node 8

    \b
    A config file with every setting explained, and a check of it:
      rollout config init --backend transformers -o run.toml
      rollout config check run.toml
    """
