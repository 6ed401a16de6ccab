"""What core knows of a model without loading it: read from ``config.json`` of its folder or hub repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_core.errors import ModelError

__all__ = ["ModelInfo"]

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts that requests are checked against."""

    path: str
    """As it was asked for: a folder or a hub id."""
    architecture: str
    vocab_size: int
    """Prompt ids are below this; one id that is not kills some engines."""
    context_length: int | None
    """Longest prompt and response together, in tokens; None where the model sets no limit."""
    fingerprint: str
    """SHA-256 (hex) of the config and of the name and size of every weight file."""
    eos_token_ids: tuple[int, ...] = ()
    """Ids that end a response; empty where the model names none."""

    @classmethod
    def read(cls, path: str, *, trust_remote_code: bool = False) -> ModelInfo:
        """Read the model's config.

        A path that looks like a folder must exist; anything else is taken for a hub id.

        Raises:
            ModelError: no such folder, no ``config.json`` in it, or a config without a vocabulary size.
        """
        folder = Path(path).expanduser()
        if folder.is_dir():
            config = _read_json(folder / "config.json")
            fingerprint = _fingerprint(config, folder)
            if (folder / "generation_config.json").exists():
                config = {**config, **_end_ids(_read_json(folder / "generation_config.json"))}
        elif _looks_local(path):
            raise ModelError(f"model folder {folder} does not exist; give a checkpoint folder or a hub id (org/name)")
        else:
            config = _from_hub(path, trust_remote_code)
            fingerprint = _fingerprint(config, None)
        return cls._from_config(path, config, fingerprint)

    @classmethod
    def _from_config(cls, path: str, config: Mapping[str, Any], fingerprint: str) -> ModelInfo:
        text = {**config, **config.get("text_config", {})}
        vocab_size = text.get("vocab_size")
        if not isinstance(vocab_size, int) or vocab_size < 1:
            raise ModelError(f"{path}: config.json has no vocab_size, so token ids cannot be checked")
        context = next((text[key] for key in _CONTEXT_KEYS if isinstance(text.get(key), int)), None)
        architectures = config.get("architectures") or [config.get("model_type", "unknown")]
        end_ids = _end_ids(text).get("eos_token_id", [])
        return cls(path, str(architectures[0]), vocab_size, context, fingerprint, tuple(end_ids))


def _end_ids(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """The end-of-sequence ids of a config as a list, if it names any."""
    ids = config.get("eos_token_id")
    return {} if ids is None else {"eos_token_id": ids if isinstance(ids, list) else [ids]}


def _looks_local(path: str) -> bool:
    return path.startswith(("/", "./", "../", "~")) or path.count("/") > 1 or not path.strip()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{file.parent} has no config.json; is it a Hugging Face checkpoint folder?") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} holds {type(content).__name__}, expected an object")
    return content


def _from_hub(path: str, trust_remote_code: bool) -> dict[str, Any]:
    # Imported here: transformers takes a second, and a local folder does not need it.
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"'{path}' is neither a folder here nor a model that the hub gave ({reason}); check the path or the network"
        ) from error
    content: dict[str, Any] = config.to_dict()
    return content


def _fingerprint(config: Mapping[str, Any], folder: Path | None) -> str:
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for file in sorted(folder.glob("*.safetensors")) if folder else ():
        digest.update(f"{file.name}:{file.stat().st_size};".encode())
    return digest.hexdigest()
