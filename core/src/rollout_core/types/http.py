"""HTTP as hooks see it: a call to make and the reply to read. Core does the I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Call", "HttpCall", "Reply"]


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One HTTP call to an engine's server, relative to its URL."""

    path: str
    """Starts with ``/``."""
    body: Mapping[str, Any] | None = None
    """Sent as JSON; None sends no body."""
    method: str = "POST"
    timeout_s: float | None = None
    """Of this control call; None takes ``control_timeout_s`` of the config. Not used for generation."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    body: Any
    """The decoded JSON, or the text where it is not JSON."""

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


Call = Callable[[HttpCall], Reply]
"""Makes a control call. Raises EngineError when no reply comes; HTTP errors come back as replies."""
