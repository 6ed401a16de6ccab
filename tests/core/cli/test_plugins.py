"""``rollout plugins``"""

import json

import pytest

from rollout_core.plugins import catalog
from rollout_core.plugins.catalog import PluginEntry

BROKEN = PluginEntry("sad", "backend", "rollout-sad", "1.0", "sad.plugin", "broken", "ImportError: no sad engine")
MISSING = PluginEntry(
    "far", "backend", "rollout-far", "2.0", "far.plugin", "engine missing", "pip install it", ("required",), ("seed",)
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    def install(*entries: PluginEntry) -> None:
        monkeypatch.setattr(catalog, "list_plugins", lambda: list(entries))

    return install


def test_the_embedded_backend_is_listed(cli):
    result = cli("plugins")
    assert result.exit_code == 0
    assert "transformers  (backend, rollout-transformers 0.1.0)" in result.stdout
    assert "model_logprobs" in result.stdout


def test_json_has_what_programs_need(cli):
    (entry,) = (e for e in json.loads(cli("plugins", "--json").stdout) if e["name"] == "transformers")
    assert entry["distribution"] == "rollout-transformers"
    assert {"kind", "version", "capabilities", "status", "engine", "engine_version"} <= entry.keys()


def test_a_broken_plugin_is_a_line_and_no_failure(cli, installed):
    installed(BROKEN, MISSING)
    result = cli("plugins")
    assert result.exit_code == 0
    assert "sad  (backend, rollout-sad 1.0)  broken" in result.stdout
    assert "ImportError: no sad engine" in result.stdout
    assert "pip install it" in result.stdout


def test_without_any_plugin_it_says_what_to_install(cli, installed):
    installed()
    assert "pip install" in cli("plugins").stdout


def test_help_names_the_conformance_check(cli):
    assert "\n  check " in cli("plugins", "--help").stdout
