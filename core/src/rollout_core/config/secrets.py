"""The config as it may be shown: in logs, in manifests and on the screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rollout_core.config.model import RolloutConfig

__all__ = ["MASK", "masked"]

MASK = "**********"
"""Stands for a secret."""

_SECRET_NAME = re.compile(r"(^|[_-])(key|keys|apikey|token|secret|password|passwd|credentials?)$", re.IGNORECASE)


def masked(config: RolloutConfig) -> dict[str, Any]:
    """The config as JSON values, secrets replaced by :data:`MASK`.

    Secret are all ``api_keys``, and text in ``env`` and ``backend_options`` whose name says so (``HF_TOKEN``).
    """
    values = config.model_dump(mode="json")
    return values | {table: _mask_named(values[table]) for table in ("env", "backend_options")}


def _mask_named(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _mask_named(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mask_named(inner, name) for inner in value]
    return MASK if isinstance(value, str) and value and _SECRET_NAME.search(name) else value
