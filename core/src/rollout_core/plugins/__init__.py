"""Plugins: what a backend implements, and how core finds and calls it."""

from rollout_core.plugins.backend import Backend
from rollout_core.plugins.hookspecs import BackendSpecs, ExtensionSpecs, hookimpl
from rollout_core.plugins.manager import Plugins

__all__ = ["Backend", "BackendSpecs", "ExtensionSpecs", "Plugins", "hookimpl"]
