"""Calls the command line in this process."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from rollout_core.cli import main

Cli = Callable[..., Result]


@pytest.fixture
def cli() -> Cli:
    """Run ``rollout`` with the given words; the result has ``stdout``, ``stderr`` and ``exit_code``."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, list(words), catch_exceptions=False)

    return call
