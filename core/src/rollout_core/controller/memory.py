"""The offload state machine: what is loaded, what was dropped, and what is allowed when.

=================  =====================================================================================
asked              rule
=================  =====================================================================================
offload            only while paused; parts that are offloaded already are passed over
onload             parts that are loaded are passed over
continue           only with everything loaded, and with weights written again if they were dropped
update weights     only with the weights loaded
=================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from rollout_core.errors import StateError
from rollout_core.types import MemoryPart

__all__ = ["ALL_PARTS", "MemoryState"]

ALL_PARTS = frozenset(MemoryPart)


class MemoryState:
    """Of all engines together."""

    def __init__(self) -> None:
        """Everything is loaded."""
        self.offloaded: frozenset[MemoryPart] = frozenset()
        self.weights_dropped = False
        """The weights were discarded, and nothing was written since."""

    def to_offload(self, parts: AbstractSet[MemoryPart], discard_weights: bool) -> frozenset[MemoryPart]:
        """The parts that are still to be offloaded.

        Raises:
            StateError: weights that were kept aside cannot be dropped without loading them first.
        """
        kept_aside = MemoryPart.WEIGHTS in self.offloaded and not self.weights_dropped
        if discard_weights and MemoryPart.WEIGHTS in parts and kept_aside:
            raise StateError("the weights are offloaded and kept aside; onload them before discarding them")
        return frozenset(parts) - self.offloaded

    def note_offloaded(self, parts: AbstractSet[MemoryPart], discard_weights: bool) -> None:
        """The parts are gone."""
        self.offloaded |= parts
        self.weights_dropped = self.weights_dropped or (discard_weights and MemoryPart.WEIGHTS in parts)

    def note_onloaded(self, parts: AbstractSet[MemoryPart]) -> None:
        """The parts are back."""
        self.offloaded -= parts

    def note_written(self) -> None:
        """New weights were written on every engine in service."""
        self.weights_dropped = False

    def require_servable(self) -> None:
        """Refuse to generate with anything missing.

        Raises:
            StateError: saying what to do first.
        """
        if self.offloaded:
            parts = ", ".join(sorted(part.value for part in self.offloaded))
            raise StateError(f"{parts} offloaded: call onload() before generation continues")
        if self.weights_dropped:
            raise StateError("the weights were discarded: write new ones with update_weights() first")

    def require_writable(self) -> None:
        """Refuse to write weights where there is no room for them.

        Raises:
            StateError: the weights are offloaded.
        """
        if MemoryPart.WEIGHTS in self.offloaded:
            raise StateError("the weights are offloaded: call onload_weights() before update_weights()")
