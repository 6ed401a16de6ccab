"""Samples as a folder of Parquet files, which readers take for one table.

Parquet cannot be appended to, so samples go to a journal of JSON lines first and move into a new part once the
journal is large, and when the run ends. Completed samples are never touched again: ``part-00001.parquet`` and so on.
Failed and aborted ones are in ``unfinished.parquet``, which a resume removes, since it draws them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout_core.run.disk import TEMPORARY, disk_errors, replace_file
from rollout_core.run.record import Outcome
from rollout_core.run.sink_jsonl import JsonlSink

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ParquetSink"]

ROLL_BYTES = 256 * 2**20
ROW_GROUP = 1024


class ParquetSink:
    """A folder of parts, with the journal of what is not in a part yet."""

    def __init__(self, path: Path, *, roll_bytes: int = ROLL_BYTES) -> None:
        """Open the folder, repaired and without the samples that are to be drawn again.

        Args:
            path: the folder; made when it is not there.
            roll_bytes: size of the journal at which it moves into a part.

        Raises:
            OutputError: the disk refuses.
        """
        self.path = path
        self._roll_bytes = roll_bytes
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            for leftover in path.glob("*" + TEMPORARY):
                leftover.unlink()
            (path / "unfinished.parquet").unlink(missing_ok=True)
        self._journal_path = path / ".journal.jsonl"
        # A kill between the new part and the new journal leaves samples in both.
        self._journal = JsonlSink(self._journal_path, _bits(self._rows_in_parts()))

    def kept(self) -> Iterator[Mapping[str, Any]]:
        """The outcomes in the parts and the records in the journal."""
        yield from self._rows_in_parts()
        yield from self._journal.kept()

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add the records to the journal, and move it into a part when it is large."""
        self._journal.write(records)
        if self._journal.size >= self._roll_bytes:
            self._roll()

    def close(self) -> None:
        """Move what is in the journal into Parquet files; twice is harmless."""
        if not self._journal_path.exists():
            return
        self._roll()
        self._journal.close()
        _write_parquet(self.path / "unfinished.parquet", self._journal.kept())
        self._journal_path.unlink()

    def _roll(self) -> None:
        """Completed samples become a part; the journal begins anew with the others."""
        self._journal.close()
        records = self._journal.kept()
        _write_parquet(self._next_part(), (record for record in records if Outcome.of(record).kept))
        unfinished = [record for record in self._journal.kept() if not Outcome.of(record).kept]
        with disk_errors(self._journal_path):
            self._journal_path.unlink()
        self._journal = JsonlSink(self._journal_path)
        self._journal.write(unfinished)

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("part-*.parquet"))

    def _next_part(self) -> Path:
        last = max((int(part.stem.removeprefix("part-")) for part in self._parts()), default=0)
        return self.path / f"part-{last + 1:05}.parquet"

    def _rows_in_parts(self) -> Iterator[Mapping[str, Any]]:
        import pyarrow.parquet as pq

        for part in self._parts():
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(columns=list(Outcome.__slots__)):
                    yield from batch.to_pylist()


def _bits(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    known: dict[int, int] = {}
    for row in rows:
        known[row["prompt_index"]] = known.get(row["prompt_index"], 0) | 1 << row["sample_index"]
    return known


def _write_parquet(path: Path, records: Iterator[Mapping[str, Any]]) -> None:
    """Write the records in row groups, so that memory does not grow with them; no file for no record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = list(islice(records, ROW_GROUP))
    if not first:
        return
    schema = _schema()
    with replace_file(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while first:
            writer.write_table(pa.Table.from_pylist(list(map(_row, first)), schema=schema))
            first = list(islice(records, ROW_GROUP))


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the fields that may hold anything as JSON texts."""
    prompt = record["prompt"]
    return {
        **record,
        "prompt": prompt if isinstance(prompt, str) else _json(prompt),
        "stop_reason": _json(record["stop_reason"]),
        "fields": _json(record["fields"]),
    }


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, ids, numbers = pa.string(), pa.list_(pa.int32()), pa.list_(pa.float64())
    seconds = ("queued_s", "prefill_s", "decode_s", "total_s", "started_at")
    return pa.schema(
        {
            "sample_id": text,
            "prompt_index": pa.int64(),
            "sample_index": pa.int64(),
            "status": text,
            "finish_reason": text,
            "stop_reason": text,
            "error": text,
            "prompt": text,
            "prompt_ids": ids,
            "prompt_tokens": pa.int64(),
            "token_ids": ids,
            "response_tokens": pa.int64(),
            "text": text,
            "logprobs": numbers,
            "logprob_kind": text,
            "sampled_logprobs": numbers,
            "top_logprobs": pa.struct({"token_ids": pa.list_(ids), "logprobs": pa.list_(numbers)}),
            "prompt_logprobs": numbers,
            "weight_versions": pa.list_(pa.int64()),
            "lag": pa.int64(),
            "cache_policy": text,
            "routed_experts": pa.struct({"shape": ids, "dtype": text, "data": text}),
            "reward": pa.float64(),
            "reward_error": text,
            "engine": text,
            "attempts": pa.int64(),
            "cached_tokens": pa.int64(),
            "timing": pa.struct(dict.fromkeys(seconds, pa.float64())),
            "fields": text,
        }
    )
