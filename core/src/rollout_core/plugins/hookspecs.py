"""The hooks: what core asks of a backend, and what it tells extensions.

Each class is a :class:`typing.Protocol`, so ``_: BackendSpecs = my_package.plugin`` type-checks a plugin module.
All hooks are synchronous. Core injects what does I/O (``spawn``, ``call``), so every hook is testable alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from rollout_core.config import RolloutConfig
    from rollout_core.topology import Cluster, Topology
    from rollout_core.types import (
        Ack,
        BackendInfo,
        Call,
        GenerateRequest,
        GenerateResult,
        Health,
        HttpCall,
        LaunchSpec,
        MemoryPart,
        PauseMode,
        Reply,
        Sample,
        Server,
        Spawn,
        WeightUpdate,
    )

__all__ = [
    "GROUPS",
    "PROJECT",
    "BackendSpecs",
    "ExtensionSpecs",
    "GenerationSpecs",
    "HealthSpecs",
    "MemorySpecs",
    "WeightSpecs",
    "hookimpl",
]

PROJECT = "rollout"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook of the same name."""


class BackendSpecs(Protocol):
    """The five hooks that every backend has."""

    @hookspec(firstresult=True)
    def describe_backend(self) -> BackendInfo:
        """Say what the backend is called and what it offers.

        Called once when the plugin is loaded, in every process that uses it. It must not import the engine.
        """

    @hookspec(firstresult=True)
    def build_topology(self, config: RolloutConfig, cluster: Cluster) -> Topology:
        """Lay the engines and their server processes over the ranks of the cluster.

        Called once a run by the driver, before anything starts; also by ``rollout topology``.
        Raise ``TopologyError`` or ``CapabilityError`` for sizes that the engine cannot run.
        :meth:`rollout_core.topology.Topology.uniform` covers the usual case.
        """

    @hookspec(firstresult=True)
    def launch_server(self, config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
        """Start one server process with ``spawn`` and return it without waiting until it is ready.

        Called by the worker that owns the process, at each start. Keys go into files under ``spec.run_dir`` or into
        the environment, never into the arguments. Raise ``ConfigError`` for a setting that the engine would refuse.
        """

    @hookspec(firstresult=True)
    def build_payload(self, config: RolloutConfig, request: GenerateRequest) -> HttpCall:
        """Turn a request into the engine's HTTP call.

        Called by the client for every attempt, so keep it under a millisecond and do no I/O. A request with a
        ``prior`` asks for the tokens after it. Raise ``CapabilityError`` for a parameter that the engine lacks.
        """

    @hookspec(firstresult=True)
    def parse_response(self, config: RolloutConfig, request: GenerateRequest, reply: Reply) -> GenerateResult:
        """Turn a 2xx reply into a result that holds the newly generated tokens only, and the text of all of them.

        Called by the client for every reply; core joins the tokens to a ``prior`` and checks the result. The text is
        that of the whole response, because a character or a stop string may lie across the cut. Raise ``ReplyError``
        for a reply that is not as it should be; never fill a gap.
        """


class GenerationSpecs(Protocol):
    """Optional group: interrupt generation. All three hooks or none."""

    @hookspec(firstresult=True)
    def pause_generation(self, config: RolloutConfig, server: Server, mode: PauseMode, call: Call) -> Ack:
        """Stop generating and return once the engine is quiet.

        Called by the worker at each weight step. Requests that come while paused wait in the engine.
        """

    @hookspec(firstresult=True)
    def continue_generation(self, config: RolloutConfig, server: Server, call: Call) -> Ack:
        """Undo a pause. Called by the worker at each weight step; harmless when not paused."""

    @hookspec(firstresult=True)
    def abort_requests(
        self, config: RolloutConfig, server: Server, request_ids: Sequence[str] | None, call: Call
    ) -> Ack:
        """Abort the given requests, or all for None: their own replies come back with the tokens they have.

        Called by the worker, now and then. Ids that the engine does not know are passed over.
        """


class MemorySpecs(Protocol):
    """Optional group: give the memory to the trainer and take it back. Both hooks or none."""

    @hookspec(firstresult=True)
    def offload(
        self, config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], discard: bool, call: Call
    ) -> Ack:
        """Free the memory of the given parts and return once it is free.

        Called by the worker at each weight step, while paused. With ``discard`` the weights are dropped instead of
        kept aside; the engine then serves nothing before new ones are written. The K/V cache is always dropped:
        requests that are frozen compute theirs again. Core asks only for parts that are loaded.
        """

    @hookspec(firstresult=True)
    def onload(self, config: RolloutConfig, server: Server, parts: AbstractSet[MemoryPart], call: Call) -> Ack:
        """Take the given parts back. Called by the worker at each weight step, while paused."""


class WeightSpecs(Protocol):
    """Optional group: new weights."""

    @hookspec(firstresult=True)
    def update_weights(self, config: RolloutConfig, server: Server, update: WeightUpdate, call: Call) -> Ack:
        """Load the weights and return the version that the engine serves now, as it says itself.

        Called by the worker at each weight step, while paused, on every server that updates ranks. Names, shapes and
        dtypes are checked before anything is written: raise ``WeightUpdateError`` then, and the engine goes on with
        what it has. Any other error means that the weights are in doubt, and the engine is quarantined.
        """


class HealthSpecs(Protocol):
    """Optional group: how the engine feels."""

    @hookspec(firstresult=True)
    def check_health(self, config: RolloutConfig, server: Server, call: Call) -> Health:
        """Say whether the engine lives and how far it has come.

        Called by the worker every ``health_check_interval_s``, also while the engine is busy. Busy is not dead.
        """


class ExtensionSpecs(Protocol):
    """Events of a run. Extensions observe; only ``score_sample`` returns something."""

    @hookspec
    def run_started(self, config: RolloutConfig, topology: Topology) -> None:
        """Hear that the engines of a run are ready. Called once, in the driver."""

    @hookspec
    def engine_changed(self, engine: str, state: str, reason: str) -> None:
        """Hear that an engine is ``starting``, ``ready``, ``failed`` or ``stopped``. Called in the driver."""

    @hookspec
    def weights_updated(self, version: int) -> None:
        """Hear that all engines serve a new version of the weights. Called in the driver."""

    @hookspec
    def sample_finished(self, sample: Sample) -> None:
        """Hear of a sample that is complete, scored and written. Called by the client, once a sample."""

    @hookspec(firstresult=True)
    def score_sample(self, config: RolloutConfig, sample: Sample) -> float | None:
        """Return the reward of a completed sample, or None to leave it to another extension.

        Called by the client once a sample, in a thread of its own; it may block. An exception marks the sample's
        reward as missing and is reported; it never costs the sample.
        """

    @hookspec
    def run_finished(self, summary: Mapping[str, Any]) -> None:
        """Hear the summary of a run that ended. Called once, in the driver."""


GROUPS: dict[str, type] = {
    "required": BackendSpecs,
    "generation": GenerationSpecs,
    "memory": MemorySpecs,
    "weights": WeightSpecs,
    "health": HealthSpecs,
}
"""The groups of backend hooks: a plugin has all hooks of a group or none; ``required`` it has in any case."""
