"""A controller with its control server, and clients and trainers as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollout_core import Controller, ControlServer, Plugins, RolloutConfig
from rollout_core.control import RunStatus
from rollout_core.control.address import Address
from rollout_core.control.link import Link

HERE = Path(__file__).parent
PREAMBLE = """
import asyncio, os, sys, time
from pathlib import Path
from rollout_core import *

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

where = sys.argv[1]
"""


@dataclass
class Run:
    """A running controller that others can reach at ``where``."""

    controller: Controller
    server: ControlServer
    where: str

    def status(self) -> RunStatus:
        """How the run stands, asked as others ask."""
        with closing(Link(Address(self.where).read())) as link:
            return link.call("status", RunStatus)

    def engine(self) -> dict[str, Any]:
        """What the engine says of itself."""
        answer: dict[str, Any] = httpx.get(self.controller.view.endpoints[0].url + "/health").json()
        return answer


class Other:
    """A process that runs a script; it says lines and hears lines."""

    def __init__(self, script: str, where: str, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script), where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def heard(self) -> str:
        """The next line that it says; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str = "go") -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal; it has no time to say goodbye."""
        os.kill(self.process.pid, how)
        if how is signal.SIGKILL:
            self.process.wait()

    def end(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.communicate()


MakeRun = Callable[..., Run]
MakeOther = Callable[[str, str], Other]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The toy backend installed, here and for other processes; returns their search path."""
    info = tmp_path / "site" / "rollout_remote_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: rollout-remote-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rollout.backends]\nremote-toy = remote_toy\n")
    for folder in (info.parent, HERE):
        monkeypatch.syspath_prepend(str(folder))
    return f"{info.parent}:{HERE}"


@pytest.fixture
def run(tmp_path: Path, site: str) -> Iterator[MakeRun]:
    """Starts a controller with its server."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 100, "max_position_embeddings": 64}')
    with ExitStack() as stack:

        def start(**settings: Any) -> Run:
            settings = {"shutdown_timeout_s": 2.0, "startup_timeout_s": 30.0, **settings}
            config = RolloutConfig(model_path=str(tmp_path / "model"), backend="remote-toy", **settings)
            controller = stack.enter_context(Controller(Plugins.load(config), log_dir=tmp_path / "logs"))
            server = stack.enter_context(ControlServer(controller, tmp_path / "run" / "control.json"))
            return Run(controller, server, str(tmp_path / "run"))

        yield start


@pytest.fixture
def other(site: str) -> Iterator[MakeOther]:
    """Starts another process with a script."""
    with ExitStack() as stack:

        def start(script: str, where: str) -> Other:
            process = Other(script, where, site)
            stack.callback(process.end)
            return process

        yield start


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Look until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(name="wait_for")
def wait_for_fixture() -> Callable[..., None]:
    """Looks until a condition holds."""
    return wait_for
