"""rollout: the engine-neutral rollout layer for LLM reinforcement learning.

Names are imported when they are first used, so that ``import rollout_core`` costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollout_core.client import RolloutClient
    from rollout_core.config import RolloutConfig, load_config
    from rollout_core.control import ControlServer, RemoteController
    from rollout_core.controller import Controller
    from rollout_core.errors import (
        BackendNotFoundError,
        CapabilityError,
        ConfigError,
        ControlError,
        DeadlineError,
        EngineError,
        InputError,
        LaunchError,
        ModelError,
        OutputError,
        PluginError,
        PluginLoadError,
        ReplyError,
        RequestError,
        RolloutError,
        StateError,
        TopologyError,
        UnavailableError,
        WeightUpdateError,
    )
    from rollout_core.model import ModelInfo
    from rollout_core.plugins import Backend, Plugins, hookimpl
    from rollout_core.render import Renderer
    from rollout_core.run.read_record import read_result
    from rollout_core.topology import Cluster, Engine, ServerProcess, Topology
    from rollout_core.types import (
        FinishReason,
        GenerateRequest,
        GenerateResult,
        LogprobKind,
        SampleParams,
        Status,
    )

__version__ = "0.1.0"

_ERRORS = (
    "BackendNotFoundError",
    "CapabilityError",
    "ConfigError",
    "ControlError",
    "DeadlineError",
    "EngineError",
    "InputError",
    "LaunchError",
    "ModelError",
    "OutputError",
    "PluginError",
    "PluginLoadError",
    "ReplyError",
    "RequestError",
    "RolloutError",
    "StateError",
    "TopologyError",
    "UnavailableError",
    "WeightUpdateError",
)
_HOMES = {
    "rollout_core.client": ("RolloutClient",),
    "rollout_core.config": ("RolloutConfig", "load_config"),
    "rollout_core.control": ("ControlServer", "RemoteController"),
    "rollout_core.controller": ("Controller",),
    "rollout_core.errors": _ERRORS,
    "rollout_core.model": ("ModelInfo",),
    "rollout_core.plugins": ("Backend", "Plugins", "hookimpl"),
    "rollout_core.render": ("Renderer",),
    "rollout_core.run.read_record": ("read_result",),
    "rollout_core.topology": ("Cluster", "Engine", "ServerProcess", "Topology"),
    "rollout_core.types": (
        "FinishReason",
        "GenerateRequest",
        "GenerateResult",
        "LogprobKind",
        "SampleParams",
        "Status",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Backend",
    "BackendNotFoundError",
    "CapabilityError",
    "Cluster",
    "ConfigError",
    "ControlError",
    "ControlServer",
    "Controller",
    "DeadlineError",
    "Engine",
    "EngineError",
    "FinishReason",
    "GenerateRequest",
    "GenerateResult",
    "InputError",
    "LaunchError",
    "LogprobKind",
    "ModelError",
    "ModelInfo",
    "OutputError",
    "PluginError",
    "PluginLoadError",
    "Plugins",
    "RemoteController",
    "Renderer",
    "ReplyError",
    "RequestError",
    "RolloutClient",
    "RolloutConfig",
    "RolloutError",
    "SampleParams",
    "ServerProcess",
    "StateError",
    "Status",
    "Topology",
    "TopologyError",
    "UnavailableError",
    "WeightUpdateError",
    "__version__",
    "hookimpl",
    "load_config",
    "read_result",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rollout_core' has no attribute '{name}'")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
