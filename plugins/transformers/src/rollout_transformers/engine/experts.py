"""Records which experts a mixture-of-experts model chose, without changing the model.

transformers names the router modules of an architecture as the source of `router_logits`; a forward hook on each
keeps the integer tensor of chosen experts that the router returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["ExpertRecorder", "Experts"]

Experts = npt.NDArray[np.integer[Any]]
"""Chosen experts, shape [tokens, layers, experts per token], uint8 or int16."""


class ExpertRecorder:
    """Collects the choices of all routers during a forward pass."""

    def __init__(self, model: Any) -> None:
        routers = _routers(model)
        if not routers:
            raise ValueError(f"{type(model).__name__} has no routers that transformers can record")
        self._chosen: list[Tensor] = []
        self._layers = len(routers)
        self._dtype: type[np.integer[Any]] = np.uint8 if _expert_count(model) <= 256 else np.int16
        for router in routers:
            router.register_forward_hook(self._hook)

    def take(self) -> Experts:
        """The choices of the forward pass that just ended, in the order of its tokens."""
        chosen, self._chosen = self._chosen, []
        if len(chosen) != self._layers:
            raise RuntimeError(f"recorded {len(chosen)} routers, expected {self._layers}")
        stacked: Experts = torch.stack(chosen, dim=1).cpu().numpy().astype(self._dtype)
        return stacked

    def reset(self) -> None:
        """Forget the choices of a forward pass that failed."""
        self._chosen = []

    def _hook(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        for item in outputs:
            if isinstance(item, Tensor) and not item.is_floating_point():
                self._chosen.append(item.reshape(-1, item.shape[-1]))
                return
        raise TypeError(f"{type(module).__name__} does not return the experts it chose")


def _routers(model: Any) -> list[torch.nn.Module]:
    recordable = getattr(model, "_can_record_outputs", None) or {}
    for module in model.modules():
        recordable = recordable or getattr(module, "_can_record_outputs", None) or {}
    source = recordable.get("router_logits")
    target: Any = getattr(source, "target_class", source)
    if not isinstance(target, type):
        return []
    modules: Iterable[torch.nn.Module] = model.modules()
    return [module for module in modules if isinstance(module, target)]


def _expert_count(model: Any) -> int:
    config = model.config.get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return int(next((getattr(config, name) for name in names if getattr(config, name, None)), 1 << 15))
