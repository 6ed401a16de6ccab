"""Reads prompts from JSONL, JSON, CSV or Parquet, one after the other, whatever the size of the file.

A line that is no prompt comes back as a :class:`BrokenPrompt` with its place; the lines after it are read all the
same. Blank lines of JSONL and CSV are passed over. In a CSV file every prompt is a text.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from rollout_core.errors import InputError
from rollout_core.run.prompt import BrokenPrompt, Prompt, prompt_from_item

__all__ = ["PromptFile", "PromptScan", "spool_stdin"]

_Numbered = Iterator[tuple[int, Any]]
_CELL_LIMIT = 2**31 - 1
_SHOWN = 5


class _Broken(Exception):
    """Stands for a line that could not be read; travels as a value, with its reason."""


@dataclass(frozen=True, slots=True)
class PromptScan:
    """What one pass over a prompt file found."""

    fingerprint: str
    """SHA-256 (hex) of the file's bytes."""
    prompts: int
    """Lines that are prompts, or should be: broken ones are counted."""
    broken: tuple[str, ...]
    """The first few errors, with their places."""
    broken_count: int
    chats: int
    """Prompts that are chat messages."""
    texts: int = 0
    """Prompts that are text."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file of prompts; the suffix says how it is read."""

    path: Path
    prompt_field: str = "prompt"
    """The field or column that holds the prompt."""
    limit: int | None = None
    """Read this many prompts and no more."""
    name: str = ""
    """As errors call it; unset: the file's own name."""

    def __iter__(self) -> Iterator[Prompt | BrokenPrompt]:
        """All prompts in order, read lazily.

        Raises:
            InputError: the file as a whole cannot be read.
        """
        unit, read = _reader_of(self.path)
        name = self.name or self.path.name
        try:
            for index, (number, item) in enumerate(itertools.islice(read(self.path), self.limit)):
                place = f"{name}, {unit} {number}"
                if isinstance(item, _Broken):
                    yield BrokenPrompt(index, place, str(item))
                else:
                    yield prompt_from_item(index, place, item, self.prompt_field)
        except FileNotFoundError as error:
            raise InputError(f"prompt file {self.path} does not exist") from error
        except OSError as error:
            raise InputError(f"prompt file {self.path} cannot be read: {error.strerror or error}") from error

    def scan(self) -> PromptScan:
        """Read the file once, to know what is in it before anything starts.

        Raises:
            InputError: the file cannot be read, holds no prompt, or every prompt in it is broken.
        """
        count = broken_count = chats = texts = 0
        broken: list[str] = []
        for prompt in self:
            count += 1
            if isinstance(prompt, BrokenPrompt):
                broken_count += 1
                broken += [prompt.error] if len(broken) < _SHOWN else []
            elif isinstance(prompt.value, list) and isinstance(prompt.value[0], dict):
                chats += 1
            else:
                texts += isinstance(prompt.value, str)
        if not count:
            raise InputError(f"{self.name or self.path} holds no prompt; expected one per line")
        if broken_count == count:
            raise InputError(f"none of the {count} lines is a prompt; the first: {broken[0]}")
        return PromptScan(_fingerprint(self.path), count, tuple(broken), broken_count, chats, texts)


def spool_stdin(stdin: BinaryIO, path: Path) -> None:
    """Copy the prompts on standard input (JSONL) to a file, so that they can be read twice."""
    with path.open("wb") as file:
        shutil.copyfileobj(stdin, file)


def _reader_of(path: Path) -> tuple[str, Callable[[Path], _Numbered]]:
    """What one item is called, and the function that reads them."""
    readers: dict[str, tuple[str, Callable[[Path], _Numbered]]] = {
        ".jsonl": ("line", _read_jsonl),
        ".ndjson": ("line", _read_jsonl),
        ".json": ("item", _read_json),
        ".csv": ("line", _read_csv),
        ".parquet": ("row", _read_parquet),
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"prompt file {path}: unknown suffix '{path.suffix}'; expected {', '.join(readers)}")
    return readers[path.suffix.lower()]


def _read_jsonl(path: Path) -> _Numbered:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not line.strip():
                continue
            try:
                yield number, orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield number, _Broken(f"not JSON: {error.msg} (column {error.colno})")


def _read_json(path: Path) -> _Numbered:
    try:
        items = orjson.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InputError(
            f"prompt file {path} is not JSON: {error.msg} (line {error.lineno}); "
            f"one object per line is JSONL: rename it to .jsonl"
        ) from error
    if not isinstance(items, list):
        raise InputError(f"prompt file {path}: expected a list of prompts, got {type(items).__name__}")
    yield from enumerate(items, start=1)


def _read_csv(path: Path) -> _Numbered:
    csv.field_size_limit(_CELL_LIMIT)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(file, strict=True)
        header: list[str] | None = None
        while True:
            number = rows.line_num + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield number, _Broken(f"not CSV: {error}")
                continue
            if header is None:
                header = row
            elif row:
                yield number, _csv_item(header, row)


def _csv_item(header: list[str], row: list[str]) -> dict[str, str] | _Broken:
    if len(row) != len(header):
        return _Broken(f"{len(row)} columns, and the header has {len(header)}")
    if any("\udc80" <= character <= "\udcff" for cell in row for character in cell):
        return _Broken("not UTF-8")
    return dict(zip(header, row, strict=True))


def _read_parquet(path: Path) -> _Numbered:
    # Imported here: pyarrow takes a fifth of a second, and only these files need it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=1024)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except pa.ArrowInvalid as error:
        raise InputError(f"prompt file {path} is not Parquet: {error}") from error


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
