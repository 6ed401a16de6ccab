"""``rollout config``"""

import json
import tomllib

import pytest


def test_init_writes_a_file_that_check_accepts(cli, tmp_path):
    path = tmp_path / "run.toml"
    assert cli("config", "init", "-o", str(path)).exit_code == 0
    assert "threads" in path.read_text()
    result = cli("config", "check", str(path), "--set", "model_path=m")
    assert (result.stdout, result.exit_code) == ("OK\n", 0)


def test_a_fresh_file_asks_for_the_model_path(cli, tmp_path):
    path = tmp_path / "run.toml"
    cli("config", "init", "-o", str(path))
    result = cli("config", "check", str(path))
    assert result.exit_code == 2
    assert "model_path" in result.stderr


def test_init_prints_without_a_file(cli):
    assert tomllib.loads(cli("config", "init").stdout)["backend"] == "transformers"


def test_init_overwrites_only_by_force(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("mine")
    assert cli("config", "init", "-o", str(path)).exit_code == 2
    assert path.read_text() == "mine"
    assert cli("config", "init", "-o", str(path), "--force").exit_code == 0
    assert path.read_text() != "mine"


def test_init_into_a_missing_folder_says_so(cli, tmp_path):
    result = cli("config", "init", "-o", str(tmp_path / "none" / "run.toml"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize("command", [("init",), ("schema",)])
def test_a_backend_that_is_not_installed_is_named(cli, command):
    result = cli("config", *command, "--backend", "nothing")
    assert result.exit_code == 2
    assert "backend 'nothing' is not installed" in result.stderr


def test_check_tells_every_problem(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model_path = "m"\ngpuss = 1\nengines = 0\n')
    result = cli("config", "check", str(path))
    assert result.exit_code == 2
    assert f"{path}:2: gpuss is not a known setting; did you mean gpus?" in result.stderr
    assert f"{path}:3: engines is 0; expected 1 or more" in result.stderr


def test_check_looks_at_the_options_of_the_backend(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model_path = "m"\n[backend_options]\nthread = 1\n')
    result = cli("config", "check", str(path))
    assert result.exit_code == 2
    assert "thread is not a known setting; did you mean threads?" in result.stderr


def test_check_looks_at_the_layout(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model_path = "m"\ngpus = 2\nengines = 3\n')
    result = cli("config", "check", str(path))
    assert result.exit_code == 2
    assert "3 engines" in result.stderr


def test_check_says_when_the_options_could_not_be_checked(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model_path = "m"\nbackend = "nothing"\n')
    result = cli("config", "check", str(path))
    assert result.exit_code == 0
    assert result.stdout.startswith("OK; backend_options were not checked: backend 'nothing' is not installed")


def test_show_resolves_and_masks(cli, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model_path = "org/m"\napi_keys = ["sesame"]\n')
    result = cli("config", "show", "-c", str(path), "--set", "gpus=2")
    values = tomllib.loads(result.stdout)
    assert (values["model_name"], values["device"], values["gpus"]) == ("m", "gpu", 2)
    assert values["backend_options"]["prefix_reuse"] is True
    assert "sesame" not in result.stdout


def test_schema_describes_every_field_and_the_options(cli):
    plain = json.loads(cli("config", "schema").stdout)
    assert plain["properties"]["gpus"]["minimum"] == 0
    assert plain["additionalProperties"] is False
    assert "properties" not in plain["properties"]["backend_options"]
    merged = json.loads(cli("config", "schema", "--backend", "transformers").stdout)
    assert "threads" in merged["properties"]["backend_options"]["properties"]
