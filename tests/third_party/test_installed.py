"""A backend of its own distribution, installed beside core alone: found, checked and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.third_party.test_page import PACKAGE, ROOT, TITLED

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
CORPUS = "the cat sat on the mat\nthe dog ate the bread and the cat ran\nthree red trees stand near the sea\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with core and the backend, both from wheels."""
    folder = tmp_path_factory.mktemp("third-party")
    for project in (ROOT / "core", PACKAGE):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "wheels")]
        subprocess.run([*command, str(project)], check=True, capture_output=True)
    core, bigram = sorted((folder / "wheels").glob("*.whl"), key=lambda wheel: "bigram" in wheel.name)
    venv.create(folder / "env", with_pip=True)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{core}[testing]", str(bigram)], check=True)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the bigram model."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "corpus.txt").write_text(CORPUS)
    config = {"model_type": "bigram", "vocab_size": 256, "eos_token_id": 10, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def rollout(environment: Path, tmp_path: Path) -> Run:
    """Runs the installed command in an empty folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        # What is set for the environment of the tests must not reach the new one.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        return subprocess.run(
            [str(environment / "rollout"), *arguments], capture_output=True, text=True, cwd=tmp_path, env=clean
        )

    return run


def test_only_core_and_the_backend_are_there(environment: Path) -> None:
    listed = subprocess.run(
        [environment / "python", "-m", "pip", "list", "--format", "json"], capture_output=True, check=True
    )
    names = {package["name"] for package in json.loads(listed.stdout)}
    assert {"rollout-core", "rollout-bigram"} <= names
    assert not names & {"torch", "rollout-transformers", "vllm"}


def test_it_is_listed(rollout: Run) -> None:
    (entry,) = json.loads(rollout("plugins", "--json").stdout)
    assert (entry["name"], entry["distribution"], entry["version"]) == ("bigram", "rollout-bigram", "0.1.0")
    assert (entry["status"], entry["capabilities"]) == ("ok", ["model_logprobs"])


def test_it_passes_the_conformance_kit(rollout: Run, model: Path) -> None:
    done = rollout("plugins", "check", "bigram", "--live", "--model", str(model), "--json")
    assert done.returncode == 0, done.stdout
    outcomes = [row["outcome"] for row in json.loads(done.stdout)["rows"]]
    assert outcomes.count("passed") > 40


def test_it_draws_samples(rollout: Run, model: Path, tmp_path: Path) -> None:
    prompts = [list(text.encode()) for text in ("the ", "red ", "three ")]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"prompt": ids}) + "\n" for ids in prompts))
    arguments = ["--backend", "bigram", "--model", str(model), "--prompts", "prompts.jsonl", "-n", "4"]
    done = rollout("run", *arguments, "--max-tokens", "40", "--output", "out")
    assert done.returncode == 0, done.stderr
    samples = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert sorted(sample["sample_id"] for sample in samples) == sorted(f"{i}-{j}" for i in range(3) for j in range(4))
    for sample in samples:
        assert len(sample["token_ids"]) == len(sample["logprobs"]) > 0
        assert bytes(sample["token_ids"]).decode(errors="replace").removesuffix("\n") == sample["text"]
        assert all(value < 0 for value in sample["logprobs"])


def test_the_tests_on_the_page_pass(environment: Path, model: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "writing-a-backend.md").read_text()
    code = dict(TITLED.findall(page))["tests/test_conformance.py"]
    (tmp_path / "test_conformance.py").write_text(re.sub('"model"', repr(str(model)), code))
    command = [environment / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_conformance.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
