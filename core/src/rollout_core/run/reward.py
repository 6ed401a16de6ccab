"""Rewards: the ``score_sample`` hook, and a function named on the command line that answers it."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rollout_core.errors import ConfigError
from rollout_core.plugins import Plugins, hookimpl
from rollout_core.types import Sample

__all__ = ["RewardExtension", "Scorer", "load_reward"]


class RewardExtension:
    """Makes an extension of a function from a sample to its reward (None: no opinion)."""

    def __init__(self, function: Callable[[Sample], float | None]) -> None:
        """``function`` may block; it runs in a thread."""
        self._function = function

    @hookimpl
    def score_sample(self, sample: Sample) -> float | None:
        """The function's answer."""
        return self._function(sample)


def load_reward(name: str) -> RewardExtension:
    """Load ``module:function``, or ``file.py:function``; modules are looked for in the working directory too.

    Raises:
        ConfigError: there is no such module or function, or its import fails.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise ConfigError(f"--reward {name}: expected module:function or file.py:function")
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    except Exception as error:  # the module is the user's: its import raises what it likes
        raise ConfigError(f"--reward {name}: {where} failed to load: {type(error).__name__}: {error}") from error
    function: Any = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigError(f"--reward {name}: {where} has no function {attribute}")
    return RewardExtension(function)


def _load_module(name: str) -> ModuleType:
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickle look a module up by its name
    spec.loader.exec_module(module)
    return module


class Scorer:
    """Asks the extensions for the reward of a sample. An error of theirs never costs the sample."""

    def __init__(self, plugins: Plugins) -> None:
        """``plugins`` with every extension registered."""
        self._plugins = plugins
        self.active = plugins.offers("score_sample")
        """Whether anyone scores."""
        self._listened = plugins.offers("sample_finished")

    def score(self, sample: Sample) -> tuple[float | None, str | None]:
        """The reward, or why there is none; both None where nobody had an opinion. May block."""
        try:
            reward = self._plugins.hook.score_sample(config=self._plugins.config, sample=sample)
            if reward is None:
                return None, None
            number = float(reward)
        except Exception as error:  # the function is the user's
            return None, f"{type(error).__name__}: {error}"
        if not math.isfinite(number):
            return None, f"the reward is {number}; expected a finite number"
        return number, None

    def announce(self, sample: Sample) -> None:
        """Tell extensions of a sample that is on disk. Raises what they raise."""
        if self._listened:
            self._plugins.hook.sample_finished(sample=sample)
