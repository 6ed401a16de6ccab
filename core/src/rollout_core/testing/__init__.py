"""The conformance kit: subclass it in a few lines to check a backend. Needs the extra ``rollout-core[testing]``."""

from rollout_core.testing.corruptions import ReplyExample
from rollout_core.testing.hooks import BackendConformance
from rollout_core.testing.live import LiveBackendConformance
from rollout_core.testing.report import Report, Row, check_backend, run_suite
from rollout_core.testing.suite import Check, CheckFailed, check, expect, not_offered, not_run, overrides_check

__all__ = [
    "BackendConformance",
    "Check",
    "CheckFailed",
    "LiveBackendConformance",
    "ReplyExample",
    "Report",
    "Row",
    "check",
    "check_backend",
    "expect",
    "not_offered",
    "not_run",
    "overrides_check",
    "run_suite",
]
