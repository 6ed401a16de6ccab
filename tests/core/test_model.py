"""What core reads of a model without loading it."""

import json
from pathlib import Path

import pytest

from rollout_core.errors import ModelError
from rollout_core.model import ModelInfo


def folder(tmp_path: Path, config: object) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_vocabulary_context_and_architecture_are_read(tmp_path: Path) -> None:
    path = folder(tmp_path, {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "max_position_embeddings": 512})
    info = ModelInfo.read(path)
    assert (info.architecture, info.vocab_size, info.context_length) == ("LlamaForCausalLM", 100, 512)


def test_a_nested_text_config_is_used(tmp_path: Path) -> None:
    info = ModelInfo.read(folder(tmp_path, {"model_type": "m", "text_config": {"vocab_size": 7, "n_positions": 9}}))
    assert (info.vocab_size, info.context_length, info.architecture) == (7, 9, "m")


def test_the_fingerprint_changes_with_config_and_weights(tmp_path: Path) -> None:
    path = folder(tmp_path, {"vocab_size": 100})
    before = ModelInfo.read(path).fingerprint
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    with_weights = ModelInfo.read(path).fingerprint
    folder(tmp_path, {"vocab_size": 101})
    assert len({before, with_weights, ModelInfo.read(path).fingerprint}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "has no config.json"), ("{", "cannot be read"), ("[]", "expected an object"), ("{}", "no vocab_size")],
)
def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        ModelInfo.read(str(tmp_path))


def test_a_missing_folder_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(ModelError, match=r"/no/such/model does not exist; give a checkpoint folder or a hub id"):
        ModelInfo.read("/no/such/model")


def test_end_ids_come_from_the_generation_config_before_the_config(tmp_path: Path) -> None:
    path = folder(tmp_path, {"vocab_size": 100, "eos_token_id": 2})
    assert ModelInfo.read(path).eos_token_ids == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    assert ModelInfo.read(path).eos_token_ids == (3, 4)
