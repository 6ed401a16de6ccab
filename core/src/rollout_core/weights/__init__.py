"""New weights for the engines: where they come from, and how they travel."""

from rollout_core.weights.group import FromGroup, GroupReceiver
from rollout_core.weights.publisher import FromTensors, WeightPublisher
from rollout_core.weights.source import FromFolder, UpdateOptions, WeightSource
from rollout_core.weights.tensors import NamedTensors, copy_tensor

__all__ = [
    "FromFolder",
    "FromGroup",
    "FromTensors",
    "GroupReceiver",
    "NamedTensors",
    "UpdateOptions",
    "WeightPublisher",
    "WeightSource",
    "copy_tensor",
]
