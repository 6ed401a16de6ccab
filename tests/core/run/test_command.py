"""`rollout run` from end to end, with the embedded engine on a tiny random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rollout_core.cli import main

pytestmark = pytest.mark.slow
Save = Callable[..., Path]
LINES = [
    {"prompt": "hello world", "id": "text"},
    {"prompt": [{"role": "user", "content": "hello"}], "id": "chat"},
    {"prompt": [1, 3, 4], "id": "ids"},
]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, save_tokenizer: Save) -> Path:
    """A checkpoint that loads in a moment: a random Llama of ten words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = save_tokenizer(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=10, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=4096, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write(tmp_path / "prompts.jsonl", LINES)


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def call(*words: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, words)], input=stdin, catch_exceptions=False)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


def test_texts_chats_and_ids_become_samples_with_log_probabilities(model: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--model", model, "--prompts", prompts, "-n", "2", "--max-tokens", "8", "--seed", "3", "--output", out)
    done = call(*words, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["samples"] == {"planned": 6, "completed": 6, "failed": 0, "aborted": 0, "not_started": 0}
    rows = samples(out)
    assert sorted(row["sample_id"] for row in rows) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    assert {row["fields"]["id"]: row["prompt_ids"] for row in rows} == {
        "text": [1, 3, 4],
        "chat": [1, 7, 3, 9],
        "ids": [1, 3, 4],
    }
    for row in rows:
        assert 0 < len(row["token_ids"]) == len(row["logprobs"]) == len(row["weight_versions"]) <= 8
        assert row["engine"] == "engine-0"
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["status"], manifest["counts"]["completed"]) == ("complete", 6)
    assert manifest["facts"]["versions"]["rollout-transformers"]
    assert json.loads((out / "summary.json").read_text()) == summary
    assert list((out / "logs").iterdir())

    again = call(*words)
    assert (again.exit_code, "add --resume" in again.stderr) == (2, True)
    resumed = call(*words, "--resume", "--quiet")
    assert (resumed.exit_code, resumed.stdout, len(samples(out))) == (0, f"{out}\n", 6)
    other = call(*words, "--resume", "--temperature", "0.5")
    assert (other.exit_code, "temperature: 1.0 there, 0.5 here" in other.stderr) == (2, True)


def test_a_broken_line_fails_its_samples_and_the_exit_code_says_so(model: Path, tmp_path: Path) -> None:
    ids_beyond = {"prompt": [1, 99]}
    too_long = {"prompt": [3] * 5000}
    path = write(tmp_path / "p.jsonl", [LINES[0], "rubbish", ids_beyond, too_long])
    words = ("--model", model, "--prompts", path, "--max-tokens", "2", "--output", tmp_path / "out")
    strict = call(*words, "--strict")
    assert (strict.exit_code, "p.jsonl, line 2: not JSON" in strict.stderr) == (2, True)
    assert not (tmp_path / "out").exists()
    done = call(*words)
    assert done.exit_code == 1, done.output
    assert "broken: p.jsonl, line 2: not JSON" in done.stderr
    errors = {row["prompt_index"]: row["error"] for row in samples(tmp_path / "out")}
    assert errors[0] is None
    assert "line 2" in errors[1]
    assert "prompt_ids[1] is 99; the model's ids are 0 to 9" in errors[2]
    assert "the prompt has 5000 tokens, and the context length is 4096" in errors[3]


def test_parquet_rewards_and_standard_input(model: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "reward.py").write_text("def length(sample): return len(sample.result.token_ids) / 4\n")
    reward = f"{tmp_path / 'reward.py'}:length"
    words = ("--model", model, "--prompts", "-", "--ignore-eos", "--max-tokens", "4", "--format", "parquet")
    stdin = b'{"prompt": "hello"}\n{"prompt": "world"}\n'
    done = call(*words, "--reward", reward, "-n", "2", "--output", tmp_path / "out", stdin=stdin)
    assert done.exit_code == 0, done.output
    assert "mean 1.000 of 4, pass@1 1.000, pass@2 1.000" in done.stdout
    rows = pq.read_table(tmp_path / "out" / "samples").to_pylist()
    assert [row["reward"] for row in rows] == [1.0] * 4


def test_a_dry_run_shows_the_first_prompt_and_writes_nothing(model: Path, prompts: Path, tmp_path: Path) -> None:
    done = call("--model", model, "--prompts", prompts, "--output", tmp_path / "out", "--dry-run", "--chat")
    assert done.exit_code == 0, done.output
    assert "samples    3" in done.stdout
    assert "<s> user hello world assistant" in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-n", "0"], "'-n': 0 is not in the range x>=1"),
        (["--temperature", "-1"], "'--temperature'"),
        (["--top-p", "0"], "'--top-p'"),
        (["--max-tokens", "0"], "'--max-tokens'"),
        (["--min-tokens", "9", "--max-tokens", "3"], "min_tokens (9) is above max_tokens (3)"),
        (["--stop", ""], "an empty string would stop every response"),
        (["--no-such-option"], "No such option"),
        (["--resume"], "--resume needs --output"),
        (["--backend", "no-such"], "backend 'no-such' is not installed"),
        (["--prompts", "missing.jsonl"], "missing.jsonl does not exist"),
        (["--reward", "nothing"], "expected module:function"),
        (["--set", "nonsense=1"], "nonsense"),
        (["--output", "/dev/null/out"], "/dev/null/out"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_the_option(
    model: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("--model", model, "--prompts", prompts, *words)
    assert done.exit_code == 2, done.output
    assert reason in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.jsonl"]


def test_a_missing_model_and_a_missing_tokenizer_are_named(model: Path, prompts: Path, tmp_path: Path) -> None:
    missing = call("--model", tmp_path / "nowhere", "--prompts", prompts, "--output", tmp_path / "out")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((model / "config.json").read_text())
    without = call("--model", bare, "--prompts", prompts, "--output", tmp_path / "out")
    assert (without.exit_code, "has no tokenizer" in without.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_messages_without_a_chat_template_are_refused_before_anything_starts(
    model: Path, prompts: Path, tmp_path: Path, save_tokenizer: Save
) -> None:
    plain = save_tokenizer(tmp_path / "plain", chat_template=None)
    words = ("--model", model, "--set", f"tokenizer_path={plain}", "--prompts", prompts, "--output", tmp_path / "out")
    done = call(*words)
    assert (done.exit_code, "1 of 3 prompts are chat messages" in done.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def driver(model: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `rollout run` in a process of its own, with long samples."""
    path = write(tmp_path / "many.jsonl", [{"prompt": "hello"}] * 40)
    words = ["--model", str(model), "--prompts", str(path), "--ignore-eos", "--max-tokens", "400", "--seed", "1"]
    words += ["--concurrency", "4", "--output", str(tmp_path / "out")]
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from rollout_core.cli import main; main()", "run", *words, *more]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_samples(process: subprocess.Popen[str], file: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_good_order_and_a_resume_finishes_it(
    driver: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    process = driver()
    wait_for_samples(process, out / "samples.jsonl", 3)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "--resume" in stderr
    counts = json.loads((out / "summary.json").read_text())["samples"]
    assert 0 < counts["completed"] < 40
    assert counts["aborted"] == 4
    assert json.loads((out / "manifest.json").read_text())["status"] == "interrupted"
    assert left_over(out) == []
    check_resume(driver, out)


def test_after_kill_9_nothing_is_left_and_a_resume_finishes_the_run(
    driver: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = driver()
    wait_for_samples(process, out / "samples.jsonl", 3)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while left_over(out) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over(out) == []
    check_resume(driver, out)


def check_resume(driver: Callable[..., subprocess.Popen[str]], out: Path) -> None:
    process = driver("--resume")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    rows = samples(out)
    assert sorted(row["prompt_index"] for row in rows) == list(range(40))
    assert all(len(row["token_ids"]) == len(row["logprobs"]) == 400 for row in rows)


def left_over(out: Path) -> list[str]:
    """Command lines of living processes that speak of the run's folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(out) in words and int(folder.name) != os.getpid():
            found.append(words)
    return found
