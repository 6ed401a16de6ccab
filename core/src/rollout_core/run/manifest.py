"""``manifest.json``: what a run was asked to do, with what, and how far it came."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rollout_core.config import RolloutConfig
from rollout_core.errors import OutputError
from rollout_core.plugins import Backend
from rollout_core.run.disk import replace_file

__all__ = ["Manifest", "now", "public_config", "versions_of", "write_json"]

FILE = "manifest.json"
_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an output folder."""

    identity: Mapping[str, Any]
    """What makes two runs the same, so that one may finish the other."""
    facts: Mapping[str, Any]
    """Config, versions, prompts: for the record."""
    status: str = "running"
    """``running`` (or killed), ``complete``, or ``interrupted``: samples failed or are missing."""
    counts: Mapping[str, int] | None = None
    started_at: str = ""
    """ISO 8601, UTC; of the first session."""
    finished_at: str | None = None
    sessions: int = 1
    """How often the run was started or resumed."""

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a folder; None when there is none.

        Raises:
            OutputError: it cannot be read.
        """
        file = folder / FILE
        if not file.exists():
            return None
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise OutputError(f"{file} cannot be read: {error}; choose another output folder") from error

    def write(self, folder: Path) -> None:
        """Put it in place of the one before. Raises OutputError."""
        write_json(folder / FILE, {name: getattr(self, name) for name in self.__slots__})

    def differences(self, identity: Mapping[str, Any]) -> list[str]:
        """What another run does otherwise, in words."""
        names = sorted({*self.identity, *identity})
        pairs = ((name, self.identity.get(name), identity.get(name)) for name in names)
        return [f"{name}: {there!r} there, {here!r} here" for name, there, here in pairs if there != here]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all. Raises OutputError."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def now() -> str:
    """The time, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def public_config(config: RolloutConfig) -> dict[str, Any]:
    """The config with its secrets masked, those in the servers' environment too."""
    content = config.model_dump(mode="json")
    content["env"] = {name: "**********" if _SECRET.search(name) else value for name, value in config.env.items()}
    return content


def versions_of(backend: Backend) -> dict[str, str | None]:
    """Versions of Python, core, the backend's distribution and its engine (None where it is not installed here)."""
    found: dict[str, str | None] = {"python": platform.python_version(), "rollout-core": _version("rollout-core")}
    if backend.distribution:
        found[backend.distribution] = backend.version
    if backend.info.engine_package:
        found[backend.info.engine_package] = _version(backend.info.engine_package)
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
