"""What a job writes its samples to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = ["FORMATS", "Sink", "open_sink"]

FORMATS = ("jsonl", "parquet")


class Sink(Protocol):
    """Keeps records; what :meth:`write` returned from outlives the process.

    A sink repairs on opening what a kill left: the torn end of a line, a half-written part. It then drops the
    samples that are to be drawn again, the failed and the aborted ones.
    """

    path: Path
    """Where the samples are: a file or a folder."""

    def kept(self) -> Iterator[Mapping[str, Any]]:
        """The records that are there already; each has at least the fields of an Outcome. Call it before writing."""

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records. Raises OutputError when the disk refuses: then none of them is there."""

    def close(self) -> None:
        """Finish the files. Raises OutputError when the disk refuses."""


def open_sink(folder: Path, file_format: str) -> Sink:
    """The sink of an output folder. Raises OutputError."""
    if file_format == "parquet":
        from rollout_core.run.sink_parquet import ParquetSink

        return ParquetSink(folder / "samples")
    from rollout_core.run.sink_jsonl import JsonlSink

    return JsonlSink(folder / "samples.jsonl")
