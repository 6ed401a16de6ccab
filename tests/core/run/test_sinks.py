"""What a sink wrote is there, whatever ended the process; what is to be drawn again is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout_core.run.record import record_of
from rollout_core.run.sink import Sink, open_sink
from rollout_core.run.sink_jsonl import JsonlSink
from rollout_core.run.sink_parquet import ParquetSink
from rollout_core.types import FinishReason, GenerateResult, RoutedExperts, Sample, Status, TokenLogprob


def record(prompt: int, sample: int = 0, status: Status = Status.COMPLETED, **more: Any) -> dict[str, Any]:
    result = GenerateResult(
        f"r-{prompt}-{sample}",
        (1, 2),
        token_ids=(3, 4),
        logprobs=(-0.1, -1e-17),
        text="héllo\n",
        finish_reason=FinishReason.STOP,
        stop_reason=4,
        status=status,
        weight_versions=(0, 1),
        **more,
    )
    chat = [{"role": "user", "content": "hi"}]
    return record_of(Sample(f"{prompt}-{sample}", prompt, sample, chat, {"answer": {"is": [7]}}, result, reward=0.5))


def ids(sink: Sink) -> list[str]:
    return [f"{r['prompt_index']}-{r['sample_index']}" for r in sink.kept()]


@pytest.fixture(params=["jsonl", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_sink_opened_again_has_what_was_written(tmp_path: Path, kind: str) -> None:
    sink = open_sink(tmp_path, kind)
    sink.write([record(0), record(1)])
    sink.write([record(2)])
    sink.close()
    sink.close()
    again = open_sink(tmp_path, kind)
    assert ids(again) == ["0-0", "1-0", "2-0"]
    again.write([record(3)])
    again.close()
    assert ids(open_sink(tmp_path, kind)) == ["0-0", "1-0", "2-0", "3-0"]


def test_a_sink_that_was_never_closed_has_what_was_written(tmp_path: Path, kind: str) -> None:
    open_sink(tmp_path, kind).write([record(0), record(1)])
    assert ids(open_sink(tmp_path, kind)) == ["0-0", "1-0"]


def test_failed_and_aborted_samples_are_dropped_when_a_sink_is_opened_again(tmp_path: Path, kind: str) -> None:
    sink = open_sink(tmp_path, kind)
    sink.write([record(0), record(1, status=Status.FAILED), record(2, status=Status.ABORTED), record(3)])
    sink.close()
    assert ids(open_sink(tmp_path, kind)) == ["0-0", "3-0"]


def test_a_sample_that_is_there_twice_is_kept_once(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "samples.jsonl")
    sink.write([record(0), record(0), record(0, 1)])
    sink.close()
    assert ids(JsonlSink(tmp_path / "samples.jsonl")) == ["0-0", "0-1"]


def test_opening_leaves_a_file_alone_that_needs_no_repair(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    JsonlSink(path).write([record(0)])
    before = path.stat().st_ino
    JsonlSink(path)
    assert path.stat().st_ino == before


WHOLE = [record(i) for i in range(3)] + [record(3, status=Status.FAILED), record(4)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_at_any_byte_keeps_its_whole_lines_and_can_be_finished(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "samples.jsonl"
    path.unlink(missing_ok=True)
    JsonlSink(path).write(WHOLE)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    lines = content[:cut].splitlines(keepends=True)
    whole = [orjson.loads(line) for line in lines if line.endswith(b"\n")]
    kept = [r["sample_id"] for r in whole if r["status"] == "completed"]
    sink = JsonlSink(path)
    assert ids(sink) == kept
    sink.write([r for r in WHOLE if r["status"] == "completed" and r["sample_id"] not in kept])
    sink.close()
    assert [orjson.loads(line)["sample_id"] for line in path.read_bytes().splitlines()] == ["0-0", "1-0", "2-0", "4-0"]


def test_rubbish_that_a_power_cut_left_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    JsonlSink(path).write([record(0)])
    with path.open("ab") as file:
        file.write(b"\0" * 64 + b"\n[1]\n{}\n")
    assert ids(JsonlSink(path)) == ["0-0"]


def test_a_text_that_is_no_unicode_costs_no_sample(tmp_path: Path) -> None:
    odd = record(0) | {"text": "half \ud800", "fields": {"big": 2**80}}
    JsonlSink(tmp_path / "samples.jsonl").write([odd])
    assert ids(JsonlSink(tmp_path / "samples.jsonl")) == ["0-0"]


def test_parquet_has_a_column_for_every_field(tmp_path: Path) -> None:
    full = record(
        0,
        sampled_logprobs=(-0.2, -0.3),
        top_logprobs=((TokenLogprob(3, -0.1),), (TokenLogprob(4, -0.2), TokenLogprob(5, -2.0))),
        routed_experts=RoutedExperts((3, 1, 2), "uint8", b"\0\1\2\3\4\5"),
        prompt_logprobs=(None, -0.5),
    )
    sink = ParquetSink(tmp_path / "samples")
    sink.write([full, record(1)])
    sink.close()
    (row, _) = pq.read_table(tmp_path / "samples").to_pylist()
    assert row.keys() == full.keys()
    for name in ("prompt_ids", "token_ids", "logprobs", "sampled_logprobs", "weight_versions", "prompt_logprobs"):
        assert row[name] == list(full[name]), name
    assert row["top_logprobs"] == full["top_logprobs"]
    assert row["routed_experts"] == {"shape": [3, 1, 2], "dtype": "uint8", "data": "AAECAwQF"}
    assert orjson.loads(row["prompt"]) == full["prompt"]
    assert orjson.loads(row["fields"]) == full["fields"]
    assert (row["stop_reason"], row["text"], row["reward"]) == ("4", "héllo\n", 0.5)


def test_parquet_moves_a_large_journal_into_a_part(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "samples", roll_bytes=2000)
    for i in range(20):
        sink.write([record(i, status=Status.FAILED if i % 5 == 0 else Status.COMPLETED)])
    parts = sorted(path.name for path in (tmp_path / "samples").glob("*.parquet"))
    assert len(parts) > 1
    assert parts[0] == "part-00001.parquet"
    sink.close()
    rows = pq.read_table(tmp_path / "samples").to_pylist()
    assert sorted(row["prompt_index"] for row in rows) == list(range(20))
    assert not list((tmp_path / "samples").glob("*.jsonl"))


def test_a_kill_between_the_part_and_the_journal_doubles_no_sample(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    sink = ParquetSink(folder)
    sink.write([record(0), record(1)])
    journal = (folder / ".journal.jsonl").read_bytes()
    sink.close()
    (folder / ".journal.jsonl").write_bytes(journal)
    (folder / "part-00002.parquet.tmp").write_bytes(b"half")
    again = ParquetSink(folder)
    assert ids(again) == ["0-0", "1-0"]
    again.write([record(2)])
    again.close()
    assert [row["sample_id"] for row in pq.read_table(folder).to_pylist()] == ["0-0", "1-0", "2-0"]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from rollout_core.errors import OutputError
from rollout_core.run.sink import open_sink
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
import orjson
records = orjson.loads(sys.stdin.buffer.read())
sink = open_sink(Path(sys.argv[1]), sys.argv[2])
written = 0
try:
    for record in records:
        sink.write([record])
        written += 1
except OutputError as error:
    print(written, error)
"""


def test_a_full_disk_is_an_error_that_says_what_to_do_and_tears_nothing(tmp_path: Path, kind: str) -> None:
    records = [record(i) for i in range(200)]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), kind],
        input=orjson.dumps(records),
        stdout=subprocess.PIPE,
        check=True,
    )
    written, _, message = done.stdout.decode().partition(" ")
    assert 0 < int(written) < 200
    assert "free some space" in message
    assert "--resume" in message
    journal = next(tmp_path.rglob("*.jsonl"))
    assert journal.read_bytes().endswith(b"\n")
    sink = open_sink(tmp_path, kind)
    assert len(ids(sink)) == int(written)
    sink.write(records[int(written) :])
    sink.close()
    assert len(ids(open_sink(tmp_path, kind))) == 200
