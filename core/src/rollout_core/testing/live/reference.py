"""The reference for log-probabilities: a forward pass of the transformers library, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

__all__ = ["reference_logprobs", "reference_tensors"]


def reference_logprobs(model: str, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float] | None:
    """Natural logs of the response's tokens; None where torch, transformers or the model's weights are not there."""
    loaded = _loaded(model)
    if loaded is None:
        return None
    import torch

    ids = [*prompt_ids, *token_ids]
    with torch.inference_mode():
        logits = loaded(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    rows = logits[len(prompt_ids) - 1 : -1].log_softmax(-1)
    return [rows[place, token].item() for place, token in enumerate(token_ids)]


def reference_tensors(model: str) -> dict[str, Any]:
    """The state dict of the model, as a trainer has it; empty where it cannot be loaded."""
    loaded = _loaded(model)
    return {} if loaded is None else dict(loaded.state_dict())


@lru_cache(maxsize=1)
def _loaded(model: str) -> Any:
    try:
        import torch
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
    except (ImportError, OSError, ValueError):
        return None
