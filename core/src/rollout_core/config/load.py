"""Builds the config of a run from TOML files, ``--set`` options and dedicated flags, later ones over earlier ones."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rollout_core.config.explain import Problem, find_problems
from rollout_core.config.model import RolloutConfig
from rollout_core.errors import ConfigError

__all__ = ["load_config", "parse_set"]

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_POSITION = re.compile(r"\s*\(at (line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")

Key = tuple[str, ...]


def load_config(
    files: Sequence[Path] = (),
    sets: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> RolloutConfig:
    """Read the files in order, lay the ``--set`` options over them, then the overrides that are not None.

    Tables are merged key by key; every other value replaces the earlier one.

    Args:
        files: TOML files.
        sets: ``a.b=value``; see :func:`parse_set`.
        overrides: by field name, such as ``{"gpus": 8}``, or by dotted name.
        defaults: likewise, below everything else.

    Raises:
        ConfigError: one line per problem: the file or option, the field, the value found, what was expected.
    """
    layers = _Layers()
    layers.put_all(defaults or {})
    for path in files:
        layers.add_file(path)
    for text in sets:
        layers.add_set(text)
    layers.put_all(overrides or {})
    return layers.build()


def parse_set(text: str) -> tuple[Key, Any]:
    """The key and the value of ``a.b=value``: a TOML value, or plain text where it is none.

    ``gpus=8`` is a number, ``port_range=[20000,21000]`` a list, ``model_path=Qwen/Qwen3-0.6B`` text.

    Raises:
        ConfigError: there is no ``=``, or the key is not a dotted name.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _KEY.fullmatch(key):
        # The value may be a secret, so the text is not repeated as a whole.
        shown = key if equals else text
        raise ConfigError(f"--set {shown}: expected key=value, such as gpus=8 or backend_options.threads=2")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    # A line break in the value could smuggle in more keys.
    return tuple(key.split(".")), parsed["value"] if parsed.keys() == {"value"} else value


class _Layers:
    """Merged settings, each with its origin, and the problems met so far."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._origins: dict[Key, str] = {}
        self._problems: list[str] = []

    def add_file(self, path: Path) -> None:
        """Lay a TOML file over what is there."""
        try:
            text = path.read_text(encoding="utf-8")
            settings = tomllib.loads(text)
        except OSError as error:
            self._problems.append(f"{path}: cannot be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            self._problems.append(f"{path}: is not UTF-8 text (byte {error.start}); a config file is TOML")
        except tomllib.TOMLDecodeError as error:
            self._problems.append(_syntax_problem(path, error))
        else:
            for key, value in _leaves(settings):
                self.put(key, value, f"{path}{_line_of(key, text)}")

    def add_set(self, text: str) -> None:
        """Lay one ``--set`` option over what is there."""
        try:
            key, value = parse_set(text)
        except ConfigError as error:
            self._problems.append(str(error))
        else:
            self.put(key, value, f"--set {'.'.join(key)}")

    def put_all(self, values: Mapping[str, Any]) -> None:
        """Lay the values that are not None over what is there."""
        for name, value in values.items():
            if value is not None:
                self.put(tuple(name.split(".")), value, "command line")

    def put(self, key: Key, value: Any, origin: str) -> None:
        """Set one value; a table on the way is made, a plain value on the way is a problem."""
        table = self._settings
        for depth, part in enumerate(key[:-1], start=1):
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                self._problems.append(f"{origin}: {'.'.join(key[:depth])} is not a table, so it has no {key[depth]}")
                return
            table = inner
        table[key[-1]] = value
        self._origins[key] = origin

    def build(self) -> RolloutConfig:
        """The config, or an error with every problem; unreadable sources are told before wrong settings."""
        if self._problems:
            raise ConfigError("\n".join(self._problems))
        try:
            return RolloutConfig.model_validate(self._settings)
        except ValidationError as error:
            problems = find_problems(error, RolloutConfig)
        raise ConfigError("\n".join(f"{self._origin(problem)}: {problem.text}" for problem in problems))

    def _origin(self, problem: Problem) -> str:
        path = tuple(part for part in problem.path if isinstance(part, str))
        for length in range(len(path), 0, -1):
            for key, origin in self._origins.items():
                if key[:length] == path[:length]:
                    return origin
        # Fields that contradict each other: the places of those that the sentence names.
        named = [origin for key, origin in self._origins.items() if re.search(rf"\b{key[0]}\b", problem.text)]
        return ", ".join(dict.fromkeys(named)) if named and not path else "config"


def _leaves(table: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _line_of(key: Key, text: str) -> str:
    """``:<line>`` of the first line that sets the key's last part; nothing when it cannot be told."""
    pattern = re.compile(rf"""\s*([\w."'-]+\.)?["']?{re.escape(key[-1])}["']?\s*=""")
    numbers = (number for number, line in enumerate(text.splitlines(), start=1) if pattern.match(line))
    return f":{number}" if (number := next(numbers, None)) else ""


def _syntax_problem(path: Path, error: tomllib.TOMLDecodeError) -> str:
    text = str(error)
    at = _POSITION.search(text)
    place = f":{at['line']}:{at['column']}" if at and at["line"] else ""
    what = _POSITION.sub("", text)
    return f"{path}{place}: is not valid TOML: {what[:1].lower()}{what[1:]}"
