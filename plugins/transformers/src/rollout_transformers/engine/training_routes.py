"""The HTTP routes of the training step. Bodies are validated here; the work is done in the engine's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rollout_core.types import WeightGroup
from rollout_core.weights import GroupReceiver
from rollout_transformers.engine.engine import Engine
from rollout_transformers.engine.request import BadRequest, explain
from rollout_transformers.engine.weights import IncomingTensor

__all__ = ["TrainingRoutes"]

Route = Callable[[Any], Awaitable[dict[str, Any]]]


class Body(BaseModel):
    """What all bodies have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PauseBody(Body):
    """`/pause`."""

    mode: Literal["abort", "wait", "keep"] = "abort"


class EmptyBody(Body):
    """`/continue`, `/weights/cancel`."""


class OffloadBody(Body):
    """`/offload`."""

    parts: list[Literal["weights", "kv_cache"]] = Field(min_length=1)
    discard: bool = False
    """Drop the weights instead of setting them aside."""


class OnloadBody(Body):
    """`/onload`."""

    parts: list[Literal["weights", "kv_cache"]] = Field(min_length=1)


class TensorBody(Body):
    """A tensor without its data."""

    name: str
    dtype: str
    shape: list[int]
    offset: int = Field(default=0, ge=0)

    def incoming(self) -> IncomingTensor:
        """The same for the writer."""
        return IncomingTensor(self.name, self.dtype, tuple(self.shape), self.offset)


class BeginBody(Body):
    """`/weights/begin`."""

    version: int
    tensors: list[TensorBody] = Field(min_length=1)


class JoinBody(Body):
    """`/weights/join`."""

    backend: str
    host: str
    port: int
    world_size: int
    rank: int
    timeout_s: float


class BucketBody(Body):
    """`/weights/bucket`."""

    tensors: list[TensorBody] = Field(min_length=1)
    shared_memory: str | None = None
    """File with the bytes; without it they come through the group."""
    size: int = Field(default=0, ge=0)
    """Bytes of the group's broadcast."""


class FolderBody(Body):
    """`/weights/folder`."""

    version: int
    folder: Path
    refuse_non_finite: bool = False


class FinishBody(Body):
    """`/weights/finish`."""

    keep_cache: bool = False


B = TypeVar("B", bound=Body)


class TrainingRoutes:
    """One method per route; each answers with the engine's state after it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._step = engine.step

    def table(self) -> dict[str, Route]:
        """Path to handler; all are POST."""
        return {
            "/pause": self._pause,
            "/continue": self._continue,
            "/offload": self._offload,
            "/onload": self._onload,
            "/weights/begin": self._begin,
            "/weights/join": self._join,
            "/weights/bucket": self._bucket,
            "/weights/folder": self._folder,
            "/weights/finish": self._finish,
            "/weights/cancel": self._cancel,
        }

    async def _pause(self, data: Any) -> dict[str, Any]:
        return await asyncio.wrap_future(self._engine.pause(_parsed(PauseBody, data).mode))

    async def _continue(self, data: Any) -> dict[str, Any]:
        _parsed(EmptyBody, data)
        return await asyncio.wrap_future(self._engine.resume())

    async def _offload(self, data: Any) -> dict[str, Any]:
        body = _parsed(OffloadBody, data)
        return await self._run(self._step.offload, body.parts, body.discard)

    async def _onload(self, data: Any) -> dict[str, Any]:
        return await self._run(self._step.onload, _parsed(OnloadBody, data).parts)

    async def _begin(self, data: Any) -> dict[str, Any]:
        body = _parsed(BeginBody, data)
        return await self._run(self._step.begin_update, body.version, _incoming(body.tensors))

    async def _join(self, data: Any) -> dict[str, Any]:
        body = _parsed(JoinBody, data)
        group = WeightGroup(body.backend, body.host, body.port, body.world_size, body.rank, body.timeout_s)
        return await self._run(self._step.join_group, lambda: GroupReceiver(group, body.rank))

    async def _bucket(self, data: Any) -> dict[str, Any]:
        body = _parsed(BucketBody, data)
        return await self._run(self._step.write_bucket, _incoming(body.tensors), body.shared_memory, body.size)

    async def _folder(self, data: Any) -> dict[str, Any]:
        body = _parsed(FolderBody, data)
        return await self._run(self._step.load_folder, body.version, body.folder, body.refuse_non_finite)

    async def _finish(self, data: Any) -> dict[str, Any]:
        return await self._run(self._step.finish_update, _parsed(FinishBody, data).keep_cache)

    async def _cancel(self, data: Any) -> dict[str, Any]:
        _parsed(EmptyBody, data)
        return await self._run(self._step.cancel_update)

    async def _run(self, function: Callable[..., None], *arguments: Any) -> dict[str, Any]:
        return await asyncio.wrap_future(self._engine.command(function, *arguments))


def _incoming(tensors: list[TensorBody]) -> list[IncomingTensor]:
    return [tensor.incoming() for tensor in tensors]


def _parsed(model: type[B], data: Any) -> B:
    try:
        return model.model_validate({} if data is None else data)
    except ValidationError as err:
        raise BadRequest(explain(err)) from None
