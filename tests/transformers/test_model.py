"""What cannot be served is refused at the start with one clear line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rollout_transformers.engine.__main__ import main, read_settings
from rollout_transformers.engine.engine import Engine
from rollout_transformers.engine.model import load_model
from rollout_transformers.engine.settings import EngineSettings, StartupError


def without(folder: Path, target: Path, *names: str) -> Path:
    """A copy of a checkpoint without some files."""
    shutil.copytree(folder, target)
    for name in names:
        for path in target.glob(name):
            path.unlink()
    return target


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="does not exist"):
        load_model(EngineSettings(model_path=tmp_path / "nothing"))


def test_a_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"has no config\.json"):
        load_model(EngineSettings(model_path=tmp_path))


def test_a_folder_without_tokenizer_is_named(checkpoint: Any, tmp_path: Path) -> None:
    folder = without(checkpoint("llama"), tmp_path / "model", "tokenizer*")
    with pytest.raises(StartupError, match="has no tokenizer"):
        load_model(EngineSettings(model_path=folder))
    assert load_model(EngineSettings(model_path=folder, tokenizer_path=checkpoint("llama"))).tokenizer is not None


def test_attention_that_the_engine_does_not_do_is_refused(checkpoint: Any) -> None:
    with pytest.raises(StartupError, match="attention sinks"):
        Engine(EngineSettings(model_path=checkpoint("gpt_oss")))


def test_a_context_beyond_the_model_is_refused(checkpoint: Any) -> None:
    with pytest.raises(StartupError, match="context_length 513"):
        load_model(EngineSettings(model_path=checkpoint("llama"), context_length=513))


def test_experts_of_a_dense_model_are_refused(checkpoint: Any) -> None:
    with pytest.raises(StartupError, match="return_routed_experts"):
        Engine(EngineSettings(model_path=checkpoint("llama"), return_routed_experts=True))


def test_rotary_embeddings_that_depend_on_the_batch_are_refused(checkpoint: Any, tmp_path: Path) -> None:
    folder = without(checkpoint("llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {
        "rope_type": "dynamic",
        "factor": 2.0,
        "rope_theta": 1e4,
        "original_max_position_embeddings": 256,
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StartupError, match="set context_length to 256"):
        load_model(EngineSettings(model_path=folder))
    load_model(EngineSettings(model_path=folder, context_length=256))


def test_weights_can_be_left_random(checkpoint: Any) -> None:
    settings = EngineSettings(model_path=checkpoint("llama"), skip_load_weights=True, random_seed=3)
    one, other = (load_model(settings).model.lm_head.weight for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, load_model(EngineSettings(model_path=checkpoint("llama"))).model.lm_head.weight)


def test_the_head_can_be_computed_in_float32(checkpoint: Any) -> None:
    settings = EngineSettings(model_path=checkpoint("llama"), dtype="bfloat16", fp32_lm_head=True)
    model = load_model(settings).model
    hidden = torch.randn(2, 64, dtype=torch.bfloat16)
    logits = model.get_output_embeddings()(hidden)
    assert logits.dtype == torch.float32
    assert torch.allclose(logits, hidden.float() @ model.lm_head.weight.float().T, atol=1e-4)
    Engine(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_path": "/x", "dtype": "int3"}', "dtype:"),
        ('{"model_path": "/x", "colour": 1}', "colour:"),
        ("{", "settings:"),
        ("/no/such/file.json", "cannot read the settings file"),
    ],
)
def test_wrong_settings_are_named(text: str, message: str) -> None:
    with pytest.raises(StartupError, match=message):
        read_settings(text)


def test_a_failed_start_prints_one_line_and_exits_with_an_error(tmp_path: Path, capsys: Any) -> None:
    assert main(["--config-json", json.dumps({"model_path": str(tmp_path)})]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_file_of_keys_is_read_and_may_not_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "key"
    settings = EngineSettings(model_path=tmp_path, api_key_file=path)
    with pytest.raises(StartupError, match="cannot read"):
        settings.api_keys()
    path.write_text("\n")
    with pytest.raises(StartupError, match="is empty"):
        settings.api_keys()
    path.write_text("secret\nother\n")
    assert settings.api_keys() == ("secret", "other")
