"""The page that teaches writing a backend shows the package that is tested here, and it is short."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).parent / "bigram"
TITLED = re.compile(r'^```(?:python|toml) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_package_as_it_is() -> None:
    shown = dict(TITLED.findall((ROOT / "docs" / "writing-a-backend.md").read_text()))
    files = ["pyproject.toml", "src/rollout_bigram/server.py", "src/rollout_bigram/plugin.py"]
    assert list(shown) == [*files, "tests/test_conformance.py"]
    for file in files:
        assert shown[file] == (PACKAGE / file).read_text(), file
    assert (PACKAGE / "src/rollout_bigram/__init__.py").read_text() == ""


def test_a_whole_backend_takes_less_than_150_lines() -> None:
    shown = dict(TITLED.findall((ROOT / "docs" / "writing-a-backend.md").read_text()))
    assert sum(bool(line.strip()) for code in shown.values() for line in code.splitlines()) < 150
