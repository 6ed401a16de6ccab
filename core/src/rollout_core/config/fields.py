"""The fields of a config model as documents need them: name, meaning, what may stand there, default."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from rollout_core.config.model import SECTIONS, RolloutConfig

__all__ = ["FieldDoc", "list_fields"]

_NAMES = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    SecretStr: "secret text",
    type(None): "unset",
    Any: "any value",
}


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One field, in words."""

    name: str
    section: str | None
    """Title of the part that begins with this field."""
    meaning: str
    """Its docstring, on one line."""
    accepts: str
    """Type and range, such as ``whole number, 1 or more``."""
    default: Any
    """The default value; None for fields that are unset by default."""
    required: bool


def list_fields(model: type[BaseModel]) -> Iterator[FieldDoc]:
    """The fields in their order; only the sections of :class:`RolloutConfig` have titles."""
    sections = SECTIONS if issubclass(model, RolloutConfig) else {}
    for name, field in model.model_fields.items():
        yield FieldDoc(
            name=name,
            section=sections.get(name),
            meaning=" ".join((field.description or "").split()),
            accepts=", ".join([_words(field.annotation), *_ranges(field)]),
            default=None if field.is_required() else field.get_default(call_default_factory=True),
            required=field.is_required(),
        )


def _words(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in inside)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in inside if kind is not type(None)]
        tables = [kind for kind in kinds if _is_table(kind)]
        return "table" if tables else " or ".join(map(_words, kinds))
    if origin in (tuple, list, set, frozenset):
        kinds = [kind for kind in inside if kind is not Ellipsis]
        if origin is tuple and Ellipsis not in inside:
            return f"list of {len(kinds)}: {', '.join(map(_words, kinds))}"
        return f"list of {_words(kinds[0])}" if kinds else "list"
    if _is_table(annotation):
        return f"table of {_words(inside[1])}" if len(inside) == 2 else "table"
    if hasattr(annotation, "__metadata__"):
        return _words(inside[0])
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _is_table(annotation: Any) -> bool:
    inner = get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
    return get_origin(inner) is dict or inner is dict or (isinstance(inner, type) and issubclass(inner, BaseModel))


def _ranges(field: FieldInfo) -> Iterator[str]:
    metadata = list(field.metadata)
    for kind in get_args(field.annotation):
        metadata += getattr(kind, "__metadata__", ())
    for limit in metadata:
        match limit:
            case annotated_types.Ge(ge):
                yield f"{ge:g} or more"
            case annotated_types.Gt(gt):
                yield f"above {gt:g}"
            case annotated_types.Le(le):
                yield f"at most {le:g}"
            case annotated_types.Lt(lt):
                yield "below 2^63" if lt == 2**63 else f"below {lt}"
            case annotated_types.MinLen(1):
                yield "not empty"
