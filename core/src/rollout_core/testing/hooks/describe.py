"""Checks of what a backend says about itself, of its options, and of what loading it costs."""

from __future__ import annotations

import json
import subprocess
import sys

from importlib_metadata import packages_distributions

from rollout_core.errors import ConfigError
from rollout_core.plugins.hookspecs import GROUPS
from rollout_core.testing.suite import Suite, check, expect, not_run
from rollout_core.types import PLUGIN_API, Capability

__all__ = ["DescribeChecks"]

_LOAD = """
import json, sys
from rollout_core.config import RolloutConfig
from rollout_core.plugins import Plugins
Plugins.load(RolloutConfig.model_validate_json(sys.stdin.read()))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
_LOAD_TIMEOUT_S = 120.0
_HEAVY = frozenset({"torch", "jax", "tensorflow", "ray"})
_HOOKS_OF = {
    Capability.ABORT: "generation",
    Capability.PAUSE_ABORT: "generation",
    Capability.PAUSE_WAIT: "generation",
    Capability.PAUSE_KEEP: "generation",
    Capability.OFFLOAD_WEIGHTS: "memory",
    Capability.DISCARD_WEIGHTS: "memory",
    Capability.OFFLOAD_KV_CACHE: "memory",
    Capability.WEIGHTS_FROM_DISK: "weights",
    Capability.WEIGHTS_FROM_SHARED_MEMORY: "weights",
    Capability.WEIGHTS_FROM_GROUP: "weights",
}


class DescribeChecks(Suite):
    """The hook ``describe_backend`` and the options model."""

    @check()
    def test_describes_itself(self) -> None:
        """The description names the backend, its plugin API, its options and its capabilities."""
        info = self.face.info
        expect(info.name == self.face.config.backend, f"describe_backend says '{info.name}'")
        expect(info.plugin_api == PLUGIN_API, f"plugin API {info.plugin_api}, this core has {PLUGIN_API}")
        expect(isinstance(info.capabilities, frozenset), "capabilities are not a frozenset")
        strangers = [item for item in info.capabilities if not isinstance(item, Capability)]
        expect(not strangers, f"capabilities holds {strangers!r}, which are no Capability")
        kinds = {Capability.MODEL_LOGPROBS, Capability.SAMPLED_LOGPROBS}
        expect(bool(kinds & info.capabilities), "no kind of log-probabilities is declared: training needs one")

    @check()
    def test_capabilities_have_hooks(self) -> None:
        """What is declared of abort, pause, memory and weights comes with the hooks that do it."""
        for capability, group in _HOOKS_OF.items():
            expect(
                not self.face.offers(capability) or group in self.face.groups,
                f"{capability.value} is declared, but the hooks {_names(group)} are missing",
            )

    @check()
    def test_refuses_unknown_options(self) -> None:
        """An unknown option is refused by name, with the nearest known one."""
        known = sorted(self.face.info.options.model_fields)
        wrong = f"{known[0]}x" if known else "no_such_option"
        try:
            self.load(backend_options={**self.options, wrong: 1})
        except ConfigError as error:
            expect(wrong in str(error), f"the refusal of {wrong} does not name it: {error}")
            suggestion = f"mean {known[0]}" if known else ""
            expect(suggestion in str(error), f"the refusal of {wrong} does not suggest a known option: {error}")
            return
        expect(False, f"the option {wrong}, which does not exist, was accepted: set extra='forbid'")

    @check()
    def test_documents_options(self) -> None:
        """Every option has a description, for ``rollout config init``."""
        fields = self.face.info.options.model_fields
        bare = [name for name, field in fields.items() if not field.description]
        expect(not bare, f"options without a description: {', '.join(bare)}")

    @check()
    def test_load_does_not_import_the_engine(self) -> None:
        """Loading the plugin imports neither its engine nor a tensor library."""
        if self.plugin is not None:
            not_run("the plugin is an object, not an installed entry point")
        loaded = self._modules_after_load()
        package = self.face.info.engine_package
        engine = {name for name, dists in packages_distributions().items() if package in dists}
        found = sorted(loaded & (engine | _HEAVY))
        expect(not found, f"loading the plugin imports {', '.join(found)}; import them in the server process only")

    def _modules_after_load(self) -> set[str]:
        config = self.face.config.model_copy(update={"backend_options": dict(self.options), "api_keys": ()})
        done = subprocess.run(
            [sys.executable, "-c", _LOAD],
            input=config.model_dump_json(),
            capture_output=True,
            text=True,
            timeout=_LOAD_TIMEOUT_S,
        )
        expect(done.returncode == 0, f"the plugin does not load in a process of its own:\n{done.stderr[-2000:]}")
        return set(json.loads(done.stdout))


def _names(group: str) -> str:
    return ", ".join(name for name in vars(GROUPS[group]) if not name.startswith("_"))
