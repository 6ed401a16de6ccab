"""Answers control calls by name, JSON in and JSON out, whatever carries them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError, validate_call

from rollout_core import __version__
from rollout_core.control.clients import ClientDesk
from rollout_core.control.messages import RunStatus
from rollout_core.control.trainers import TrainerDesk
from rollout_core.control.wire import GoneError, Problem, encode, problem_of
from rollout_core.controller import Controller
from rollout_core.errors import RolloutError

__all__ = ["GONE", "Answer", "ControlService"]

OK, WRONG_CALL, UNKNOWN_CALL, REFUSED, GONE, BROKEN = 200, 400, 404, 409, 410, 500
_LOG = logging.getLogger(__name__)
_CLIENT_CALLS = ("hello", "join", "watch", "report_fault", "leave")
_TRAINER_CALLS = (
    "attach",
    "renew",
    "detach",
    "pause_generation",
    "continue_generation",
    "offload",
    "onload",
    "verify",
    "abort_requests",
    "health",
)
_UPDATE_CALLS = ("update_from_folder", "begin_update", "describe_weights", "next_wish", "give_bucket", "end_update")


@dataclass(frozen=True, slots=True)
class Answer:
    """To a call."""

    status: int
    """As in HTTP."""
    content: bytes
    """JSON: the value, or a :class:`Problem`."""


class ControlService:
    """The control calls of one controller. Its methods run in one event loop."""

    def __init__(self, controller: Controller) -> None:
        """Needs no running loop yet."""
        self._controller = controller
        self._clients = ClientDesk(controller)
        self._trainers = TrainerDesk(controller)
        self._leases: asyncio.Task[None] | None = None
        calls: dict[str, Callable[..., Awaitable[Any]]] = {"status": self.status}
        calls |= {name: getattr(self._clients, name) for name in _CLIENT_CALLS}
        calls |= {name: getattr(self._trainers, name) for name in _TRAINER_CALLS}
        calls |= {name: getattr(self._trainers.updates, name) for name in _UPDATE_CALLS}
        self._calls = {name: validate_call(call) for name, call in calls.items()}

    def start(self) -> None:
        """Look after leases from now on."""
        self._leases = asyncio.create_task(self._trainers.watch_leases())

    async def close(self) -> None:
        """Let waiting calls return."""
        self._clients.close()
        self._trainers.close()
        if self._leases is not None:
            self._leases.cancel()
            with suppress(asyncio.CancelledError):
                await self._leases

    async def status(self) -> RunStatus:
        """How the run stands."""
        return RunStatus(__version__, self._controller.status(), self._trainers.status(), self._trainers.notice)

    async def answer(self, name: str, content: bytes) -> Answer:
        """Make the call ``name`` with a JSON object of arguments."""
        if name not in self._calls:
            return _problem(UNKNOWN_CALL, f"no control call '{name}'; there are {', '.join(sorted(self._calls))}")
        try:
            arguments = orjson.loads(content or b"{}")
            value = await self._calls[name](**arguments)
        except (ValidationError, orjson.JSONDecodeError, TypeError) as error:
            return _problem(WRONG_CALL, f"{name}: {error}")
        except GoneError as error:
            return _problem(GONE, str(error))
        except RolloutError as error:
            return Answer(REFUSED, encode(problem_of(error)))
        except Exception as error:
            _LOG.exception("control call %s", name)
            return _problem(BROKEN, f"{name} broke in the controller: {type(error).__name__}: {error}")
        return Answer(OK, encode(value))


def _problem(status: int, message: str) -> Answer:
    return Answer(status, encode(Problem("ControlError", message)))
