"""The pages of the documentation."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture
def docs(root: Path) -> Path:
    """The folder of the pages."""
    return root / "docs"
