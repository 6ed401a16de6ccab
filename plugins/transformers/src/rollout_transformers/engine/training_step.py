"""What a trainer asks for between two phases of generation: pause, free memory, take new weights, go on.

Runs in the engine's thread only. Nothing is computed while something is missing, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

from rollout_transformers.engine.parameters import ParameterMemory, release_free_memory
from rollout_transformers.engine.scheduler import Scheduler
from rollout_transformers.engine.settings import EngineSettings
from rollout_transformers.engine.weights import IncomingTensor, Receiver, WeightsRefused, WeightWriter

__all__ = ["PauseMode", "StateConflict", "TrainingStep"]

PauseMode = Literal["abort", "wait", "keep"]


class StateConflict(Exception):
    """What was asked for is not possible in the present state; the message says what to do first."""


class TrainingStep:
    """The states that a trainer moves the engine through."""

    def __init__(self, scheduler: Scheduler, model: Any, settings: EngineSettings) -> None:
        self.paused: PauseMode | None = None
        self.kv_offloaded = False
        self.parameters = ParameterMemory(model, settings.offload_folder)
        self._scheduler = scheduler
        self._writer = WeightWriter(model, settings.model_path, settings.trust_remote_code)
        self._version = 0
        """Of the update that is being written."""

    @property
    def missing(self) -> str | None:
        """Why nothing can be generated, or None."""
        if self.parameters.offloaded:
            return "the weights are offloaded"
        if self.kv_offloaded:
            return "the K/V cache is offloaded"
        if self._writer.half_written:
            return "an update of the weights was not finished"
        if self.parameters.dropped:
            return "the weights were discarded, and new ones were not written"
        return None

    @property
    def may_generate(self) -> bool:
        """Whether steps may run."""
        return self.paused != "keep" and self.missing is None

    # Pause

    def pause(self, mode: PauseMode) -> int:
        """Admit nothing new; returns how many samples were aborted."""
        self.paused = mode
        self._scheduler.admission.admits_new = False
        return self._scheduler.abort(lambda item: True) if mode == "abort" else 0

    def resume(self) -> None:
        """Go on; harmless when not paused.

        Raises:
            StateConflict: something that generation needs is missing.
        """
        if self.missing is not None:
            raise StateConflict(f"cannot continue: {self.missing}")
        self.paused = None
        self._scheduler.admission.admits_new = True

    def state(self) -> dict[str, Any]:
        """What every acknowledgement carries."""
        return {
            "paused": self.paused is not None,
            "running": len(self._scheduler.rows.active),
            "waiting": len(self._scheduler.admission.waiting),
            "weight_version": self._scheduler.weight_version,
        }

    # Memory

    def offload(self, parts: Collection[str], discard: bool) -> None:
        """Free parts of the memory; those that are free already are passed over."""
        self._require_paused("offload")
        if "kv_cache" in parts and not self.kv_offloaded:
            self._scheduler.recompute_all()
            self.kv_offloaded = True
            release_free_memory()
        if "weights" in parts and not self.parameters.offloaded:
            self._writer.cancel()
            self.parameters.offload(discard)

    def onload(self, parts: Collection[str]) -> None:
        """Take parts back; those that are there are passed over. The K/V store grows again as samples need it."""
        if "weights" in parts and self.parameters.offloaded:
            self.parameters.onload()
        if "kv_cache" in parts:
            self.kv_offloaded = False

    # Weights

    def begin_update(self, version: int, tensors: list[IncomingTensor]) -> None:
        """Check what will come.

        Raises:
            WeightsRefused: it does not fit; nothing was written.
        """
        self._require_writable(version)
        self._writer.begin(tensors)
        self._version = version

    def join_group(self, open_receiver: Callable[[], Receiver]) -> None:
        """Join the group that brings the buckets' data; waits for all its members."""
        self._require_paused("join a group")
        self._writer.join(open_receiver())

    def write_bucket(self, tensors: list[IncomingTensor], shared_memory: str | None, size: int) -> None:
        """Write one bucket, from shared memory or of `size` bytes from the group."""
        self._require_paused("write weights")
        self._writer.write(tensors, shared_memory, size)

    def load_folder(self, version: int, folder: Path, refuse_non_finite: bool) -> None:
        """Write a whole checkpoint.

        Raises:
            WeightsRefused: it is not whole or does not fit; nothing was written.
        """
        self._require_writable(version)
        self._writer.load(folder, refuse_non_finite)
        self._version = version

    def finish_update(self, keep_cache: bool) -> None:
        """Serve the new weights. Unless `keep_cache`, all K/V is computed again, also that of frozen samples."""
        self._writer.finish()
        self.parameters.dropped = False
        if not keep_cache:
            self._scheduler.recompute_all()
        self._scheduler.weight_version = self._version

    def cancel_update(self) -> None:
        """Give an update up that has not written anything."""
        self._writer.cancel()

    def _require_paused(self, what: str) -> None:
        if self.paused is None:
            raise StateConflict(f"generation is running: pause before you {what}")

    def _require_writable(self, version: int) -> None:
        self._require_paused("update weights")
        if self.parameters.offloaded:
            raise StateConflict("the weights are offloaded: onload them before you write new ones")
        if version <= self._scheduler.weight_version:
            raise WeightsRefused(f"version {version} is not above {self._scheduler.weight_version}, which is served")
