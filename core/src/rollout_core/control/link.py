"""Makes control calls to a control server. Its methods block, and are safe to call from any thread."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from rollout_core import __version__
from rollout_core.control.address import Connection
from rollout_core.control.service import GONE
from rollout_core.control.wire import VERSION_HEADER, GoneError, Problem, decode, encode, revived
from rollout_core.errors import ControlError

__all__ = ["Link"]

T = TypeVar("T")
_CALL_S = 10.0


class Link:
    """Connections to one server."""

    def __init__(self, connection: Connection) -> None:
        """Connects with the first call."""
        self.connection = connection
        self._http = httpx.Client(
            base_url=connection.url,
            headers={
                "authorization": f"Bearer {connection.token}",
                "content-type": "application/json",
                VERSION_HEADER: __version__,
            },
            trust_env=False,
        )

    def call(self, name: str, kind: type[T], *, timeout_s: float | None = _CALL_S, **arguments: Any) -> T:
        """Make a control call.

        Args:
            name: of the call.
            kind: of the answer.
            timeout_s: without an answer after which it fails; None for calls that the controller itself limits.
            arguments: of the call.

        Raises:
            ControlError: no answer, or the server refuses this process.
            GoneError: the client or trainer is not known (any more).
            RolloutError: what the controller raised.
        """
        try:
            reply = self._http.post(
                f"/{name}", content=encode(arguments), timeout=httpx.Timeout(timeout_s, connect=_CALL_S)
            )
        except httpx.TransportError as error:
            raise ControlError(self._no_answer(error)) from error
        try:
            if reply.is_success:
                return decode(kind, reply.content)
            problem = decode(Problem, reply.content)
        except ValidationError as error:
            raise ControlError(f"{self.connection.url} is no control server of this version: {error}") from error
        raise GoneError(problem.message) if reply.status_code == GONE else revived(problem)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _no_answer(self, error: httpx.TransportError) -> str:
        process = f" (process {self.connection.pid})" if self.connection.pid is not None else ""
        reason = str(error) or type(error).__name__
        return f"the controller{process} at {self.connection.url} does not answer: {reason}; is it still running?"
