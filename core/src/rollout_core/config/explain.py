"""Says what is wrong with a config in plain sentences, one per problem, instead of pydantic's own words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError

__all__ = ["Problem", "explain", "find_problems", "nearest"]

Details = Mapping[str, Any]

_EXPECTED: dict[str, Callable[[Details], str]] = {
    "int": lambda ctx: "a whole number",
    "float": lambda ctx: "a number",
    "bool": lambda ctx: "true or false",
    "string": lambda ctx: "text in quotes",
    "path": lambda ctx: "a path in quotes",
    "tuple": lambda ctx: "a list",
    "list": lambda ctx: "a list",
    "dict": lambda ctx: "a table",
    "model": lambda ctx: "a table",
    "finite": lambda ctx: "a finite number",
    "literal_error": lambda ctx: f"one of {ctx['expected']}",
    "greater_than": lambda ctx: f"a number above {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:g} or more",
    "less_than": lambda ctx: f"a number below {_short(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"{ctx['le']:g} or less",
    "string_too_short": lambda ctx: f"at least {_counted(ctx['min_length'], 'character')}",
    "string_too_long": lambda ctx: f"at most {_counted(ctx['max_length'], 'character')}",
    "too_short": lambda ctx: f"at least {_counted(ctx['min_length'], 'item')}",
    "too_long": lambda ctx: f"at most {_counted(ctx['max_length'], 'item')}",
    "string_pattern_mismatch": lambda ctx: f"text that matches {ctx['pattern']}",
}
"""What was expected, by pydantic's error type or by the part of it before the first underscore."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    path: tuple[str | int, ...]
    """Keys from the top of the config; empty where several fields contradict each other."""
    text: str
    """A sentence without its place: the field, the value found, what was expected."""


def explain(error: ValidationError, where: str, model: type[BaseModel]) -> str:
    """One line per problem, each starting with ``where``, such as ``backend_options of 'vllm'``."""
    return "\n".join(f"{where}: {problem.text}" for problem in find_problems(error, model))


def find_problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """The problems in a validation error of ``model``, in the order of its fields; secret values are not shown."""
    return [
        Problem(details["loc"], _sentence(details["type"], details["loc"], details, model))
        for details in error.errors(include_url=False)
    ]


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean <the nearest known word>?``, or nothing when none is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _sentence(kind: str, path: tuple[str | int, ...], details: Any, model: type[BaseModel]) -> str:
    field = _dotted(path)
    if kind == "extra_forbidden":
        return f"{field} is not a known setting{nearest(str(path[-1]), _model_at(model, path[:-1]).model_fields)}"
    if kind == "missing":
        return f"{field} is missing; it has no default"
    if kind in ("value_error", "assertion_error"):
        text = str(details["ctx"]["error"])
        return text if not path or text.startswith(str(path[0])) else f"{field}: {text}"
    found = "hidden" if _is_secret(model, path) else _short(details["input"])
    expected = _EXPECTED.get(kind) or _EXPECTED.get(kind.split("_")[0])
    if expected is None:
        return f"{field} is {found}: {details['msg'][:1].lower()}{details['msg'][1:]}"
    return f"{field} is {found}; expected {expected(details.get('ctx', {}))}{_nearest_choice(kind, details)}"


def _nearest_choice(kind: str, details: Any) -> str:
    if kind != "literal_error" or not isinstance(details["input"], str):
        return ""
    choices = details["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
    return nearest(details["input"], choices)


def _dotted(path: tuple[str | int, ...]) -> str:
    """``a.b[0]``"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the config"


def _short(value: Any) -> str:
    """A value as it would stand in TOML, cut to one short line."""
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel]:
    """The model of the table at ``path``; the last one known where the path leaves the models."""
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None:
            continue
        inner = [kind for kind in _parts(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        model = inner[0] if inner else model
    return model


def _is_secret(model: type[BaseModel], path: tuple[str | int, ...]) -> bool:
    names = [part for part in path if isinstance(part, str)]
    if not names:
        return True
    field = _model_at(model, path[: path.index(names[-1])]).model_fields.get(names[-1])
    return field is not None and any(kind in (SecretStr, SecretBytes) for kind in _parts(field.annotation))


def _parts(annotation: Any) -> list[Any]:
    """An annotation and everything inside its brackets."""
    return [annotation, *(part for inner in get_args(annotation) for part in _parts(inner))]
