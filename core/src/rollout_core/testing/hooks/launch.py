"""Checks of ``launch_server`` with a ``spawn`` that only records."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rollout_core.errors import CapabilityError, ConfigError
from rollout_core.testing.suite import Suite, check, expect
from rollout_core.types import Capability, GenerateRequest, LaunchSpec, Server

__all__ = ["LaunchChecks"]

_KEY = "conformance-key-5d1b2c"
_PORT = 21999
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish"})


class LaunchChecks(Suite):
    """The hook ``launch_server``."""

    @check()
    def test_launch_spawns_one_server(self) -> None:
        """A launch spawns one process and returns it, with the URL of the specification."""
        server, launch = self._launch()
        expect(len(launch.calls) == 1, f"spawn was called {len(launch.calls)} times, expected once")
        expect(server.process is launch, "the returned server's process is not the one that spawn gave")
        expect(server.url == launch.spec.url, f"the server's url is {server.url}, expected {launch.spec.url}")
        expect(server.ready.path.startswith("/"), f"the readiness path is {server.ready.path!r}; start it with /")

    @check()
    def test_launch_passes_the_place(self) -> None:
        """Model and port of the launch reach the server."""
        _, launch = self._launch()
        for what, value in (("port", str(_PORT)), ("model", self.face.config.model_path)):
            expect(value in launch.everything, f"the {what} {value} is neither in argv, environment nor settings")

    @check()
    def test_launch_needs_no_shell(self) -> None:
        """The command is a list of arguments for a program, not a line for a shell."""
        _, launch = self._launch()
        argv = launch.argv
        expect(not isinstance(argv, str), "argv is one string; give a list of arguments")
        strangers = [item for item in argv if not isinstance(item, str)]
        expect(not strangers, f"argv holds {strangers!r}; every argument is text")
        expect(Path(argv[0]).name not in _SHELLS, f"the command runs through the shell {argv[0]}")
        wrong = {name: value for name, value in launch.env.items() if not isinstance(value, str)}
        expect(not wrong, f"the environment holds {wrong!r}; every value is text")

    @check()
    def test_keys_stay_out_of_sight(self) -> None:
        """API keys appear neither in the command line, where every user can read them, nor in payloads."""
        keys = {"api_keys": (SecretStr(_KEY),)}
        try:
            _, launch = self._launch(**keys)
        except (CapabilityError, ConfigError):
            expect(not self.face.offers(Capability.API_KEY), "api_key is declared, but a launch with one is refused")
            return
        expect(not any(_KEY in argument for argument in launch.argv), "the API key is in the command line")
        payload = self.load(**keys).backend.build_payload(GenerateRequest((1, 2, 3)))
        expect(_KEY not in repr(payload), "the API key is in the payload of a request")
        if self.face.offers(Capability.API_KEY):
            expect(_KEY in launch.everything, "api_key is declared, but the key never reaches the server")

    def _launch(self, **settings: Any) -> tuple[Server, _Launch]:
        with tempfile.TemporaryDirectory(prefix="rollout-launch-") as folder:
            launch = _Launch(Path(folder))
            backend = self.load(**settings).backend
            server = backend.launch_server(launch.spec, launch)
            launch.read_files()
            return server, launch


class _Launch:
    """A spawn that records what it is asked to run, and the process that it returns."""

    def __init__(self, folder: Path) -> None:
        self.spec = _spec(folder)
        self.calls: list[tuple[Sequence[str], Mapping[str, str]]] = []
        self._files = ""

    def __call__(self, argv: Sequence[str], env: Mapping[str, str]) -> _Launch:
        self.calls.append((argv, env))
        return self

    pid = 1

    def poll(self) -> int | None:
        return None

    def stop(self) -> None:
        return

    @property
    def argv(self) -> Sequence[str]:
        return self.calls[0][0]

    @property
    def env(self) -> Mapping[str, str]:
        return self.calls[0][1]

    @property
    def everything(self) -> str:
        """Arguments, environment and the files that the launch wrote."""
        return "\n".join([*map(str, self.argv), *map(str, self.env.values()), self._files])

    def read_files(self) -> None:
        """Keep the settings that were written, before the folder goes."""
        files = sorted(path for path in self.spec.run_dir.rglob("*") if path.is_file())
        self._files = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def _spec(folder: Path) -> LaunchSpec:
    return LaunchSpec(
        engine=0,
        process=0,
        host="127.0.0.1",
        port=_PORT,
        ranks=(0,),
        update_ranks=(0,),
        bundles=(0,),
        accelerators=(),
        accepts_requests=True,
        node_rank=0,
        node_count=1,
        rendezvous=None,
        run_dir=folder,
        log_path=folder.parent / "conformance.log",
    )
