"""The load checks, each with the error that a user sees."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from rollout_core import (
    BackendNotFoundError,
    CapabilityError,
    ConfigError,
    PluginLoadError,
    Plugins,
    RolloutConfig,
    hookimpl,
)
from rollout_core.plugins.catalog import list_plugins
from rollout_core.plugins.hookspecs import GROUPS

Install = Callable[..., str]


def load(backend: str = "toy", **more: object) -> Plugins:
    return Plugins.load(RolloutConfig(model_path="m", backend=backend, **more))  # type: ignore[arg-type]


def test_a_backend_is_found_by_its_name_with_its_distribution_and_groups(install: Install) -> None:
    install("toy")
    plugins = load()
    assert (plugins.backend.name, plugins.backend.distribution, plugins.backend.version) == (
        "toy",
        "rollout-toy",
        "2.0",
    )
    assert plugins.backend.groups == {"required"}


def test_options_are_validated_by_the_backends_own_model(install: Install) -> None:
    install("toy")
    assert load(backend_options={"speed": 3}).config.backend_options.speed == 3  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"backend_options of 'toy'.*sped.*speed"):
        load(backend_options={"sped": 3})


def test_an_unknown_backend_says_what_is_installed_and_what_to_install(install: Install) -> None:
    install("toy")
    with pytest.raises(BackendNotFoundError, match=r"not installed \(installed: .*toy.*pip install rollout-vllm"):
        load("vllm")


def test_only_the_selected_backend_is_imported(install: Install) -> None:
    broken = install("broken", "raise RuntimeError('must not be imported')")
    install("toy")
    assert load().backend.name == "toy"
    assert broken not in sys.modules


def test_a_backend_provided_twice_is_refused_with_both_named(install: Install) -> None:
    install("toy", dist="rollout-toy-one")
    install("toy", dist="rollout-toy-two")
    with pytest.raises(PluginLoadError, match=r"2 times.*rollout-toy-.* uninstall all but one"):
        load()


def test_a_backend_whose_import_fails_raises_with_distribution_version_value_and_cause(install: Install) -> None:
    install("toy", "import no_such_engine")
    with pytest.raises(PluginLoadError, match=r"rollout-toy 2\.0 \(rollout_toy\).*ModuleNotFoundError.*no_such_engine"):
        load()


def test_a_missing_required_hook_is_named(install: Install) -> None:
    install("toy", "from rollout_core import hookimpl\n@hookimpl\ndef describe_backend(): ...")
    with pytest.raises(PluginLoadError, match=r"build_payload, build_topology.*'required' are missing"):
        load()


def test_half_an_optional_group_is_refused(install: Install, toy_source: str) -> None:
    half = "\n@hookimpl\ndef pause_generation(config, server, mode, call): ...\n"
    install("toy", toy_source + half)
    with pytest.raises(PluginLoadError, match=r"abort_requests, continue_generation of the group 'generation'"):
        load()


def test_a_hook_that_core_does_not_know_is_refused(install: Install, toy_source: str) -> None:
    install("toy", toy_source + "\n@hookimpl\ndef build_paylod(config): ...\n")
    with pytest.raises(PluginLoadError, match="build_paylod"):
        load()


def test_a_hook_with_an_unknown_argument_is_refused(install: Install, toy_source: str) -> None:
    install("toy", toy_source.replace("build_payload(config, request)", "build_payload(config, prompt)"))
    with pytest.raises(PluginLoadError, match="prompt"):
        load()


@pytest.mark.parametrize(("api", "who"), [(2, "rollout-core"), (0, "the plugin")])
def test_another_plugin_api_says_which_side_to_upgrade(install: Install, api: int, who: str) -> None:
    install("toy", api=api)
    with pytest.raises(PluginLoadError, match=f"plugin API {api}, this core has 1; upgrade {who}"):
        load()


def test_a_backend_is_called_as_its_entry_point(install: Install, toy_source: str) -> None:
    install("toy", toy_source.replace("name='toy'", "name='other'"))
    with pytest.raises(PluginLoadError, match="calls itself 'other'"):
        load()


def test_an_extension_may_wrap_a_backend_hook_but_not_answer_it(install: Install) -> None:
    install("toy")
    wraps = (
        "from rollout_core import hookimpl\n@hookimpl(wrapper=True)\n"
        "def build_payload(config, request):\n    return (yield)"
    )
    install("trace", wraps, group="rollout.extensions")
    answers = "from rollout_core import hookimpl\n@hookimpl\ndef build_payload(config, request): ..."
    install("thief", answers, group="rollout.extensions")
    assert load(extensions=("trace",)).backend.name == "toy"
    with pytest.raises(PluginLoadError, match=r"extension 'thief': build_payload is a backend hook"):
        load(extensions=("thief",))


def test_an_unknown_extension_is_an_error(install: Install) -> None:
    install("toy")
    with pytest.raises(BackendNotFoundError, match="extension 'nope' is not installed"):
        load(extensions=("nope",))


def test_a_setting_that_the_backend_does_not_offer_is_refused_before_anything_starts(install: Install) -> None:
    install("toy")
    with pytest.raises(CapabilityError, match="does not offer float8, which the setting float8 needs"):
        load(float8=True)


def test_a_registered_reward_is_asked_and_several_extensions_hear_an_event(install: Install) -> None:
    install("toy")
    plugins = load()
    assert not plugins.offers("score_sample")

    class Reward:
        @hookimpl
        def score_sample(self, config: object, sample: object) -> float:
            return 0.5

    plugins.register(Reward(), "reward")
    assert plugins.offers("score_sample")
    assert plugins.hook.score_sample(config=plugins.config, sample=None) == 0.5


def test_the_catalog_lists_working_and_broken_plugins(install: Install) -> None:
    install("toy")
    install("broken", "import no_such_engine")
    found = {entry.name: entry for entry in list_plugins()}
    assert (found["toy"].status, found["toy"].distribution, found["toy"].capabilities) == (
        "ok",
        "rollout-toy",
        ("seed",),
    )
    assert found["broken"].status == "broken"
    assert "no_such_engine" in found["broken"].detail


def test_listing_the_plugins_does_not_import_an_engine() -> None:
    code = (
        "import sys; from rollout_core.plugins.catalog import list_plugins; list_plugins(); "
        "print([m for m in ('torch', 'ray', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_hook_has_a_docstring_whose_first_line_is_a_sentence() -> None:
    for specs in GROUPS.values():
        for name, hook in vars(specs).items():
            if not name.startswith("_"):
                assert hook.__doc__.strip().splitlines()[0].endswith("."), name
