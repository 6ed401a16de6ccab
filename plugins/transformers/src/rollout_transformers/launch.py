"""Starts the embedded server: settings in a private file, one process on one device."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, cast

from rollout_core import RolloutConfig
from rollout_core.types import LaunchSpec, Server, Spawn
from rollout_transformers.options import TransformersOptions

__all__ = ["engine_settings", "launch"]


def launch(config: RolloutConfig, spec: LaunchSpec, spawn: Spawn) -> Server:
    """Write the settings and start the server's module with this interpreter."""
    settings_file = spec.run_dir / "settings.json"
    settings_file.write_text(json.dumps(engine_settings(config, spec), indent=2))
    process = spawn([sys.executable, "-m", "rollout_transformers.engine", "--config-json", str(settings_file)], ENV)
    return Server(url=spec.url, process=process)


ENV = {
    # Idle OpenMP threads that spin take the cores from the other engines and from the driver.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
}


def engine_settings(config: RolloutConfig, spec: LaunchSpec) -> dict[str, Any]:
    """The server's settings; what the config leaves open is left to the server."""
    options = cast(TransformersOptions, config.backend_options)
    settings: dict[str, Any] = {
        "model_path": config.model_path,
        "tokenizer_path": config.tokenizer_path,
        "served_model_name": config.name,
        "host": spec.host,
        "port": spec.port,
        "device": f"cuda:{spec.accelerators[0]}" if spec.accelerators else "cpu",
        "dtype": config.dtype,
        "context_length": config.context_length,
        "max_batch_size": config.max_batch_size,
        "max_prefill_tokens": config.chunked_prefill_size if config.chunked_prefill else config.max_prefill_tokens,
        # It is a fraction of an accelerator's memory; on CPU the driver and the trainer share the memory.
        "memory_fraction": config.memory_fraction if spec.accelerators else None,
        "random_seed": config.random_seed + spec.engine,
        "api_key_file": _key_file(config, spec),
        "trust_remote_code": config.trust_remote_code,
        "fp32_lm_head": config.fp32_lm_head,
        "return_routed_experts": config.routed_experts,
        "skip_load_weights": config.skip_load_weights,
        "weight_version": spec.weight_version,
        "threads": options.threads or _threads(config),
        "kv_cache_tokens": options.kv_cache_tokens,
        "max_queue": options.max_queue,
        "prefix_reuse": options.prefix_reuse,
        "offload_folder": options.offload_folder,
        "log_level": options.log_level,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _threads(config: RolloutConfig) -> int | None:
    """An equal share of the cores, so that engines side by side do not fight for them."""
    if config.accelerator != "cpu" or (config.engines or 1) == 1:
        return None
    return max(1, (os.cpu_count() or 1) // (config.engines or 1))


def _key_file(config: RolloutConfig, spec: LaunchSpec) -> str | None:
    """The keys, one per line, in a file that only this user can read: never on the command line."""
    if not config.api_keys:
        return None
    file = spec.run_dir / "api-keys"
    file.touch(mode=0o600)
    file.write_text("\n".join(key.get_secret_value() for key in config.api_keys))
    return str(file)
