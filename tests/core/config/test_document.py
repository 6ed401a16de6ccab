"""The config as TOML and as documentation."""

import tomllib

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from rollout_core.config import RolloutConfig, load_config
from rollout_core.config.document import resolved, template
from rollout_core.config.fields import list_fields
from rollout_core.config.model import SECTIONS
from rollout_core.config.secrets import masked


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    threads: int | None = Field(default=None, ge=1)
    """How many threads."""

    level: str = "info"
    """How much to log."""

    token: SecretStr = SecretStr("")
    """Kept to itself."""


def test_every_field_is_documented():
    assert [field.name for field in list_fields(RolloutConfig) if not field.meaning.endswith(".")] == []


def test_sections_begin_at_fields_in_their_order():
    order = list(RolloutConfig.model_fields)
    assert sorted(SECTIONS, key=order.index) == list(SECTIONS)


def test_the_template_holds_every_field_with_its_meaning():
    text = template("fake", Options)
    words = " ".join(line.removeprefix("# ") for line in text.splitlines())
    for field in list_fields(RolloutConfig):
        assert field.name in text
        assert field.meaning.replace("``", "") in words
    assert "# How many threads. (whole number, 1 or more)\n# threads = 1\n" in text
    assert 'level = "info"' in text


def test_the_template_sets_the_defaults_and_only_them(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(template("fake", Options))
    config = load_config([path], ["model_path=m"])
    expected = RolloutConfig(model_path="m", backend="fake", backend_options=config.backend_options)
    assert config == expected


def test_resolved_fills_in_what_is_derived():
    values = tomllib.loads(resolved(RolloutConfig(model_path="org/m", context_length=5000)))
    assert values["model_name"] == "m"
    assert values["tokenizer_path"] == "org/m"
    assert values["device"] == "cpu"
    assert values["max_batch_size"] == 512
    assert values["max_retries_per_worker"] == values["health_check_failure_threshold"]


def test_resolved_can_be_loaded_again(tmp_path):
    config = RolloutConfig(model_path="m", env={"A": "1"}, backend_options={"deep": {"x": [1, 2]}, "y": "z"})
    (tmp_path / "run.toml").write_text(resolved(config))
    assert resolved(load_config([tmp_path / "run.toml"])) == resolved(config)


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET", "password", "token"])
def test_secrets_are_masked_by_name(name):
    config = RolloutConfig(model_path="m", env={name: "sesame"}, backend_options={"inner": {name: ["sesame"]}})
    assert "sesame" not in str(masked(config))
    assert "sesame" not in resolved(config)


def test_api_keys_and_secret_options_are_masked():
    config = RolloutConfig(model_path="m", api_keys=("sesame",), backend_options=Options(token=SecretStr("sesame")))
    assert "sesame" not in resolved(config)
    assert masked(config)["api_keys"] == ["**********"]


def test_what_only_sounds_like_a_secret_is_shown():
    config = RolloutConfig(model_path="m", env={"TOKENIZERS_PARALLELISM": "false", "MONKEY": "george"})
    assert masked(config)["env"] == {"TOKENIZERS_PARALLELISM": "false", "MONKEY": "george"}
