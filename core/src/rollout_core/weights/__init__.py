"""New weights for the engines: where they come from, and how they travel."""

from rollout_core.weights.publisher import FromTensors, WeightPublisher
from rollout_core.weights.source import FromFolder, UpdateOptions, WeightSource

__all__ = ["FromFolder", "FromTensors", "UpdateOptions", "WeightPublisher", "WeightSource"]
