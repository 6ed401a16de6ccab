"""The import order: a module imports only from its left, and core names no backend."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src" / "rollout_core"
PLUGINS = sorted((ROOT / "plugins").glob("*/src/*"))
# "run" is the main job; "testing" is the conformance kit, which drives everything but the command line.
ORDER = [
    "errors",
    "types",
    "topology",
    "config",
    "model",
    "plugins.hookspecs",
    "plugins.backend",
    "plugins.requirements",
    "plugins.manager",
    "plugins.catalog",
    "plugins",
    "guard",
    "process",
    "ports",
    "worker",
    "executors",
    "weights",
    "controller",
    "control",
    "client",
    "render",
    "run",
    "testing",
    "cli",
    "__main__",
]
HOMES = {"pluggy": "plugins", "ray": "executors.ray", "click": "cli", "torch": ("weights", "testing.live.reference")}
ENGINES = {"vllm", "sglang", "lmdeploy"}


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def name_of(file: Path) -> str:
    name = ".".join(file.relative_to(CORE).with_suffix("").parts)
    return name.removesuffix(".__init__") if name != "__init__" else ""


def place(name: str) -> int:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in ORDER:
            return ORDER.index(prefix)
    raise AssertionError(f"{name} has no place in the import order; give it one")


def run_time_imports(file: Path) -> set[str]:
    """Imported modules, those under ``if TYPE_CHECKING`` left out."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.add(child.module)
            walk(child)

    walk(ast.parse(file.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("file", [f for f in modules(CORE) if name_of(f)], ids=name_of)
def test_a_module_of_core_imports_only_from_its_left(file: Path) -> None:
    mine = name_of(file)
    for imported in run_time_imports(file):
        if imported.startswith("rollout_core."):
            other = imported.removeprefix("rollout_core.")
            same_package = other.split(".")[0] == mine.split(".")[0]
            assert same_package or place(other) < place(mine), f"{mine} imports {other}, which is to its right"


@pytest.mark.parametrize("file", modules(CORE), ids=lambda f: name_of(f) or "rollout_core")
def test_each_outside_library_lives_in_one_layer_and_core_imports_no_engine(file: Path) -> None:
    for imported in run_time_imports(file):
        top = imported.split(".")[0]
        assert top not in ENGINES, f"{name_of(file)} imports {imported}"
        if top in HOMES:
            assert name_of(file).startswith(HOMES[top]), f"{name_of(file)} imports {imported}"


@pytest.mark.parametrize("package", PLUGINS, ids=lambda p: p.name)
def test_a_plugin_imports_public_names_of_core_and_no_other_plugin(package: Path) -> None:
    others = {p.name for p in PLUGINS} - {package.name}
    public = {f"rollout_core{part}" for part in ("", ".types", ".topology", ".weights", ".testing")}
    for file in modules(package):
        for imported in run_time_imports(file):
            assert imported.split(".")[0] not in others, f"{file.name} imports {imported}"
            assert not imported.startswith("rollout_core") or imported in public, f"{file.name} imports {imported}"


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_core_imports_neither_torch_nor_transformers_nor_ray() -> None:
    code = "import rollout_core\nfor name in rollout_core.__all__: getattr(rollout_core, name)"
    assert not imported_by(code) & {"torch", "transformers", "ray"}
    assert not imported_by("import rollout_core") & {"pydantic", "pluggy", "httpx", "aiohttp", "click"}


def test_importing_the_plugin_imports_no_engine() -> None:
    assert not imported_by("import rollout_transformers.plugin") & {"torch", "transformers", "ray"}


def test_every_public_name_is_there_and_sorted() -> None:
    import rollout_core

    assert rollout_core.__all__ == sorted(rollout_core.__all__)
    assert all(getattr(rollout_core, name) is not None for name in rollout_core.__all__)
    assert dir(rollout_core) == rollout_core.__all__
