"""One prompt of a prompt file, or the reason why a line of it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollout_core.errors import InputError

__all__ = ["BrokenPrompt", "Prompt", "check_prompt", "prompt_from_item"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that can be rendered."""

    index: int
    """Counts the lines that are not blank, from 0, the broken ones too: it names the prompt's samples."""
    place: str
    """Where it stands, such as ``prompts.jsonl, line 3``."""
    value: Any
    """Text, chat messages or token ids."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of the line."""


@dataclass(frozen=True, slots=True)
class BrokenPrompt:
    """A line that is no prompt."""

    index: int
    place: str
    reason: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> str:
        """The reason with its place."""
        return f"{self.place}: {self.reason}"


def prompt_from_item(index: int, place: str, item: Any, prompt_field: str) -> Prompt | BrokenPrompt:
    """Read what stands on one line: an object with the prompt's field, or just a text."""
    if isinstance(item, str):
        item = {prompt_field: item}
    if not isinstance(item, dict):
        return BrokenPrompt(index, place, f"expected an object with the field '{prompt_field}', got {_kind(item)}")
    fields = {name: value for name, value in item.items() if name != prompt_field}
    try:
        if prompt_field not in item:
            raise InputError(
                f"no field '{prompt_field}'; the line has {', '.join(map(str, item)) or 'no fields'} "
                f"(choose one with --prompt-field)"
            )
        check_prompt(prompt_field, item[prompt_field])
    except InputError as error:
        return BrokenPrompt(index, place, str(error), fields)
    return Prompt(index, place, item[prompt_field], fields)


def check_prompt(name: str, value: Any) -> None:
    """Refuse what is neither a text, nor chat messages, nor token ids, or is empty.

    Raises:
        InputError: with what was expected and found.
    """
    if not isinstance(value, str | list):
        raise InputError(f"'{name}' is {_kind(value)}; expected a text, chat messages or token ids")
    if not value:
        raise InputError(f"'{name}' is empty; expected a text, chat messages or token ids")
    if isinstance(value, str):
        return
    if isinstance(value[0], dict):
        for position, message in enumerate(value):
            _check_message(f"{name}[{position}]", message)
    elif type(value[0]) is int:
        _check_ids(name, value)
    else:
        raise InputError(
            f"'{name}' is a list of {_kind(value[0])} items; expected chat messages "
            f'({{"role": ..., "content": ...}}) or token ids (integers)'
        )


def _check_message(where: str, message: Any) -> None:
    if not isinstance(message, dict):
        raise InputError(f"'{where}' is {_kind(message)}; expected a message with role and content")
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise InputError(f"'{where}' has no role; expected user, assistant, system or tool")
    content = message.get("content")
    # The call of a tool has no content of its own.
    if not isinstance(content, str | list) and not (content is None and message.get("tool_calls")):
        raise InputError(f"'{where}' has no content that is a text, got {_kind(content)}")


def _check_ids(name: str, ids: list[Any]) -> None:
    for position, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < 2**31:
            raise InputError(f"'{name}[{position}]' is {token!r}; token ids are integers of 0 or more, below 2**31")


def _kind(value: Any) -> str:
    """What a JSON value is called."""
    names = {dict: "object", list: "list", str: "text", bool: "boolean", int: "number", float: "number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
