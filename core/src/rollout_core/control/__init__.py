"""Control across processes: a server beside the controller, and what clients and trainers elsewhere use of it."""

from rollout_core.control.address import Connection
from rollout_core.control.messages import RunStatus, TrainerStatus
from rollout_core.control.plane import RemotePlane
from rollout_core.control.server import ControlServer
from rollout_core.control.trainer import RemoteController

__all__ = ["Connection", "ControlServer", "RemoteController", "RemotePlane", "RunStatus", "TrainerStatus"]
