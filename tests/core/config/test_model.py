"""What the config derives and refuses by itself."""

import pytest
from pydantic import ValidationError

from rollout_core.config import RolloutConfig


@pytest.mark.parametrize(
    ("context", "batch"), [(1, 1024), (4096, 1024), (4097, 512), (8192, 512), (8193, 128), (131072, 128)]
)
def test_the_batch_size_follows_from_the_context_length(context, batch):
    assert RolloutConfig(model_path="m").batch_size_for(context) == batch


def test_a_batch_size_that_is_set_wins():
    assert RolloutConfig(model_path="m", max_batch_size=7).batch_size_for(4096) == 7


@pytest.mark.parametrize(
    ("path", "name"),
    [("org/model-1B", "model-1B"), ("/data/model-1B/", "model-1B"), ("model-1B", "model-1B")],
)
def test_the_model_is_called_as_its_checkpoint(path, name):
    assert RolloutConfig(model_path=path).name == name


def test_a_relative_folder_without_a_name_is_called_as_the_folder(tmp_path, monkeypatch):
    (tmp_path / "model-1B").mkdir()
    monkeypatch.chdir(tmp_path / "model-1B")
    assert RolloutConfig(model_path=".").name == "model-1B"


def test_the_tokenizer_comes_from_the_model_path():
    assert RolloutConfig(model_path="m").tokenizer == "m"
    assert RolloutConfig(model_path="m", tokenizer_path="t").tokenizer == "t"


@pytest.mark.parametrize(
    ("settings", "accelerator"),
    [({}, "cpu"), ({"gpus": 1}, "gpu"), ({"gpus": 1, "device": "npu"}, "npu"), ({"device": "cpu"}, "cpu")],
)
def test_auto_takes_accelerators_where_there_are_some(settings, accelerator):
    assert RolloutConfig(model_path="m", **settings).accelerator == accelerator


@pytest.mark.parametrize("settings", [{"device": "gpu"}, {"device": "npu"}, {"device": "cpu", "gpus": 1}])
def test_device_and_gpus_agree(settings):
    with pytest.raises(ValidationError, match="gpus is"):
        RolloutConfig(model_path="m", **settings)


def test_a_config_cannot_be_changed():
    config = RolloutConfig(model_path="m")
    with pytest.raises(ValidationError, match="frozen"):
        config.gpus = 3  # type: ignore[misc]


def test_api_keys_do_not_show_in_the_text_of_a_config():
    assert "sesame" not in repr(RolloutConfig(model_path="m", api_keys=("sesame",)))
