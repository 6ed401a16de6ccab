"""A reward function is named by its module or its file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_core.errors import ConfigError
from rollout_core.run.reward import load_reward

ROOT = Path(__file__).parents[3]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_reward.py").write_text("def one(sample):\n    return 1.0\nnumber = 3\n")
    (tmp_path / "broken_reward.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_reward", "broken_reward"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("where", ["my_reward:one", "my_reward.py:one"])
def test_a_module_of_the_working_directory_or_a_file_is_found(module: Path, where: str) -> None:
    sample: Any = None
    assert load_reward(where).score_sample(sample) == 1.0


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("my_reward", "expected module:function"),
        (":one", "expected module:function"),
        ("my_reward:two", "has no function two"),
        ("my_reward:number", "has no function number"),
        ("no_such_module:one", "No module named 'no_such_module'"),
        ("missing.py:one", "FileNotFoundError"),
        ("broken_reward:one", "failed to load: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_named_with_its_reason(module: Path, where: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_reward(where)
