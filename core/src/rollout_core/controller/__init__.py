"""The control plane."""

from rollout_core.controller.controller import Controller
from rollout_core.controller.state import Endpoint, EngineEvent, EngineState, View

__all__ = ["Controller", "Endpoint", "EngineEvent", "EngineState", "View"]
