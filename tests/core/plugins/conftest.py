"""Distributions that are really found by importlib-metadata: a module and its ``.dist-info`` on ``sys.path``."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

BACKEND = """
from pydantic import BaseModel, ConfigDict
from rollout_core import Topology, hookimpl
from rollout_core.types import BackendInfo, Capability, GenerateResult, HttpCall, Server

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    speed: int = 1

@hookimpl
def describe_backend():
    return BackendInfo(name={name!r}, plugin_api={api}, options=Options, capabilities=frozenset({{Capability.SEED}}))

@hookimpl
def build_topology(config, cluster):
    return Topology.uniform(cluster, 1)

@hookimpl
def launch_server(config, spec, spawn):
    return Server(spec.url, spawn(["true"], {{}}))

@hookimpl
def build_payload(config, request):
    return HttpCall("/generate")

@hookimpl
def parse_response(config, request, reply):
    return GenerateResult(request.request_id, request.prompt_ids)
"""

Install = Callable[..., str]


@pytest.fixture
def toy_source() -> str:
    """The source of a whole backend named ``toy``."""
    return BACKEND.format(name="toy", api=1)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a plugin of the given source; returns the name of its module."""

    def install_one(
        name: str, source: str = BACKEND, *, dist: str = "", group: str = "rollout.backends", api: int = 1
    ) -> str:
        dist = dist or f"rollout-{name}"
        module = dist.replace("-", "_")
        site = tmp_path / dist
        (site / f"{module}-2.0.dist-info").mkdir(parents=True)
        (site / f"{module}-2.0.dist-info" / "METADATA").write_text(f"Name: {dist}\nVersion: 2.0\n")
        (site / f"{module}-2.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        text = textwrap.dedent(source)
        (site / f"{module}.py").write_text(text.format(name=name, api=api) if source is BACKEND else text)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, module, raising=False)
        return module

    return install_one
