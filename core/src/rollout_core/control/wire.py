"""Values and errors as JSON and back; nothing is pickled."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson
from pydantic import SecretStr, TypeAdapter
from pydantic_core import to_jsonable_python

from rollout_core import errors
from rollout_core.config import RolloutConfig
from rollout_core.errors import ControlError, EngineError, RolloutError

__all__ = [
    "VERSION_HEADER",
    "GoneError",
    "Problem",
    "decode",
    "encode",
    "problem_of",
    "refuse_other_version",
    "reveal",
    "revived",
]

VERSION_HEADER = "x-rollout-core"
"""Carries the caller's version of rollout-core."""

T = TypeVar("T")


class GoneError(Exception):
    """The client or trainer is not known (any more), and must come in anew."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error on its way to the caller."""

    kind: str
    """Name of a class of :mod:`rollout_core.errors`."""
    message: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Attributes of the error."""


def encode(value: Any) -> bytes:
    """A value of dataclasses, enums, mappings and sequences as JSON."""
    return orjson.dumps(value, default=to_jsonable_python)


def decode(kind: type[T], content: bytes) -> T:
    """JSON as a value of the given type.

    Raises:
        pydantic.ValidationError: it is none.
    """
    value: T = _adapter(cast(Hashable, kind)).validate_json(content)
    return value


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def reveal(config: RolloutConfig) -> dict[str, Any]:
    """The config as JSON values with its secrets, to be built anew in another process of the same user."""
    revealed: dict[str, Any] = orjson.loads(orjson.dumps(config.model_dump(), default=_revealed))
    return revealed


def _revealed(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else to_jsonable_python(value)


def problem_of(error: RolloutError) -> Problem:
    """An error as its nearest public class; private subclasses stay here."""
    public = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in errors.__all__)
    facts = {name: fact for name, fact in vars(error).items() if isinstance(fact, str | int | float)}
    return Problem(next(public), str(error), facts)


def revived(problem: Problem) -> RolloutError:
    """The error that :func:`problem_of` described."""
    if problem.kind not in errors.__all__:
        return EngineError(problem.message)
    kind = getattr(errors, problem.kind)
    # Constructors differ; the message is all that it is made of.
    error: RolloutError = kind.__new__(kind, problem.message)
    vars(error).update(problem.facts)
    return error


def refuse_other_version(theirs: str | None, mine: str) -> None:
    """Processes that talk to each other have the same minor version of rollout-core.

    Raises:
        ControlError: naming both.
    """
    if theirs is None or _series(theirs) != _series(mine):
        raise ControlError(
            f"this process has rollout-core {theirs or 'of an unknown version'}, and the controller {mine}; "
            f"install the same minor version in both"
        )


def _series(version: str) -> list[str]:
    return version.split(".")[:2]
