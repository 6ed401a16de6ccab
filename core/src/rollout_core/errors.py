"""Everything that rollout raises on purpose.

RolloutError
├── ConfigError            a setting is wrong (the command line exits with 2)
│   ├── ModelError         the model folder cannot be used as asked
│   └── TopologyError      ranks, bundles or engines do not fit together
├── PluginError
│   ├── BackendNotFoundError   no installed distribution provides the name
│   ├── PluginLoadError        the selected plugin is broken
│   └── CapabilityError        the backend does not offer what was asked
├── RequestError           one request is wrong: its own fault, never an engine's
├── EngineError
│   ├── LaunchError        a server did not start
│   ├── UnavailableError   no engine can take the request
│   ├── DeadlineError      a wait passed its deadline
│   ├── ReplyError         a reply breaks the contract
│   ├── ControlError       the controller of another process cannot be reached, or refuses the caller
│   ├── StateError         not in this state: asleep, not paused, already updating
│   └── WeightUpdateError  new weights were refused, or not all engines have them
├── InputError             a prompt file cannot be read
└── OutputError            the output folder cannot be used

A message says what was asked, what was found and what to do next.
"""

from __future__ import annotations

__all__ = [
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
]


class RolloutError(Exception):
    """Base of every error of this package."""


class ConfigError(RolloutError):
    """A setting is unknown, out of range, or contradicts another one."""


class ModelError(ConfigError):
    """The model folder is missing, incomplete, or lacks what was asked of it."""


class TopologyError(ConfigError):
    """The engines, ranks and bundles of a topology do not fit together."""


class PluginError(RolloutError):
    """A backend or extension plugin cannot be used."""


class BackendNotFoundError(PluginError):
    """No installed distribution provides the backend or extension that was named."""


class PluginLoadError(PluginError):
    """The selected plugin failed a load check; the message names distribution, version and cause."""


class CapabilityError(PluginError):
    """The backend does not offer a capability that the config or a request asks for."""


class RequestError(RolloutError):
    """A request is wrong in itself: sending it to another engine would not help."""


class EngineError(RolloutError):
    """Something went wrong on the side of an engine."""


class LaunchError(EngineError):
    """A server process did not start; the message carries the tail of its log."""


class UnavailableError(EngineError):
    """No engine can take the request now."""


class DeadlineError(EngineError):
    """A wait passed its deadline."""

    def __init__(self, peer: str, phase: str, seconds: float, hint: str = "") -> None:
        """Name the ``peer`` waited for, the ``phase`` of the wait and its limit in ``seconds``."""
        self.peer, self.phase, self.seconds = peer, phase, seconds
        super().__init__(f"{peer}: {phase} took longer than {seconds:g} s" + (f"; {hint}" if hint else ""))


class ReplyError(EngineError):
    """An engine's reply cannot be read, or breaks the rules of a result."""


class ControlError(EngineError):
    """The controller of another process cannot be reached, or it refuses the caller."""


class StateError(EngineError):
    """The engines are not in a state that allows this: asleep, not paused, or already being updated."""


class WeightUpdateError(EngineError):
    """New weights were refused before they were written, or some engines did not get them."""


class InputError(RolloutError):
    """A prompt file is missing or a line of it cannot be read."""


class OutputError(RolloutError):
    """The output folder cannot be written, or belongs to another run."""
