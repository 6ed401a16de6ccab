"""What a check is, and the base of the suites that hold them.

A check is a method ``test_<id>`` that takes nothing but ``self``, so pytest runs it and so does
:mod:`rollout_core.testing.report`. It passes, fails, or says why it does not apply.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest

from rollout_core.config import RolloutConfig
from rollout_core.errors import ConfigError
from rollout_core.plugins import Backend, Plugins
from rollout_core.types import Capability

__all__ = [
    "NOT_OFFERED",
    "NOT_RUN",
    "Check",
    "CheckFailed",
    "Suite",
    "check",
    "expect",
    "not_offered",
    "not_run",
    "overrides_check",
]

PREFIX = "test_"
NOT_OFFERED = "not offered"
NOT_RUN = "not run"

Method = TypeVar("Method", bound=Callable[..., None])


class CheckFailed(AssertionError):
    """The backend breaks a rule; the message says what was asked and what was found."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule that a backend keeps."""

    id: str
    title: str
    """The rule in one line."""
    capabilities: tuple[Capability, ...] = ()
    """What it shows; it does not apply to a backend that lacks one of them."""
    override: str = ""
    """Why a suite has a check of its own in the place of this one."""


def expect(holds: bool, message: str) -> None:
    """Fail the check with the message unless the rule holds (``assert`` would be silent under ``python -O``)."""
    if not holds:
        raise CheckFailed(message)


def not_offered(what: str) -> NoReturn:
    """End the check: the backend does not offer what it is about."""
    pytest.skip(f"{NOT_OFFERED}: {what}")


def not_run(reason: str) -> NoReturn:
    """End the check: something that it needs is not here."""
    pytest.skip(f"{NOT_RUN}: {reason}")


def check(*capabilities: Capability) -> Callable[[Method], Method]:
    """Make a method of a suite a check of the given capabilities; its docstring is the rule."""

    def mark(method: Method) -> Method:
        @functools.wraps(method)
        def run(self: Suite) -> None:
            for capability in capabilities:
                if not self.face.offers(capability):
                    not_offered(capability.value)
            method(self)

        title = (method.__doc__ or "").strip().splitlines()[0].rstrip(".")
        run.__check__ = Check(method.__name__.removeprefix(PREFIX), title, capabilities)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return mark


def overrides_check(*, reason: str) -> Callable[[Method], Method]:
    """Mark a method that takes the place of an inherited check, and say why it has to."""
    if len(reason.split()) < 3:
        raise TypeError(f"overrides_check needs a reason in words, got {reason!r}")

    def mark(method: Method) -> Method:
        method.__override__ = reason  # type: ignore[attr-defined]
        return method

    return mark


class Suite:
    """Base of the suites: which backend is checked, with which settings.

    Subclass :class:`BackendConformance` or :class:`LiveBackendConformance`, not this.
    """

    backend: ClassVar[str] = ""
    """Name of the installed backend."""

    plugin: ClassVar[object | None] = None
    """A plugin module or object that is not installed, checked in the place of the installed one."""

    options: ClassVar[Mapping[str, Any]] = {}
    """The table ``backend_options``."""

    model: ClassVar[str | None] = None
    """Folder of a checkpoint, or a hub id."""

    config: ClassVar[Mapping[str, Any]] = {}
    """Other settings of the config."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, value in vars(cls).items():
            inherited = next((check for base in cls.__mro__[1:] if (check := _check_of(base, name))), None)
            if inherited is None:
                continue
            reason = getattr(value, "__override__", None)
            if reason is None:
                raise TypeError(
                    f"{cls.__name__}.{name} overrides a conformance check; decorate it with "
                    f'@overrides_check(reason="...") and say why, or give it another name'
                )
            value.__check__ = Check(inherited.id, inherited.title, inherited.capabilities, reason)

    @classmethod
    def checks(cls) -> list[Check]:
        """The checks of this suite, in the order in which they were written, base classes first."""
        names = {name: None for base in reversed(cls.__mro__) for name in vars(base) if _check_of(base, name)}
        return [getattr(cls, name).__check__ for name in names]

    def run_check(self, check: Check) -> None:
        """Run one check; it raises what the check raises."""
        getattr(self, PREFIX + check.id)()

    @functools.cached_property
    def face(self) -> Backend:
        """The backend as core calls it, with the settings of this suite."""
        return self.load().backend

    def load(self, **settings: Any) -> Plugins:
        """Load the backend with some settings changed."""
        values = {
            "backend": self.backend or self._plugin_name(),
            "model_path": self.model or str(_empty_model()),
            "backend_options": dict(self.options),
            **self.config,
            **settings,
        }
        try:
            config = RolloutConfig(**values)
        except ValueError as error:
            raise ConfigError(f"the settings of the suite {type(self).__name__} are wrong: {error}") from error
        return Plugins.load(config) if self.plugin is None else Plugins.from_objects(config, self.plugin)

    def _plugin_name(self) -> str:
        if self.plugin is None:
            raise ConfigError(f"{type(self).__name__} names no backend; set `backend` or `plugin`")
        name: str = self.plugin.describe_backend().name  # type: ignore[attr-defined]
        return name


def _check_of(base: type, name: str) -> Check | None:
    return getattr(vars(base).get(name), "__check__", None)


@functools.cache
def _empty_model() -> Path:
    """A checkpoint folder without weights: enough for hooks, which never load the model."""
    holder = tempfile.TemporaryDirectory(prefix="rollout-conformance-")
    _KEPT.append(holder)
    folder = Path(holder.name) / "conformance-model"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000}
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    return folder


# A TemporaryDirectory removes its folder as soon as nothing refers to it.
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
