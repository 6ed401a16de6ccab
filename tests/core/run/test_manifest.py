"""The manifest tells everything but secrets."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from pydantic import SecretStr

from rollout_core import Plugins, RolloutConfig
from rollout_core.errors import OutputError
from rollout_core.run.disk import replace_file
from rollout_core.run.manifest import public_config, versions_of
from rollout_transformers import plugin


def test_keys_and_secrets_of_the_environment_are_masked() -> None:
    env = {"HF_TOKEN": "hf_abc", "my_api_key": "k", "OMP_NUM_THREADS": "2"}
    shown = public_config(RolloutConfig(model_path="m", api_keys=(SecretStr("sk-1"),), env=env))
    assert shown["env"]["OMP_NUM_THREADS"] == "2"
    assert not {"hf_abc", "k", "sk-1"} & set(map(str, [*shown["env"].values(), *shown["api_keys"]]))


def test_versions_name_core_and_the_engine() -> None:
    versions = versions_of(Plugins.from_objects(RolloutConfig(model_path="m"), plugin).backend)
    assert versions["rollout-core"]
    assert versions["python"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")

    def fill_the_disk() -> None:
        with replace_file(file) as temporary:
            temporary.write_text("ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match="free some space"):
        fill_the_disk()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
