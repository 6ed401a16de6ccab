"""The typed face of the selected backend: the only way in which core calls it."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import pluggy

from rollout_core.config import RolloutConfig
from rollout_core.errors import CapabilityError, PluginError
from rollout_core.topology import Cluster, Topology
from rollout_core.types import (
    Ack,
    BackendInfo,
    Call,
    Capability,
    GenerateRequest,
    GenerateResult,
    Health,
    HttpCall,
    LaunchSpec,
    MemoryPart,
    PauseMode,
    Reply,
    Server,
    Spawn,
    WeightUpdate,
)

__all__ = ["Backend"]

Returned = TypeVar("Returned")


class Backend:
    """One method per hook, with the config filled in and the returned type checked.

    Every method raises what the hook raises, and ``CapabilityError`` where the backend lacks the hook's group.
    """

    def __init__(
        self,
        manager: pluggy.PluginManager,
        config: RolloutConfig,
        info: BackendInfo,
        groups: frozenset[str],
        distribution: str,
        version: str,
    ) -> None:
        """Made by :class:`rollout_core.plugins.Plugins`."""
        self._hook = manager.hook
        self.config = config
        self.info = info
        self.groups = groups
        """Names of the hook groups that the backend has."""
        self.distribution = distribution
        self.version = version

    @property
    def name(self) -> str:
        """As in the config."""
        return self.info.name

    def offers(self, capability: Capability) -> bool:
        """Whether the backend declares the capability."""
        return capability in self.info.capabilities

    def require(self, capability: Capability, asked: str) -> None:
        """Refuse what was ``asked`` when the backend lacks the capability."""
        if not self.offers(capability):
            raise CapabilityError(
                f"backend '{self.name}' does not offer {capability.value}, which {asked} needs; "
                f"drop it or choose another backend (rollout plugins lists what each offers)"
            )

    def build_topology(self, cluster: Cluster) -> Topology:
        """Lay the engines over the cluster."""
        return self._call("build_topology", Topology, cluster=cluster)

    def launch_server(self, spec: LaunchSpec, spawn: Spawn) -> Server:
        """Start one server process."""
        return self._call("launch_server", Server, spec=spec, spawn=spawn)

    def build_payload(self, request: GenerateRequest) -> HttpCall:
        """The HTTP call of a request."""
        return self._call("build_payload", HttpCall, request=request)

    def parse_response(self, request: GenerateRequest, reply: Reply) -> GenerateResult:
        """The result in a 2xx reply."""
        return self._call("parse_response", GenerateResult, request=request, reply=reply)

    def pause_generation(self, server: Server, mode: PauseMode, call: Call) -> Ack:
        """Stop generating."""
        return self._call("pause_generation", Ack, "generation", server=server, mode=mode, call=call)

    def continue_generation(self, server: Server, call: Call) -> Ack:
        """Undo a pause."""
        return self._call("continue_generation", Ack, "generation", server=server, call=call)

    def abort_requests(self, server: Server, request_ids: Sequence[str] | None, call: Call) -> Ack:
        """Abort some requests, or all."""
        return self._call("abort_requests", Ack, "generation", server=server, request_ids=request_ids, call=call)

    def offload(self, server: Server, parts: AbstractSet[MemoryPart], discard: bool, call: Call) -> Ack:
        """Free memory."""
        return self._call("offload", Ack, "memory", server=server, parts=parts, discard=discard, call=call)

    def onload(self, server: Server, parts: AbstractSet[MemoryPart], call: Call) -> Ack:
        """Take memory back."""
        return self._call("onload", Ack, "memory", server=server, parts=parts, call=call)

    def update_weights(self, server: Server, update: WeightUpdate, call: Call) -> Ack:
        """Load new weights."""
        return self._call("update_weights", Ack, "weights", server=server, update=update, call=call)

    def check_health(self, server: Server, call: Call) -> Health:
        """How the engine feels."""
        return self._call("check_health", Health, "health", server=server, call=call)

    def _call(self, hook: str, returns: type[Returned], group: str = "required", **arguments: Any) -> Returned:
        if group not in self.groups:
            raise CapabilityError(f"backend '{self.name}' has no hooks of the group '{group}', so no {hook}")
        answer = getattr(self._hook, hook)(config=self.config, **arguments)
        if not isinstance(answer, returns):
            raise PluginError(
                f"backend '{self.name}': {hook} returned {type(answer).__name__}, expected {returns.__name__}"
            )
        return answer
