"""Where a control server is: a file with its URL and token, which only its user can read."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from rollout_core.errors import ControlError, OutputError

__all__ = ["FILE_NAME", "Address", "Connection", "write_connection"]

FILE_NAME = "control.json"


@dataclass(frozen=True, slots=True)
class Connection:
    """A running control server."""

    url: str
    """Such as ``http://127.0.0.1:40001``."""
    token: str = field(repr=False)
    """Whoever has it controls the engines."""
    pid: int | None = None
    """Of the server's process."""


_CONNECTION = TypeAdapter(Connection)


class Address:
    """A connection, or a file or folder that has one; a controller that was started anew writes its file anew."""

    def __init__(self, where: str | Path | Connection) -> None:
        """``where``: a connection file, a folder with a ``control.json``, or the connection itself."""
        self._where = where

    def __str__(self) -> str:
        return self._where.url if isinstance(self._where, Connection) else str(self._where)

    def read(self) -> Connection:
        """The connection as it is now.

        Raises:
            ControlError: there is no such file, or it is none of ours.
        """
        if isinstance(self._where, Connection):
            return self._where
        file = Path(self._where)
        file = file / FILE_NAME if file.is_dir() else file
        try:
            return _CONNECTION.validate_json(file.read_bytes())
        except FileNotFoundError as error:
            raise ControlError(
                f"no controller at {self}: {file} does not exist; it is there while the controller runs"
            ) from error
        except OSError as error:
            raise ControlError(f"{file} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            raise ControlError(f"{file} is no connection file of a controller") from error


def write_connection(file: Path, connection: Connection) -> None:
    """Write a connection file whole, readable by this user only.

    Raises:
        OutputError: it cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as out:
            out.write(orjson.dumps(asdict(connection)))
        part.replace(file)
    except OSError as error:
        raise OutputError(f"the connection file {file} cannot be written: {error.strerror}") from error
