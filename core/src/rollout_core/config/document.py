"""The config as TOML: a commented template of every field, and the values that a run would use."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from tomlkit.container import Container
from tomlkit.items import Table

from rollout_core.config.fields import FieldDoc, list_fields
from rollout_core.config.model import RolloutConfig
from rollout_core.config.secrets import masked

__all__ = ["resolved", "template"]

_WIDTH = 100
_EXAMPLES = {"text": '""', "path": '""', "true or false": "false", "table": "{}"}


def template(backend: str, options: type[BaseModel] | None) -> str:
    """A TOML file with every field, what it means and its default; unset ones are commented out.

    Args:
        backend: name written into the file.
        options: the backend's options model, if it is installed.
    """
    document = tomlkit.document()
    for line in ("Settings of a rollout run. Lines that start with # are unset or prose.", ""):
        document.add(tomlkit.comment(line) if line else tomlkit.nl())
    fields = list(list_fields(RolloutConfig))
    for field in fields:
        if field.section and field.name != "backend_options":
            document.add(tomlkit.comment(f"---- {field.section} ----"))
            document.add(tomlkit.nl())
        if not isinstance(field.default, dict):
            _describe(document, field, backend if field.name == "backend" else field.default)
    for field in fields:
        # What follows a table header belongs to the table, so tables come last.
        if isinstance(field.default, dict):
            document.add(field.name, _table(field, options if field.name == "backend_options" else None))
    return tomlkit.dumps(document).rstrip() + "\n"


def resolved(config: RolloutConfig) -> str:
    """The values of a config as TOML: derived ones filled in, secrets masked, unset ones as comments."""
    values = masked(config) | {
        "model_name": config.name,
        "tokenizer_path": config.tokenizer,
        "device": config.accelerator,
        "max_retries_per_worker": config.max_retries_per_worker or config.health_check_failure_threshold,
    }
    if config.context_length is not None:
        values["max_batch_size"] = config.batch_size_for(config.context_length)
    document = tomlkit.document()
    for name, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
        _put(document, name, value)
    return tomlkit.dumps(document)


def _put(table: Container | Table, name: str, value: Any) -> None:
    if value is None:
        table.add(tomlkit.comment(f"{name} is unset"))
    elif isinstance(value, Mapping):
        inner = tomlkit.table()
        for key, item in sorted(value.items(), key=lambda pair: isinstance(pair[1], dict)):
            _put(inner, key, item)
        table.add(name, inner)
    else:
        table.add(name, _toml(value))


def _table(field: FieldDoc, options: type[BaseModel] | None) -> Table:
    table = tomlkit.table()
    for line in _prose(field):
        table.add(tomlkit.comment(line))
    table.add(tomlkit.nl())
    for option in list_fields(options) if options else ():
        _describe(table, option, option.default)
    return table


def _describe(table: Container | Table, field: FieldDoc, value: Any) -> None:
    """Add one field with its meaning above it."""
    for line in _prose(field):
        table.add(tomlkit.comment(line))
    if field.required:
        table.add(field.name, tomlkit.item("").comment("required"))
    elif value is None:
        table.add(tomlkit.comment(f"{field.name} = {_example(field)}"))
    else:
        table.add(field.name, _toml(value))
    table.add(tomlkit.nl())


def _prose(field: FieldDoc) -> Iterator[str]:
    text = f"{field.meaning.replace('``', '')} ({field.accepts})"
    yield from textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _example(field: FieldDoc) -> str:
    if field.accepts.startswith("list"):
        return "[]"
    return _EXAMPLES.get(field.accepts.split(",")[0], "1")


def _toml(value: Any) -> Any:
    # As in JSON: paths and enums become text, tuples and sets lists.
    return tomlkit.item(to_jsonable_python(value, exclude_none=True))
