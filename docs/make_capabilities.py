"""Writes capabilities.md from the reports in conformance/. A test compares the two.

A report is made with ``rollout plugins check NAME --live --model FOLDER --output docs/conformance/NAME.json``; further
ones of the same backend, such as ``NAME-moe.json``, add what another model shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rollout_core.testing import Report
from rollout_core.testing.report import Outcome, Row
from rollout_core.types import Capability

PAGE = Path(__file__).with_name("capabilities.md")
REPORTS = Path(__file__).with_name("conformance")

INTRO = """# What each backend can do

This page is made from what the [conformance kit](writing-a-backend.md) reported when it ran against the real engines.
**Shown** means that every check of the capability passed on a running engine; the checks are named, and
`rollout plugins check NAME --live` repeats them. **Not offered** means that the backend does not declare the
capability, so that asking for it is an error before anything starts. **Not run here** means that it is declared, and
that nothing on the machine of the report showed it; the reason follows.
"""


def page() -> str:
    """The whole page."""
    reports: dict[str, list[Report]] = {}
    for file in sorted(REPORTS.glob("*.json")):
        report = Report.from_dict(json.loads(file.read_text(encoding="utf-8")))
        reports.setdefault(report.backend, []).append(report)
    return "\n".join([INTRO, *(_section(name, found) for name, found in reports.items())])


def _section(name: str, reports: Sequence[Report]) -> str:
    shown = "; ".join(f"{report.model} with {report.engine}, {report.platform}" for report in reports)
    counts = "; ".join(", ".join(f"{n} {what}" for what, n in report.counts.items() if n) for report in reports)
    lines = [f"## {name} {reports[0].version}", "", f"Reported for {shown}. Checks: {counts}.", ""]
    lines += ["| capability | | shown by, or why not |", "|---|---|---|"]
    lines += [_line(capability, reports) for capability in Capability]
    return "\n".join(lines) + "\n"


def _line(capability: Capability, reports: Sequence[Report]) -> str:
    if capability.value not in reports[0].capabilities:
        return f"| `{capability.value}` | not offered | |"
    rows = [row for report in reports for row in report.rows if capability.value in row.capabilities]
    live = [row for row in rows if row.suite == "live"]
    passed = _names(live, Outcome.PASSED)
    failed = _names(live, Outcome.FAILED)
    if failed:
        return f"| `{capability.value}` | **fails** | {failed} |"
    if passed:
        return f"| `{capability.value}` | shown on the real engine | {passed} |"
    reasons = {row.detail for row in live if row.outcome is Outcome.NOT_RUN}
    return f"| `{capability.value}` | not run here | {'; '.join(sorted(reasons)) or _hooks_only(rows)} |"


def _names(rows: Sequence[Row], outcome: Outcome) -> str:
    return ", ".join(dict.fromkeys(f"`{row.check}`" for row in rows if row.outcome is outcome))


def _hooks_only(rows: Sequence[Row]) -> str:
    passed = _names(rows, Outcome.PASSED)
    return f"checked without the engine: {passed}" if passed else "no check starts an engine with it"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
