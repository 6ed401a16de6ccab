"""The matrix of capabilities is what the conformance kit reported."""

import json
from pathlib import Path

from rollout_core.testing import Report
from rollout_core.types import Capability


def test_each_capability_is_a_row_of_each_backend(docs: Path):
    sections = (docs / "capabilities.md").read_text().split("\n## ")[1:]
    assert sections
    for section in sections:
        for capability in Capability:
            assert section.count(f"\n| `{capability.value}` |") == 1, f"{section.splitlines()[0]}: {capability.value}"


def test_no_report_has_a_failed_check(docs: Path):
    for file in (docs / "conformance").glob("*.json"):
        assert not Report.from_dict(json.loads(file.read_text())).failed, file.name
