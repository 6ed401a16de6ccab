"""Loads the model and its tokenizer, and refuses models that the engine cannot serve correctly."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rollout_transformers.engine.attention import ATTENTION_NAME, register_attention
from rollout_transformers.engine.settings import EngineSettings, StartupError

__all__ = ["LoadedModel", "load_model"]

_GROWING_ROPE = ("dynamic", "longrope")
"""Rotary embeddings whose frequencies depend on the longest sample of the batch."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to run, with the facts about it that the engine needs."""

    model: Any
    tokenizer: Any
    eos_ids: frozenset[int]
    vocab_size: int
    context_length: int
    cache_argument: str
    """Name of the forward argument that takes the K/V cache."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        dtype: torch.dtype = self.model.dtype
        return dtype


class Float32Head(torch.nn.Module):
    """A language-model head that computes in float32 from weights of another type."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = head.weight
        self.bias = head.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits in float32; the weights stay shared with the embedding when they are tied."""
        bias = None if self.bias is None else self.bias.float()
        return torch.nn.functional.linear(hidden.float(), self.weight.float(), bias)


def load_model(settings: EngineSettings) -> LoadedModel:
    """Load what `settings` name; `StartupError` says in one line what is wrong with them."""
    register_attention()
    config = _load_config(settings)
    tokenizer = _load_tokenizer(settings)
    model = _build(settings, config).eval()
    text_config = config.get_text_config()
    parameters = inspect.signature(model.forward).parameters
    loaded = LoadedModel(
        model=model,
        tokenizer=tokenizer,
        eos_ids=_eos_ids(model, tokenizer),
        vocab_size=int(text_config.vocab_size),
        context_length=_context_length(settings, text_config),
        cache_argument="cache" if "cache" in parameters else "past_key_values",
    )
    if settings.fp32_lm_head and loaded.dtype != torch.float32:
        model.set_output_embeddings(Float32Head(model.get_output_embeddings()))
    return loaded


def _load_config(settings: EngineSettings) -> Any:
    folder = settings.model_path
    if not folder.is_dir():
        raise StartupError(f"model folder {folder} does not exist")
    if not (folder / "config.json").is_file():
        raise StartupError(f"model folder {folder} has no config.json")
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)
    except (ValueError, OSError) as err:
        raise StartupError(f"cannot read {folder / 'config.json'}: {_one_line(err)}") from err
    if getattr(config, "is_encoder_decoder", False):
        raise StartupError(f"{config.model_type} is an encoder-decoder model; only decoder-only models are served")
    return config


def _load_tokenizer(settings: EngineSettings) -> Any:
    folder = settings.tokenizer_path or settings.model_path
    if not folder.is_dir():
        raise StartupError(f"tokenizer folder {folder} does not exist")
    if not any(folder.glob("tokenizer*")) and not any(folder.glob("*.model")):
        raise StartupError(f"folder {folder} has no tokenizer; set tokenizer_path")
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)
    except Exception as err:
        raise StartupError(f"cannot load the tokenizer of {folder}: {_one_line(err)}") from err


def _build(settings: EngineSettings, config: Any) -> Any:
    dtype = _dtype(settings, config)
    options = {"trust_remote_code": settings.trust_remote_code, "attn_implementation": ATTENTION_NAME}
    try:
        if settings.skip_load_weights:
            torch.manual_seed(settings.random_seed)
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, **options)
        else:
            model = AutoModelForCausalLM.from_pretrained(settings.model_path, dtype=dtype, **options)
    except (ValueError, OSError, KeyError) as err:
        raise StartupError(f"cannot load {settings.model_path}: {_one_line(err)}") from err
    if not getattr(model, "_supports_attention_backend", False):
        raise StartupError(f"{type(model).__name__} does not support custom attention and cannot be served")
    try:
        return model.to(settings.device)
    except (RuntimeError, AssertionError) as err:
        raise StartupError(f"device {settings.device} is not usable: {_one_line(err)}") from err


def _dtype(settings: EngineSettings, config: Any) -> torch.dtype:
    if settings.dtype == "auto":
        own = getattr(config, "dtype", None)
        on_cpu = settings.device == "cpu"
        return own if isinstance(own, torch.dtype) and not on_cpu else torch.float32
    dtype: torch.dtype = getattr(torch, settings.dtype)
    return dtype


def _context_length(settings: EngineSettings, config: Any) -> int:
    own = getattr(config, "max_position_embeddings", None)
    length = settings.context_length or own
    if length is None:
        raise StartupError("the model's config names no max_position_embeddings; set context_length")
    if own is not None and length > own:
        raise StartupError(f"context_length {length} is more than the model's {own}")
    rope = getattr(config, "rope_parameters", None) or {}
    trained = rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    if rope.get("rope_type") in _GROWING_ROPE and trained and length > trained:
        raise StartupError(
            f"{rope['rope_type']} rotary embeddings past {trained} positions depend on the whole batch; "
            f"set context_length to {trained} or less"
        )
    return min(length, settings.kv_cache_tokens or length)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    named = getattr(model.generation_config, "eos_token_id", None)
    ids = set(named) if isinstance(named, list | tuple) else {named}
    ids.add(tokenizer.eos_token_id)
    return frozenset(int(token) for token in ids if token is not None)


def _one_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def describe(loaded: LoadedModel, settings: EngineSettings) -> dict[str, Any]:
    """The facts that `GET /info` answers with."""
    import transformers

    return {
        "model": settings.served_model_name or settings.model_path.name,
        "architecture": type(loaded.model).__name__,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "device": str(loaded.device),
        "context_length": loaded.context_length,
        "vocab_size": loaded.vocab_size,
        "eos_token_ids": sorted(loaded.eos_ids),
        "max_batch_size": settings.max_batch_size,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "settings": json.loads(settings.model_dump_json(exclude={"api_key_file"})),
    }
