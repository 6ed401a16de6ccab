"""Finds, loads and checks the plugins of one run.

One :class:`Plugins` is built from the config in each process that needs it. Only the selected backend and the
named extensions are imported, so an unselected plugin costs nothing, however broken or slow it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pluggy
from importlib_metadata import EntryPoint, entry_points
from pydantic import BaseModel, ValidationError

from rollout_core.config import RolloutConfig
from rollout_core.config.explain import explain
from rollout_core.errors import BackendNotFoundError, ConfigError, PluginLoadError
from rollout_core.plugins.backend import Backend
from rollout_core.plugins.hookspecs import GROUPS, PROJECT, ExtensionSpecs
from rollout_core.plugins.requirements import check_config
from rollout_core.types import PLUGIN_API, BackendInfo

__all__ = ["BACKENDS", "EXTENSIONS", "Plugins"]

BACKENDS = "rollout.backends"
EXTENSIONS = "rollout.extensions"


class Plugins:
    """The loaded plugins of a run: one backend and any number of extensions.

    Attributes:
        config: the run's config, its ``backend_options`` validated by the backend's own model.
        backend: the typed face through which core calls the backend.
        hook: pluggy's relay, for the extension hooks.
    """

    def __init__(self, manager: pluggy.PluginManager, config: RolloutConfig, backend: Backend) -> None:
        """Use :meth:`load` or :meth:`from_objects`."""
        self._manager = manager
        self.config = config
        self.backend = backend
        self.hook = manager.hook

    @classmethod
    def load(cls, config: RolloutConfig) -> Plugins:
        """Load the backend and the extensions that the config names.

        Raises:
            BackendNotFoundError: nothing installed provides the name.
            PluginLoadError: a load check failed; the message names distribution, version and cause.
            ConfigError: the backend refuses its ``backend_options``.
            CapabilityError: the config asks for something that the backend does not offer.
        """
        manager = new_manager()
        entry = find_entry_point(BACKENDS, config.backend)
        import_entry_point(manager, entry)
        for name in config.extensions:
            import_entry_point(manager, find_entry_point(EXTENSIONS, name))
        return cls._checked(manager, config, manager.get_plugin(config.backend), describe_entry(entry), entry.dist)

    @classmethod
    def from_objects(
        cls, config: RolloutConfig, backend: object, extensions: Mapping[str, object] | None = None
    ) -> Plugins:
        """Load plugin modules or objects that are not installed, with the same checks; for tests."""
        manager = new_manager()
        manager.register(backend, name=config.backend)
        for name, extension in (extensions or {}).items():
            manager.register(extension, name=name)
        return cls._checked(manager, config, backend, f"backend '{config.backend}'", None)

    @classmethod
    def _checked(
        cls, manager: pluggy.PluginManager, config: RolloutConfig, plugin: object, origin: str, dist: Any
    ) -> Plugins:
        try:
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise PluginLoadError(f"{origin}: {error}; hooks are listed in docs/hooks.md") from error
        groups = check_groups(manager, plugin, origin)
        for name, extension in manager.list_name_plugin():
            if extension is not plugin:
                check_extension(manager, extension, name)
        info = describe(manager, config.backend, origin)
        config = config.model_copy(update={"backend_options": validate_options(config, info)})
        name, version = (dist.name, dist.version) if dist is not None else ("", "")
        face = Backend(manager, config, info, groups, name, version)
        check_config(face)
        return cls(manager, config, face)

    def register(self, extension: object, name: str) -> None:
        """Add an extension object, such as a reward function of the command line."""
        self._manager.register(extension, name=name)
        check_extension(self._manager, extension, name)

    def offers(self, hook_name: str) -> bool:
        """Whether any plugin implements the hook."""
        return bool(getattr(self.hook, hook_name).get_hookimpls())


def new_manager() -> pluggy.PluginManager:
    """A manager that knows all hook specifications and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    for specs in (*GROUPS.values(), ExtensionSpecs):
        manager.add_hookspecs(specs)
    return manager


def describe_entry(entry: EntryPoint) -> str:
    """Name, distribution, version and value of an entry point, for messages."""
    dist = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
    return f"plugin '{entry.name}' of {dist} ({entry.value})"


def find_entry_point(group: str, name: str) -> EntryPoint:
    """The one entry point of a name.

    Raises:
        BackendNotFoundError: none, with what is installed and what to install.
        PluginLoadError: several distributions provide it.
    """
    kind = "backend" if group == BACKENDS else "extension"
    installed = entry_points(group=group)
    # The same distribution may be on the path twice (editable and built): that is one provider.
    found = list({(e.value, e.dist and e.dist.name): e for e in installed if e.name == name}.values())
    if not found:
        names = ", ".join(sorted({e.name for e in installed})) or "none"
        raise BackendNotFoundError(
            f"{kind} '{name}' is not installed (installed: {names}); "
            f"try: pip install rollout-{name}, or choose an installed one"
        )
    if len(found) > 1:
        raise PluginLoadError(
            f"{kind} '{name}' is provided {len(found)} times: {'; '.join(map(describe_entry, found))}; "
            f"uninstall all but one"
        )
    entry: EntryPoint = found[0]
    return entry


def import_entry_point(manager: pluggy.PluginManager, entry: EntryPoint) -> None:
    """Import and register a plugin; any failure of its import raises with the cause."""
    origin = describe_entry(entry)
    try:
        manager.load_setuptools_entrypoints(entry.group, name=entry.name)
    except Exception as error:
        raise PluginLoadError(f"{origin} failed to load: {type(error).__name__}: {error}") from error
    if manager.get_plugin(entry.name) is None:
        raise PluginLoadError(f"{origin} was not registered: the entry point holds None or the name is blocked")


def check_groups(manager: pluggy.PluginManager, plugin: object, origin: str) -> frozenset[str]:
    """The groups of hooks that the plugin has; a group is whole or absent, ``required`` is whole."""
    mine = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    present = set()
    for group, specs in GROUPS.items():
        hooks = {name for name in vars(specs) if not name.startswith("_")}
        missing = sorted(hooks - mine)
        if missing and (group == "required" or hooks & mine):
            raise PluginLoadError(
                f"{origin}: the hooks {', '.join(missing)} of the group '{group}' are missing; "
                f"{'every backend has them' if group == 'required' else 'a group is whole or absent'}"
            )
        if not missing:
            present.add(group)
    return frozenset(present)


def check_extension(manager: pluggy.PluginManager, extension: object, name: str) -> None:
    """An extension wraps and observes: it never answers in the place of a backend."""
    backend_hooks = {hook for specs in GROUPS.values() for hook in vars(specs)}
    for caller in manager.get_hookcallers(extension) or ():
        if caller.name not in backend_hooks:
            continue
        for impl in caller.get_hookimpls():
            if impl.plugin is extension and not (impl.wrapper or impl.hookwrapper):
                raise PluginLoadError(
                    f"extension '{name}': {caller.name} is a backend hook; an extension may only wrap it "
                    f"(hookimpl(wrapper=True))"
                )


def describe(manager: pluggy.PluginManager, name: str, origin: str) -> BackendInfo:
    """The backend's own description, checked against its entry point and this core."""
    try:
        info = manager.hook.describe_backend()
    except Exception as error:
        raise PluginLoadError(f"{origin}: describe_backend failed: {type(error).__name__}: {error}") from error
    if not isinstance(info, BackendInfo):
        raise PluginLoadError(f"{origin}: describe_backend returned {type(info).__name__}, expected BackendInfo")
    if info.plugin_api != PLUGIN_API:
        newer = "rollout-core" if info.plugin_api > PLUGIN_API else "the plugin"
        raise PluginLoadError(
            f"{origin} is written for plugin API {info.plugin_api}, this core has {PLUGIN_API}; upgrade {newer}"
        )
    if info.name != name:
        raise PluginLoadError(f"{origin} calls itself '{info.name}'; its entry point must have the same name")
    return info


def validate_options(config: RolloutConfig, info: BackendInfo) -> BaseModel:
    """The table ``backend_options`` as the backend's model."""
    options = config.backend_options
    if isinstance(options, info.options):
        return options
    table = options.model_dump() if isinstance(options, BaseModel) else options
    try:
        return info.options.model_validate(table)
    except ValidationError as error:
        raise ConfigError(explain(error, f"backend_options of '{info.name}'", info.options)) from error


def list_entry_points(groups: Sequence[str] = (BACKENDS, EXTENSIONS)) -> list[EntryPoint]:
    """All installed plugins, in a stable order; nothing is imported."""
    found = [entry for group in groups for entry in entry_points(group=group)]
    return sorted(found, key=lambda entry: (groups.index(entry.group), entry.name))
