"""A backend that keeps every rule passes every check: the suites as a plugin's author subclasses them."""

from __future__ import annotations

from toy_backend.backend import CHECKPOINT, ToyBackend
from toy_backend.examples import REPLY_EXAMPLES

from rollout_core.testing import BackendConformance, LiveBackendConformance


class TestToy(BackendConformance):
    plugin = ToyBackend()
    reply_examples = REPLY_EXAMPLES


class TestToyLive(LiveBackendConformance):
    plugin = ToyBackend()
    model = CHECKPOINT
    config = {"context_length": 512, "routed_experts": True}  # noqa: RUF012
