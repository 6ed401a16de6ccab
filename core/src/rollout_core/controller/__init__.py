"""The control plane."""

from rollout_core.controller.controller import Controller
from rollout_core.controller.gate import Member
from rollout_core.controller.state import Endpoint, EngineEvent, EngineState, PauseReport, View
from rollout_core.controller.status import ClientStatus, ControllerStatus, EngineStatus
from rollout_core.controller.weights import UpdateReport

__all__ = [
    "ClientStatus",
    "Controller",
    "ControllerStatus",
    "Endpoint",
    "EngineEvent",
    "EngineState",
    "EngineStatus",
    "Member",
    "PauseReport",
    "UpdateReport",
    "View",
]
