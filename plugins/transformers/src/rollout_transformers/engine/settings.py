"""Settings of one server process, given as JSON on its command line or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EngineSettings", "StartupError"]


class StartupError(Exception):
    """The server cannot start with these settings; the message is one line for the user."""


class EngineSettings(BaseModel):
    """What one server process loads, how much it holds at once and where it listens."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_path: Path
    """Folder of the checkpoint (`config.json` and weights)."""
    tokenizer_path: Path | None = None
    """Folder of the tokenizer; the model's folder when not given."""
    served_model_name: str | None = None
    """Name reported by `/info`; the folder's name when not given."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 lets the system choose one, which is logged."""
    device: str = "cpu"
    """Torch device: `cpu`, `cuda` or `cuda:N`."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    """Data type of weights and K/V. `auto` is float32 on CPU and the checkpoint's own type elsewhere."""
    context_length: int | None = Field(default=None, gt=1)
    """Longest prompt plus response in tokens; the model's own limit when not given."""
    max_batch_size: int = Field(default=64, gt=0)
    """Most samples in flight at once; further ones wait in the queue."""
    kv_cache_tokens: int | None = Field(default=None, gt=1)
    """K/V budget in tokens, counted as rows times row length; derived from free memory when not given."""
    memory_fraction: float | None = Field(default=None, gt=0.0, le=1.0)
    """Share of the free memory that a derived K/V budget may take; 0.5 on CPU and 0.85 elsewhere when not given."""
    max_prefill_tokens: int = Field(default=2048, gt=0)
    """Most prompt tokens computed in one forward pass; a longer prompt is computed in chunks."""
    max_queue: int | None = Field(default=None, ge=0)
    """Most waiting requests before new ones are refused with 429; unbounded when not given."""
    prefix_reuse: bool = True
    """Copy the K/V of a prompt prefix that is still held instead of computing it again."""
    random_seed: int = 0
    """Seed of the draws of requests that bring no seed of their own, and of random weights."""
    api_key_file: Path | None = None
    """File holding the keys, one per line, of which clients send one as `Authorization: Bearer KEY`."""
    threads: int | None = Field(default=None, gt=0)
    """Torch threads on CPU; torch decides when not given."""
    trust_remote_code: bool = False
    """Run model code that comes with the checkpoint."""
    fp32_lm_head: bool = False
    """Compute the language-model head in float32 whatever the model's type."""
    return_routed_experts: bool = False
    """Record the experts that a mixture-of-experts model chose for every token."""
    skip_load_weights: bool = False
    """Start from random weights; a weight update brings the real ones."""
    weight_version: int = Field(default=0, ge=0)
    """Version of the weights that are loaded at the start."""
    offload_folder: Path | None = None
    """Where a CPU engine keeps its weights while they are offloaded; `/var/tmp` when not given."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Level of the log on standard error."""

    def api_keys(self) -> tuple[str, ...]:
        """The keys in `api_key_file`; none when the server is open."""
        if self.api_key_file is None:
            return ()
        try:
            keys = tuple(self.api_key_file.read_text().split())
        except OSError as err:
            raise StartupError(f"cannot read api_key_file {self.api_key_file}: {err.strerror}") from err
        if not keys:
            raise StartupError(f"api_key_file {self.api_key_file} is empty")
        return keys
