"""What a config asks of its backend, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable

from rollout_core.config import RolloutConfig
from rollout_core.plugins.backend import Backend
from rollout_core.types import Capability

__all__ = ["check_config"]

_NEEDS: tuple[tuple[Capability, str, Callable[[RolloutConfig], bool]], ...] = (
    (Capability.TENSOR_PARALLEL, "tensor_parallel", lambda c: c.tensor_parallel > 1),
    (Capability.DATA_PARALLEL, "data_parallel", lambda c: c.data_parallel > 1),
    (Capability.EXPERT_PARALLEL, "expert_parallel", lambda c: c.expert_parallel > 1),
    (Capability.MULTI_NODE, "cross_node_communication", lambda c: c.cross_node_communication),
    (Capability.FLOAT8, "float8", lambda c: c.float8),
    (Capability.FP32_LM_HEAD, "fp32_lm_head", lambda c: c.fp32_lm_head),
    (Capability.SKIP_LOAD_WEIGHTS, "skip_load_weights", lambda c: c.skip_load_weights),
    (Capability.ROUTED_EXPERTS, "routed_experts", lambda c: c.routed_experts),
    (Capability.ROUTER_GROUPS, "router_groups", lambda c: c.router_groups is not None),
    (Capability.API_KEY, "api_keys", lambda c: bool(c.api_keys)),
)


def check_config(backend: Backend) -> None:
    """Refuse a setting that the backend would have to ignore.

    Raises:
        CapabilityError: naming the setting and the capability.
    """
    for capability, setting, used in _NEEDS:
        if used(backend.config):
            backend.require(capability, f"the setting {setting}")
