"""Every format gives the same prompts, and a broken line is named and costs nothing but itself."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollout_core.errors import InputError
from rollout_core.run.prompt import BrokenPrompt, Prompt
from rollout_core.run.prompt_file import PromptFile, spool_stdin

ROWS: list[dict[str, Any]] = [{"id": 1, "prompt": "one"}, {"id": 2, "prompt": "two\nlines, and a comma"}]


def read(path: Path, **options: Any) -> list[Prompt | BrokenPrompt]:
    return list(PromptFile(path, **options))


def write(path: Path, *lines: str | dict[str, Any]) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines) + "\n", encoding="utf-8")
    return path


def broken(path: Path, **options: Any) -> str:
    (prompt,) = (p for p in read(path, **options) if isinstance(p, BrokenPrompt))
    return prompt.error


def test_jsonl(tmp_path: Path) -> None:
    prompts = read(write(tmp_path / "p.jsonl", *ROWS))
    assert [(p.index, p.place) for p in prompts] == [(0, "p.jsonl, line 1"), (1, "p.jsonl, line 2")]
    assert prompts[1] == Prompt(1, "p.jsonl, line 2", "two\nlines, and a comma", {"id": 2})


def test_json_is_a_list_of_objects_or_texts(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps([ROWS[0], "two"]))
    assert [(p.place, p.value) for p in read(tmp_path / "p.json") if isinstance(p, Prompt)] == [
        ("p.json, item 1", "one"),
        ("p.json, item 2", "two"),
    ]


def test_csv_keeps_line_breaks_and_names_the_line_where_a_row_begins(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.DictWriter(file, ["id", "prompt"])
        rows.writeheader()
        rows.writerows([*ROWS, {"id": 3, "prompt": "three"}])
    prompts = read(path)
    assert [p.value for p in prompts if isinstance(p, Prompt)] == ["one", "two\nlines, and a comma", "three"]
    assert [p.place for p in prompts] == ["p.csv, line 2", "p.csv, line 3", "p.csv, line 5"]
    assert prompts[0].fields == {"id": "1"}


def test_parquet_holds_texts_chats_and_ids(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    pq.write_table(pa.table({"text": ["a", "b"], "chat": [chat, chat], "ids": [[1], [2, 3]]}), tmp_path / "p.parquet")
    assert [p.value for p in read(tmp_path / "p.parquet", prompt_field="text") if isinstance(p, Prompt)] == ["a", "b"]
    (first, second) = read(tmp_path / "p.parquet", prompt_field="ids")
    assert first == Prompt(0, "p.parquet, row 1", [1], {"text": "a", "chat": chat})
    assert isinstance(second, Prompt)
    assert second.value == [2, 3]
    assert PromptFile(tmp_path / "p.parquet", "chat").scan().chats == 2


def test_blank_lines_are_passed_over_and_a_byte_order_mark_too(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\n\n   \r\n{"prompt": "b"}')
    assert [(p.index, p.place) for p in read(path)] == [(0, "p.jsonl, line 1"), (1, "p.jsonl, line 4")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": "a"', "not JSON"),
        ('{"prompt": "\\ud800"}', "not JSON"),
        ("[1, 2]", "expected an object with the field 'prompt', got list"),
        ('{"question": "a", "answer": "b"}', r"no field 'prompt'; the line has question, answer \(choose one with"),
        ('{"prompt": ""}', "'prompt' is empty"),
        ('{"prompt": []}', "'prompt' is empty"),
        ('{"prompt": null}', "'prompt' is null; expected a text, chat messages or token ids"),
        ('{"prompt": 7}', "'prompt' is number"),
        ('{"prompt": ["a", "b"]}', "'prompt' is a list of text items; expected chat messages"),
        ('{"prompt": [1, -2]}', r"'prompt\[1\]' is -2; token ids are integers of 0 or more"),
        ('{"prompt": [1, 2.5]}', r"'prompt\[1\]' is 2.5"),
        ('{"prompt": [1, true]}', r"'prompt\[1\]' is True"),
        ('{"prompt": [{"role": "user", "content": "a"}, "b"]}', r"'prompt\[1\]' is text; expected a message"),
        ('{"prompt": [{"content": "a"}]}', r"'prompt\[0\]' has no role"),
        ('{"prompt": [{"role": "user"}]}', r"'prompt\[0\]' has no content that is a text, got null"),
    ],
)
def test_a_broken_line_is_named_by_its_number_and_the_others_are_read(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "p.jsonl", ROWS[0], line, ROWS[1])
    prompts = read(path)
    assert [type(prompt) for prompt in prompts] == [Prompt, BrokenPrompt, Prompt]
    error = broken(path)
    assert error.startswith("p.jsonl, line 2: ")
    with pytest.raises(InputError, match=reason):
        raise InputError(error)


def test_a_broken_line_keeps_its_other_fields(tmp_path: Path) -> None:
    (prompt,) = read(write(tmp_path / "p.jsonl", {"id": 7, "prompt": ""}))
    assert prompt.fields == {"id": 7}


def test_a_csv_row_with_too_many_columns_is_broken(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", "id,prompt", "1,a,b", "2,c")
    assert broken(path) == "p.csv, line 2: 3 columns, and the header has 2"


def test_a_csv_row_that_is_not_utf8_is_broken(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(b"prompt\n\xff\ngood\n")
    assert broken(tmp_path / "p.csv") == "p.csv, line 2: not UTF-8"


def test_the_call_of_a_tool_has_no_content(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]
    assert isinstance(read(write(tmp_path / "p.jsonl", {"prompt": chat}))[0], Prompt)


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "p.jsonl", *ROWS, "rubbish"), limit=2)) == 2


def test_a_scan_counts_and_shows_the_first_errors(tmp_path: Path) -> None:
    chat = {"prompt": [{"role": "user", "content": "a"}]}
    scan = PromptFile(write(tmp_path / "p.jsonl", *ROWS, *["x"] * 7, chat)).scan()
    assert (scan.prompts, scan.broken_count, len(scan.broken), scan.chats) == (10, 7, 5, 1)
    assert scan.broken[0].startswith("p.jsonl, line 3: not JSON")


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    first = PromptFile(write(tmp_path / "p.jsonl", *ROWS)).scan().fingerprint
    assert PromptFile(write(tmp_path / "q.jsonl", *ROWS)).scan().fingerprint == first
    assert PromptFile(write(tmp_path / "q.jsonl", *ROWS, *ROWS)).scan().fingerprint != first


def test_standard_input_is_read_as_jsonl(tmp_path: Path) -> None:
    spool_stdin(io.BytesIO(b'{"prompt": "a"}\nrubbish\n'), tmp_path / "copy.jsonl")
    prompts = read(tmp_path / "copy.jsonl", name="standard input")
    assert [p.place for p in prompts] == ["standard input, line 1", "standard input, line 2"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("missing.jsonl", None, "does not exist"),
        ("p.txt", "a", r"unknown suffix '.txt'; expected .jsonl"),
        ("p.jsonl", "\n\n", "holds no prompt"),
        ("p.json", "[]", "holds no prompt"),
        ("p.csv", "prompt\n", "holds no prompt"),
        ("p.json", '{"a": 1}\n{"b": 2}\n', "is not JSON.*rename it to .jsonl"),
        ("p.json", "{}", "expected a list of prompts, got dict"),
        ("p.parquet", "PAR", "is not Parquet"),
        ("p.jsonl", '{"question": "a"}', "none of the 1 lines is a prompt; the first: p.jsonl, line 1: no field"),
    ],
)
def test_a_file_that_gives_no_prompt_is_an_error(tmp_path: Path, name: str, content: str | None, reason: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        PromptFile(tmp_path / name).scan()


def test_a_folder_is_no_prompt_file(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").mkdir()
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        PromptFile(tmp_path / "p.jsonl").scan()
