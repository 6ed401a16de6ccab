"""The config of a run: its model, and how files, ``--set`` and flags are laid over each other."""

from rollout_core.config.load import load_config
from rollout_core.config.model import RolloutConfig

__all__ = ["RolloutConfig", "load_config"]
