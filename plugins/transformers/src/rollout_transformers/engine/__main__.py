"""Command line of the server: load the model, then listen until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from rollout_transformers.engine.settings import EngineSettings, StartupError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the server; the exit code is 1 when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m rollout_transformers.engine", description=__doc__)
    parser.add_argument("--config-json", required=True, metavar="JSON", help="settings as JSON, or a file of them")
    try:
        settings = read_settings(parser.parse_args(arguments).config_json)
        logging.basicConfig(
            level=settings.log_level.upper(),
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        serve(settings)
    except StartupError as err:
        print(f"rollout-transformers: {err}", file=sys.stderr)
        return 1
    return 0


def read_settings(text: str) -> EngineSettings:
    """Settings from JSON text or from the file that it names."""
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text()
        except OSError as err:
            raise StartupError(f"cannot read the settings file {text}: {err.strerror}") from err
    try:
        return EngineSettings.model_validate_json(text)
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        raise StartupError(f"{place}: {first['msg']}") from err


def serve(settings: EngineSettings) -> None:
    """Load the model, then serve it until the process is told to stop."""
    # OpenMP reads this when torch is imported; spinning threads slow each other down on a loaded machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch
    import uvicorn

    from rollout_transformers.engine.app import App
    from rollout_transformers.engine.engine import Engine

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    api_keys = settings.api_keys()
    engine = Engine(settings)
    engine.start()
    config = uvicorn.Config(
        App(engine, api_keys),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        backlog=4096,
    )
    try:
        uvicorn.Server(config).run()
    finally:
        engine.stop()


if __name__ == "__main__":
    sys.exit(main())
