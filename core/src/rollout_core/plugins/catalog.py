"""Lists what is installed, for people and for ``rollout plugins``. A broken plugin is a line, not an error."""

from __future__ import annotations

from dataclasses import dataclass

from importlib_metadata import EntryPoint, PackageNotFoundError, version

from rollout_core.errors import PluginError
from rollout_core.plugins.manager import (
    BACKENDS,
    check_extension,
    check_groups,
    describe,
    describe_entry,
    find_entry_point,
    import_entry_point,
    list_entry_points,
    new_manager,
)

__all__ = ["PluginEntry", "list_plugins"]


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """One installed plugin."""

    name: str
    kind: str
    """``backend`` or ``extension``."""
    distribution: str
    version: str
    value: str
    """The entry point's value: the module."""
    status: str
    """``ok``, ``broken``, or ``engine missing``: the plugin works, its engine is not installed here."""
    detail: str = ""
    """Why it is broken, or what to install."""
    groups: tuple[str, ...] = ()
    """Hook groups that it has."""
    capabilities: tuple[str, ...] = ()
    engine: str | None = None
    """Distribution name of the engine."""
    engine_version: str | None = None
    """The engine's installed version."""


def list_plugins() -> list[PluginEntry]:
    """Every installed backend and extension with its status. Plugin modules are imported, engines are not."""
    return [_entry(entry) for entry in list_entry_points()]


def _entry(entry: EntryPoint) -> PluginEntry:
    kind = "backend" if entry.group == BACKENDS else "extension"
    dist, dist_version = (entry.dist.name, entry.dist.version) if entry.dist is not None else ("?", "?")
    manager = new_manager()
    try:
        find_entry_point(entry.group, entry.name)
        import_entry_point(manager, entry)
        plugin = manager.get_plugin(entry.name)
        if kind == "extension":
            check_extension(manager, plugin, entry.name)
            return PluginEntry(entry.name, kind, dist, dist_version, entry.value, "ok")
        groups = check_groups(manager, plugin, describe_entry(entry))
        info = describe(manager, entry.name, describe_entry(entry))
    except PluginError as error:
        return PluginEntry(entry.name, kind, dist, dist_version, entry.value, "broken", str(error))
    engine_version = _installed(info.engine_package)
    missing = info.engine_package is not None and engine_version is None
    return PluginEntry(
        name=entry.name,
        kind=kind,
        distribution=dist,
        version=dist_version,
        value=entry.value,
        status="engine missing" if missing else "ok",
        detail=f"pip install '{dist}[engine]' where the engine runs" if missing else "",
        groups=tuple(sorted(groups)),
        capabilities=tuple(sorted(capability.value for capability in info.capabilities)),
        engine=info.engine_package,
        engine_version=engine_version,
    )


def _installed(package: str | None) -> str | None:
    try:
        return version(package) if package else None
    except PackageNotFoundError:
        return None
