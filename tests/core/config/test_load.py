"""Files, --set and flags become one config, and every mistake is named with its place."""

from pathlib import Path

import pytest

from rollout_core.config import RolloutConfig, load_config
from rollout_core.config.load import parse_set
from rollout_core.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str, name: str = "run.toml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_file


def problems(files=(), sets=(), overrides=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(files, sets, overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("gpus=8", ("gpus",), 8),
        ("model_path=Qwen/Qwen3-0.6B", ("model_path",), "Qwen/Qwen3-0.6B"),
        ("backend_options.threads=2", ("backend_options", "threads"), 2),
        ("port_range=[20000,21000]", ("port_range",), [20000, 21000]),
        ("chunked_prefill=true", ("chunked_prefill",), True),
        ('model_name="8"', ("model_name",), "8"),
        ("system_prompt=a = b", ("system_prompt",), "a = b"),
        ("system_prompt=", ("system_prompt",), ""),
        ("system_prompt=1\ngpus = 3", ("system_prompt",), "1\ngpus = 3"),
        (" gpus = 8 ", ("gpus",), 8),
    ],
)
def test_set_values_are_toml_or_else_plain_text(text, key, value):
    assert parse_set(text) == (key, value)


@pytest.mark.parametrize("text", ["gpus", "=8", "a..b=1", "a b=1"])
def test_set_without_a_key_is_refused(text):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_set(text)


def test_later_files_win_then_sets_then_overrides(write):
    first = write('model_path = "m"\ngpus = 1\nengines = 1\nrandom_seed = 1\n', "first.toml")
    second = write("gpus = 2\nengines = 2\nrandom_seed = 2\n", "second.toml")
    config = load_config([first, second], ["engines=3", "random_seed=3"], {"random_seed": 4})
    assert (config.gpus, config.engines, config.random_seed) == (2, 3, 4)


def test_defaults_are_below_everything(write):
    path = write('model_path = "m"\n')
    assert load_config([path], defaults={"model_path": "x", "gpus": 2}).model_path == "m"
    assert load_config([path], defaults={"model_path": "x", "gpus": 2}).gpus == 2


def test_tables_are_merged_key_by_key(write):
    path = write('model_path = "m"\n[env]\nA = "1"\nB = "2"\n')
    assert load_config([path], ["env.B=3"]).env == {"A": "1", "B": "3"}


def test_overrides_that_are_none_are_dropped():
    assert load_config(overrides={"model_path": "m", "gpus": None}).gpus == 0


def test_an_unknown_key_names_the_line_and_the_nearest_one(write):
    path = write('model_path = "m"\n\ntensor_paralel = 2\n')
    assert problems([path]) == [f"{path}:3: tensor_paralel is not a known setting; did you mean tensor_parallel?"]


def test_a_key_that_is_near_to_nothing_gets_no_suggestion():
    assert problems(sets=["model_path=m", "zzz=1"]) == ["--set zzz: zzz is not a known setting"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpus=eight", 'gpus is "eight"; expected a whole number'),
        ("gpus=-1", "gpus is -1; expected 0 or more"),
        ("gpus=1.5", "gpus is 1.5; expected a whole number"),
        ("gpus=true", "gpus is true, but it is not a yes-or-no setting"),
        ("memory_fraction=1.5", "memory_fraction is 1.5; expected 1 or less"),
        ("memory_fraction=0", "memory_fraction is 0; expected a number above 0"),
        ("rollout_timeout_s=inf", "rollout_timeout_s is Infinity; expected a finite number"),
        ("chunked_prefill=maybe", 'chunked_prefill is "maybe"; expected true or false'),
        ("model_name=7", "model_name is 7; expected text in quotes"),
        ("model_path=", 'model_path is ""; expected at least 1 character'),
        ("api_keys=sesame", "api_keys is hidden; expected a list"),
        ("backend_options=3", "backend_options: expected a table of options, got int"),
        ("port_range=[1, 2, 3]", "port_range is [1, 2, 3]; expected at most 2 items"),
        ("port_range=[1, 2]", "port_range: expected 1024 <= first <= last <= 65535, got 1 and 2"),
        (
            "device=gpuu",
            "device is \"gpuu\"; expected one of 'auto', 'cpu', 'gpu' or 'npu'; did you mean gpu?",
        ),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(text, problem):
    found = problems(sets=["model_path=m", text])
    assert found == [f"--set {text.partition('=')[0]}: {problem}"]


def test_every_problem_has_a_line_of_its_own(write):
    path = write('model_path = "m"\ngpus = "many"\ndtypes = 1\n')
    found = problems([path], ["engines=0"], {"tensor_parallel": 0})
    assert sorted(line.split(": ")[0] for line in found) == [
        "--set engines",
        f"{path}:2",
        f"{path}:3",
        "command line",
    ]


def test_fields_that_contradict_each_other_name_both_places(write):
    path = write('model_path = "m"\ndevice = "cpu"\n')
    assert problems([path], ["gpus=2"]) == [f"{path}:2, --set gpus: device is cpu, but gpus is 2; drop one of them"]


def test_a_missing_model_path_is_named():
    assert problems() == ["config: model_path is missing; it has no default"]


def test_toml_that_cannot_be_parsed_names_line_and_column(write):
    path = write('model_path = "m"\ngpus 8\n')
    (problem,) = problems([path])
    assert problem.startswith(f"{path}:2:6: is not valid TOML: expected")


def test_a_file_that_is_missing_binary_or_a_folder_is_named(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    found = problems([tmp_path / "none.toml", tmp_path, tmp_path / "binary.toml"])
    assert [line.split(": ")[1] for line in found] == [
        "cannot be read",
        "cannot be read",
        "is not UTF-8 text (byte 0); a config file is TOML",
    ]


def test_a_key_below_a_plain_value_is_refused():
    assert problems(sets=["model_path=m", "gpus=1", "gpus.x=2"]) == [
        "--set gpus.x: gpus is not a table, so it has no x"
    ]


def test_settings_that_slipped_into_env_are_refused(write):
    path = write('model_path = "m"\n[env]\nOMP_NUM_THREADS = 2\ngpus = 8\n')
    (problem,) = problems([path])
    assert "env has gpus: a setting, not a variable; move it above [env]" in problem


def test_numbers_in_env_become_text(write):
    path = write('model_path = "m"\n[env]\nOMP_NUM_THREADS = 2\n')
    assert load_config([path]).env == {"OMP_NUM_THREADS": "2"}


def test_the_environment_decides_nothing(monkeypatch):
    before = load_config(sets=["model_path=m"])
    for name in RolloutConfig.model_fields:
        monkeypatch.setenv(name.upper(), "9")
        monkeypatch.setenv(f"ROLLOUT_{name.upper()}", "9")
    assert load_config(sets=["model_path=m"]) == before
