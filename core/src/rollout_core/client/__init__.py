"""The data plane: from the caller's process straight to the engines."""

from rollout_core.client.client import RolloutClient
from rollout_core.client.result import check_result
from rollout_core.client.router import Router

__all__ = ["RolloutClient", "Router", "check_result"]
