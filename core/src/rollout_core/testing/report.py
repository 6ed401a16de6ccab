"""Runs the checks of a backend outside pytest and tells what came of each; for ``rollout plugins check``."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pytest
from importlib_metadata import PackageNotFoundError, version

from rollout_core.errors import RolloutError
from rollout_core.testing.hooks import BackendConformance
from rollout_core.testing.live import LiveBackendConformance
from rollout_core.testing.suite import NOT_OFFERED, NOT_RUN, Check, CheckFailed, Suite

__all__ = ["Outcome", "Report", "Row", "check_backend", "run_suite"]


class Outcome(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = NOT_OFFERED
    """The backend does not declare what the check is about."""
    NOT_RUN = NOT_RUN
    """Something that the check needs is not here; the detail says what."""


@dataclass(frozen=True, slots=True)
class Row:
    """One check with its outcome."""

    check: str
    title: str
    suite: str
    """``hooks`` (no engine needed) or ``live``."""
    outcome: Outcome
    detail: str = ""
    """Why it failed, does not apply or was not run; of an overridden check, why it was overridden."""
    capabilities: tuple[str, ...] = ()
    """What the check shows."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all checks of one backend."""

    backend: str
    version: str
    """Of the plugin's distribution."""
    engine: str
    """Distribution name and version of the engine, where it is installed."""
    platform: str
    model: str
    capabilities: tuple[str, ...]
    """What the backend declares."""
    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The checks that failed."""
        return tuple(row for row in self.rows if row.outcome is Outcome.FAILED)

    @property
    def counts(self) -> dict[str, int]:
        """How many checks had each outcome."""
        found = Counter(row.outcome for row in self.rows)
        return {outcome.value: found[outcome] for outcome in Outcome}

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Report:
        """The report that :meth:`to_dict` gave."""
        rows = tuple(
            Row(**{**row, "outcome": Outcome(row["outcome"]), "capabilities": tuple(row["capabilities"])})
            for row in values["rows"]
        )
        return cls(**{**values, "rows": rows, "capabilities": tuple(values["capabilities"])})


def check_backend(
    name: str,
    live: bool = False,
    model: str | None = None,
    settings: dict[str, Any] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> Report:
    """Check an installed backend.

    Args:
        name: of the backend.
        live: start its engine and check that too; needs ``model``.
        model: folder of a checkpoint or hub id.
        settings: of the config, for the live checks.
        on_row: hears of each check as it ends.

    Raises:
        RolloutError: the backend cannot be loaded, or its engine's ``model`` is not given.
    """
    if live and model is None:
        raise RolloutError("live checks serve a model: give --model with a checkpoint folder")
    hooks = type("InstalledBackend", (BackendConformance,), {"backend": name})
    rows = run_suite(hooks, on_row=on_row)
    info = hooks().face.info
    if live:
        config = {**LiveBackendConformance.config, **(settings or {})}
        attributes = {"backend": name, "model": model, "config": config}
        rows += run_suite(type("InstalledLive", (LiveBackendConformance,), attributes), on_row=on_row)
    else:
        rows += [_row(check, LiveBackendConformance, Outcome.NOT_RUN, "run with --live") for check in _live_checks()]
    return Report(
        backend=name,
        version=hooks().face.version,
        engine=_engine(info.engine_package),
        platform=f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        model="" if model is None else model.rstrip("/").split("/")[-1],
        capabilities=tuple(sorted(capability.value for capability in info.capabilities)),
        rows=tuple(rows),
    )


def run_suite(
    suite: type[Suite], only: frozenset[str] | None = None, on_row: Callable[[Row], None] | None = None
) -> list[Row]:
    """Run the checks of a suite, or ``only`` those of the given ids, and end its engine."""
    rows = []
    try:
        suite().load()
        for check in suite.checks():
            if only is None or check.id in only:
                rows.append(_run(suite, check))
                if on_row is not None:
                    on_row(rows[-1])
    finally:
        if issubclass(suite, LiveBackendConformance):
            suite.close_engine()
    return rows


def _run(suite: type[Suite], check: Check) -> Row:
    began = time.perf_counter()
    try:
        instance = suite()
        if isinstance(instance, LiveBackendConformance):
            instance.ensure_alive()
        instance.run_check(check)
        outcome, detail = Outcome.PASSED, ""
    except pytest.skip.Exception as skipped:
        kind, _, reason = str(skipped).partition(": ")
        outcome, detail = (Outcome(kind), reason) if kind in (NOT_OFFERED, NOT_RUN) else (Outcome.NOT_RUN, str(skipped))
    except CheckFailed as failed:
        outcome, detail = Outcome.FAILED, str(failed)
    except Exception as error:
        outcome, detail = Outcome.FAILED, f"{type(error).__name__}: {error}"
    return _row(check, suite, outcome, detail, round(time.perf_counter() - began, 3))


def _row(check: Check, suite: type[Suite], outcome: Outcome, detail: str, seconds: float = 0.0) -> Row:
    override = f"overridden: {check.override}" if check.override else ""
    return Row(
        check=check.id,
        title=check.title,
        suite="live" if issubclass(suite, LiveBackendConformance) else "hooks",
        outcome=outcome,
        detail="; ".join(text for text in (detail, override) if text),
        capabilities=tuple(capability.value for capability in check.capabilities),
        seconds=seconds,
    )


def _live_checks() -> list[Check]:
    return LiveBackendConformance.checks()


def _engine(package: str | None) -> str:
    if package is None:
        return "its own"
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package}, not installed here"
