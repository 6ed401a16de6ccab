"""Where new weights come from: a folder, this process's memory, or a torch.distributed group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rollout_core.errors import WeightUpdateError
from rollout_core.types import Capability, WeightUpdate

__all__ = ["FromFolder", "UpdateOptions", "WeightSource"]


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """What holds for an update, wherever it comes from."""

    version: int
    keep_cache: bool = False
    refuse_non_finite: bool = False
    host: str = "127.0.0.1"
    """Where a group's store listens, as the engines reach it."""
    port: int = 0
    """Of a group's store; 0 takes a free one."""


class WeightSource(Protocol):
    """Makes the update of every target, and brings the data while the targets take it."""

    @property
    def capability(self) -> Capability:
        """What a backend must offer to take it."""

    def updates(self, options: UpdateOptions, rank_counts: Sequence[int]) -> list[WeightUpdate]:
        """One update per target; ``rank_counts`` says how many ranks each target updates.

        Raises:
            WeightUpdateError: the weights cannot be used; nothing was written.
        """

    def produce(self) -> None:
        """Bring the data; returns when every target has it or has given up. Runs beside the targets' updates.

        Raises:
            WeightUpdateError: the update was given up before anything was written.
        """

    def leave(self, target: int, refused: bool) -> None:
        """A target is out and not waited for; with ``refused`` it has written nothing, and nobody else shall."""


class FromFolder:
    """Weights in a folder of safetensors files."""

    capability = Capability.WEIGHTS_FROM_DISK

    def __init__(self, folder: str | Path) -> None:
        """``folder`` as the engines see it."""
        self.folder = Path(folder).absolute()

    def updates(self, options: UpdateOptions, rank_counts: Sequence[int]) -> list[WeightUpdate]:
        """The same folder for every target."""
        if not self.folder.is_dir():
            raise WeightUpdateError(f"{self.folder} is not a folder; nothing was written")
        if not any(self.folder.glob("*.safetensors")):
            raise WeightUpdateError(f"{self.folder} has no .safetensors file; nothing was written")
        update = WeightUpdate(
            version=options.version,
            folder=str(self.folder.resolve()),
            keep_cache=options.keep_cache,
            refuse_non_finite=options.refuse_non_finite,
        )
        return [update] * len(rank_counts)

    def produce(self) -> None:
        """Nothing: the engines read for themselves."""

    def leave(self, target: int, refused: bool) -> None:
        """Nothing to do."""
