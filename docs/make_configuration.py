"""Writes configuration.md from the config model. Run it after a change of the model: a test compares the two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic_core import to_jsonable_python

from rollout_core.config import RolloutConfig
from rollout_core.config.fields import FieldDoc, list_fields

PAGE = Path(__file__).with_name("configuration.md")

INTRO = """# Configuration

A run has one config: `RolloutConfig` in Python, TOML in a file, `--set` on the command line. It is read once,
checked as a whole, and never changed afterwards. No environment variable selects behaviour.

## Where values come from

Later ones win, field by field:

1. the defaults below;
2. the files given with `-c FILE`, in their order;
3. `--set KEY=VALUE`, in their order;
4. options of a command that have a name of their own, such as `--model` or `--gpus`.

```toml title="run.toml"
model_path = "Qwen/Qwen3-0.6B"
engines = 2
context_length = 4096

[env]
OMP_NUM_THREADS = 1

[backend_options]
prefix_reuse = true
```

```console
$ rollout run -c run.toml --set engines=1 --set backend_options.threads=2 --prompts prompts.jsonl --output out
```

The value of `--set` is read as a TOML value; what is none is taken as text, so `--set model_path=Qwen/Qwen3-0.6B` needs
no inner quotes. Tables such as `env` are merged key by key, everything else is replaced. Relative paths are relative to
the folder that the command is started in.

A wrong file is told in one go, a line for each problem, with the place and the nearest known name:

```console
$ rollout config check run.toml
Error: run.toml:2: engine is not a known setting; did you mean engines?
run.toml:3: context_length is "4k"; expected a whole number
```

`rollout config init` writes a commented file with everything on this page and the options of a backend,
`rollout config show` prints what a run would use, and `rollout config schema` writes a JSON schema for editors.

## Secrets

`api_keys` are never logged, shown or written to a run's manifest. Text in `env` and `backend_options` is masked where
its name ends in `key`, `token`, `secret`, `password` or `credentials`. A key in a file is safer than one on the
command line, which other users of the machine can read.

"""


def page() -> str:
    """The whole page."""
    return INTRO + "".join(_rows())


def _rows() -> Iterator[str]:
    for field in list_fields(RolloutConfig):
        if field.section:
            yield f"\n## {field.section}\n\n| field | meaning | value | default |\n|---|---|---|---|\n"
        yield _row(field)


def _row(field: FieldDoc) -> str:
    meaning = field.meaning.replace("``", "`").replace("|", "\\|")
    return f"| `{field.name}` | {meaning} | {field.accepts} | {_default(field)} |\n"


def _default(field: FieldDoc) -> str:
    if field.required:
        return "required"
    return "unset" if field.default is None else f"`{json.dumps(to_jsonable_python(field.default))}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
