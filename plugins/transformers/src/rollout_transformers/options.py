"""The table ``backend_options`` of the embedded backend."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TransformersOptions"]


class TransformersOptions(BaseModel):
    """Options of the embedded backend; everything else is in the common config."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    threads: int | None = Field(default=None, ge=1)
    """Torch threads of each server on CPU. Unset: the machine's cores, shared out over the engines."""

    kv_cache_tokens: int | None = Field(default=None, ge=2)
    """Budget of the K/V cache, in tokens. Unset: derived from the free memory."""

    max_queue: int | None = Field(default=None, ge=0)
    """Requests that may wait in a server before it answers 429. Unset: any number."""

    prefix_reuse: bool = True
    """Copy the K/V of a prompt prefix that is still held instead of computing it again."""

    offload_folder: str | None = None
    """Where a CPU engine keeps its weights while they are offloaded. Unset: ``/var/tmp``; not a memory file system."""

    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """Level of the servers' logs: debug, info, warning or error."""
