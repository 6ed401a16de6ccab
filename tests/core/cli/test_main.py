"""What all commands share: lazy loading, help, errors and exit codes."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from rollout_core import __version__
from rollout_core.cli import main
from rollout_core.cli.failure import RootGroup
from rollout_core.errors import (
    CapabilityError,
    ConfigError,
    DeadlineError,
    InputError,
    LaunchError,
    OutputError,
    PluginLoadError,
)

HEAVY = {"torch", "transformers", "ray", "pydantic", "httpx", "aiohttp", "pyarrow", "rich", "pluggy", "tomlkit"}


def imported_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}


def failing(error: BaseException) -> click.Group:
    group = RootGroup("rollout", params=[click.Option(["--debug"], is_flag=True)])

    @group.command()
    def fail() -> None:
        raise error

    return group


def test_help_imports_nothing_heavy():
    code = "from rollout_core.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert imported_by(code) & HEAVY == set()


@pytest.mark.parametrize("command", ["config", "topology", "plugins"])
def test_help_of_a_command_imports_no_engine_and_no_pydantic(command):
    code = f"from rollout_core.cli import main\ntry: main(['{command}', '--help'])\nexcept SystemExit: pass"
    assert imported_by(code) & HEAVY == set()


def test_help_lists_every_command(cli):
    result = cli("--help")
    assert result.exit_code == 0
    for name in main.lazy:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize("name", ["config", "topology", "plugins"])
def test_every_command_is_found_and_teaches_by_example(cli, name):
    result = cli(name, "--help")
    assert result.exit_code == 0
    if name != "config":
        assert f"      rollout {name}" in result.stdout or f"    rollout {name}" in result.stdout


def test_version(cli):
    assert __version__ in cli("--version").stdout


def test_an_unknown_command_gets_a_suggestion(cli):
    result = cli("topologie")
    assert result.exit_code == 2
    assert "no command 'topologie'; did you mean 'topology'?" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (PluginLoadError("x"), 2),
        (CapabilityError("x"), 2),
        (InputError("x"), 2),
        (OutputError("x"), 2),
        (LaunchError("x"), 1),
        (DeadlineError("engine-0", "start", 3), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert CliRunner().invoke(failing(error), ["fail"]).exit_code == code


def test_an_error_is_a_message_and_no_traceback():
    result = CliRunner().invoke(failing(ConfigError("gpus is wrong")), ["fail"])
    assert result.stderr == "Error: gpus is wrong\n"
    assert result.stdout == ""


def test_debug_shows_the_traceback():
    result = CliRunner().invoke(failing(ConfigError("gpus is wrong")), ["--debug", "fail"])
    assert "Traceback" in result.stderr
    assert result.exit_code == 2


def test_a_fault_of_our_own_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(failing(ZeroDivisionError()), ["fail"], catch_exceptions=False)
