"""``rollout plugins check``."""

import json
from pathlib import Path

from click.testing import CliRunner

from rollout_core.cli import main


def test_the_embedded_backend_passes_without_its_engine(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = CliRunner().invoke(main, ["plugins", "check", "transformers", "--output", str(report)])
    assert done.exit_code == 0, done.output
    assert "passed      hooks The description names the backend" in done.output
    assert "run with --live" not in done.output
    rows = json.loads(report.read_text())["rows"]
    assert {row["outcome"] for row in rows} == {"passed", "not offered", "not run"}
    assert {row["detail"] for row in rows if row["suite"] == "live"} == {"run with --live"}


def test_json_is_for_programs() -> None:
    done = CliRunner().invoke(main, ["plugins", "check", "transformers", "--json"])
    assert json.loads(done.output)["backend"] == "transformers"


def test_an_unknown_backend_and_live_checks_without_a_model_are_wrong_usage() -> None:
    unknown = CliRunner().invoke(main, ["plugins", "check", "nope"])
    assert (unknown.exit_code, "backend 'nope' is not installed" in unknown.output) == (2, True)
    no_model = CliRunner().invoke(main, ["plugins", "check", "transformers", "--live"])
    assert (no_model.exit_code, "give --model" in no_model.output) == (2, True)
