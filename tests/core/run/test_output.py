"""An output folder belongs to one run and to one process at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_core.errors import OutputError
from rollout_core.run.manifest import Manifest
from rollout_core.run.output import OutputFolder, check_folder

RUN = {"prompts": "abc", "temperature": 1.0, "n": 2}


def leave_a_run(path: Path) -> None:
    """A run that drew a sample and ended."""
    take(path).close()
    (path / "samples.jsonl").write_text("{}\n")


def take(path: Path, identity: dict[str, Any] | None = None, *, resume: bool = False) -> OutputFolder:
    return OutputFolder.open(path, identity or RUN, {"model": "m"}, resume=resume)


def test_a_new_run_makes_its_folder_and_says_that_it_runs(tmp_path: Path) -> None:
    take(tmp_path / "a" / "b").close()
    manifest = Manifest.read(tmp_path / "a" / "b")
    assert manifest is not None
    assert (manifest.status, manifest.identity, manifest.facts) == ("running", RUN, {"model": "m"})
    assert manifest.started_at.endswith("+00:00")


def test_a_finished_run_says_how_it_ended(tmp_path: Path) -> None:
    output = take(tmp_path / "out")
    output.finish("complete", {"completed": 3}, {"tokens": 9})
    output.close()
    manifest = Manifest.read(tmp_path / "out")
    assert manifest is not None
    assert (manifest.status, manifest.counts) == ("complete", {"completed": 3})
    assert manifest.finished_at is not None
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == {"tokens": 9}


def test_a_resume_goes_on_with_the_same_run(tmp_path: Path) -> None:
    leave_a_run(tmp_path / "out")
    output = take(tmp_path / "out", resume=True)
    assert output.manifest.sessions == 2
    output.close()


def test_a_resume_of_nothing_is_a_new_run(tmp_path: Path) -> None:
    take(tmp_path / "out", resume=True).close()
    (tmp_path / "empty").mkdir()
    take(tmp_path / "empty", resume=True).close()


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_without_any_sample_may_be_started_again_otherwise(tmp_path: Path, resume: bool) -> None:
    take(tmp_path / "out").close()
    take(tmp_path / "out", {**RUN, "n": 3}, resume=resume).close()


def test_without_resume_a_run_that_is_there_is_left_alone(tmp_path: Path) -> None:
    leave_a_run(tmp_path / "out")
    with pytest.raises(OutputError, match=r"holds this run already \(status running\); add --resume"):
        take(tmp_path / "out")


@pytest.mark.parametrize("resume", [False, True])
def test_the_folder_of_another_run_is_refused_with_the_differences(tmp_path: Path, resume: bool) -> None:
    leave_a_run(tmp_path / "out")
    with pytest.raises(OutputError, match=r"another run \(n: 2 there, 3 here; temperature: 1.0 there, 0.5 here\)"):
        take(tmp_path / "out", {**RUN, "temperature": 0.5, "n": 3}, resume=resume)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_other_things_is_refused(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OutputError, match=r"not empty and holds no run of rollout \(found thesis.tex\)"):
        take(tmp_path, resume=resume)


def test_a_manifest_that_is_rubbish_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(OutputError, match="cannot be read"):
        take(tmp_path, resume=True)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    first = take(tmp_path / "out")
    with pytest.raises(OutputError, match=f"process {os.getpid()}"):
        take(tmp_path / "out", resume=True)
    first.close()
    take(tmp_path / "out", resume=True).close()


def test_the_death_of_a_process_frees_its_folder(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from rollout_core.run.output import OutputFolder\n"
        f"OutputFolder.open(Path(sys.argv[1]), {RUN!r}, {{}}, resume=False); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    take(tmp_path / "out", resume=True).close()


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        take(tmp_path / "file")
    with pytest.raises(OutputError, match="cannot be written: Not a directory"):
        take(tmp_path / "file" / "out")
    with pytest.raises(OutputError, match="no folder that you may write to"):
        check_folder(tmp_path / "file" / "out", RUN, resume=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        take(tmp_path / "out")


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "out", RUN, resume=False) is None
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_of_a_first_manifest_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "manifest.json.tmp").write_text("{")
    (tmp_path / ".lock").touch()
    take(tmp_path).close()
