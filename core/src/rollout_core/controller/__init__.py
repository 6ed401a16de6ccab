"""The control plane."""

from rollout_core.controller.controller import Controller
from rollout_core.controller.gate import Member
from rollout_core.controller.state import Endpoint, EngineEvent, EngineState, PauseReport, View

__all__ = ["Controller", "Endpoint", "EngineEvent", "EngineState", "Member", "PauseReport", "View"]
