"""Writes hooks.md from the hook specifications. Run it after a change of them: a test compares the two."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rollout_core.plugins.hookspecs import GROUPS, ExtensionSpecs

PAGE = Path(__file__).with_name("hooks.md")

INTRO = """# Hooks

A plugin is a module (or object) with functions marked by `hookimpl`. Core finds it by its entry point, imports it only
when the config selects it, and calls each hook by keyword, with exactly the arguments of its signature here. A hook
function may leave out arguments that it does not need. Hooks are never `async`: what does I/O is handed in.

- `spawn(argv, env)` starts a server process that cannot outlive its driver.
- `call(http_call)` makes a control call to the server and returns its `Reply`; HTTP errors are replies too.

All types are public: `rollout_core.types`, `rollout_core.topology`, `rollout_core.RolloutConfig`.
[Writing a backend](writing-a-backend.md) builds a whole one.

| entry-point group | what it holds | how many run |
|---|---|---|
| `rollout.backends` | a backend: the required hooks, and any of the optional groups | the one that `backend` names |
| `rollout.extensions` | extension hooks, and wrappers around backend hooks | those that `extensions` names |

Loading stops with an error, before anything is started, when a name is not installed or provided twice, the import
fails, a hook is misspelt, a required hook is missing, an optional group is incomplete, an extension answers a backend
hook instead of wrapping it, the plugin is written for another plugin API, or the backend calls itself something else.
"""

TITLES = {
    "required": "Required",
    "generation": "Generation (optional group)",
    "memory": "Memory (optional group)",
    "weights": "Weights (optional group)",
    "health": "Health (optional group)",
}


def page() -> str:
    """The whole page."""
    groups = [(TITLES[group], specs) for group, specs in GROUPS.items()] + [("Extensions", ExtensionSpecs)]
    return INTRO + "".join(part for title, specs in groups for part in _group(title, specs))


def heading(hook: Callable[..., Any]) -> str:
    """``name(argument, ...)`` as it stands in the hook's heading."""
    names = [name for name in inspect.signature(hook).parameters if name != "self"]
    return f"{hook.__name__}({', '.join(names)})"


def _group(title: str, specs: type) -> Iterator[str]:
    yield f"\n## {title}\n\n{_markdown(specs.__doc__)}\n"
    for name, hook in vars(specs).items():
        if not name.startswith("_") and inspect.isfunction(hook):
            yield f"\n### `{heading(hook)}`\n\n```python\n{_typed(hook)}\n```\n\n{_markdown(hook.__doc__)}\n"


def _typed(hook: Callable[..., Any]) -> str:
    signature = inspect.signature(hook)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    lines = [f"    {parameter.name}: {parameter.annotation}," for parameter in parameters]
    inside = "\n" + "\n".join(lines) + "\n" if lines else ""
    return f"def {hook.__name__}({inside}) -> {signature.return_annotation}: ..."


def _markdown(docstring: str | None) -> str:
    """A docstring with code marks as in Markdown."""
    text = inspect.cleandoc(docstring or "").replace("``", "`")
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
