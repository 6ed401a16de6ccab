"""The pages say what the code says."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from rollout_core.config import RolloutConfig
from rollout_core.plugins.hookspecs import GROUPS, ExtensionSpecs
from rollout_core.run.record import record_of
from rollout_core.types import GenerateResult, Sample
from rollout_transformers.options import TransformersOptions

XTUNER_FIELDS = """
env device model_path model_name tokenizer_path api_key gpus_per_node dtype gpu_memory_utilization random_seed
rollout_cross_node_comm dist_port_base weight_update_host weight_update_port rollout_max_batch_size_per_instance
allow_over_concurrency_ratio tensor_parallel_size data_parallel_size expert_parallel_size enable_chunked_prefill
chunked_prefill_size skip_load_weights enable_return_routed_experts launch_server_method rollout_timeout
session_server_timeout context_length enable_float8 extra_rollout_config max_retry_per_worker max_retry_per_sample
max_prefill_token_num router_n_groups fp32_lm_head worker_log_dir health_check_interval_seconds
health_check_timeout_seconds health_check_failure_threshold enable_proxy routed_proxy_url routed_proxy_admin_url
"""
XTUNER_SWITCHES = ("XTUNER_USE_VLLM", "XTUNER_USE_SGLANG", "XTUNER_USE_LMDEPLOY")


def first_cells(page: str) -> set[str]:
    """What stands in code marks at the start of a table row."""
    return set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))


@pytest.mark.parametrize("name", ["configuration", "hooks", "cli", "capabilities"])
def test_a_generated_page_is_fresh(docs: Path, name: str):
    spec = importlib.util.spec_from_file_location(f"make_{name}", docs / f"make_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.PAGE.read_text() == maker.page(), f"run: python docs/make_{name}.py"


def test_each_hook_has_a_heading_with_its_signature(docs: Path):
    headings = re.findall(r"^### `(.+)`$", (docs / "hooks.md").read_text(), re.MULTILINE)
    hooks = [
        hook
        for specs in (*GROUPS.values(), ExtensionSpecs)
        for name, hook in vars(specs).items()
        if hasattr(hook, "rollout_spec")
    ]
    expected = [
        f"{hook.__name__}({', '.join(name for name in inspect.signature(hook).parameters if name != 'self')})"
        for hook in hooks
    ]
    assert headings == expected
    assert len(headings) >= 16


def test_each_field_of_the_config_is_on_its_page(docs: Path):
    assert first_cells((docs / "configuration.md").read_text()) == set(RolloutConfig.model_fields)


def test_each_option_of_the_embedded_backend_is_on_its_page(docs: Path):
    assert set(TransformersOptions.model_fields) <= first_cells((docs / "backends" / "transformers.md").read_text())


def test_each_field_of_a_sample_is_on_the_page_of_the_output(docs: Path):
    sample = Sample("0-0", 0, 0, "text", {}, GenerateResult("r", (1,)))
    assert set(record_of(sample)) <= first_cells((docs / "output.md").read_text())


def test_each_field_and_switch_of_xtuner_is_mapped(docs: Path):
    page = (docs / "migrating-from-xtuner.md").read_text()
    assert set(XTUNER_FIELDS.split()) <= first_cells(page)
    for switch in XTUNER_SWITCHES:
        assert f"| `{switch}=1` | `backend = " in page


def test_what_xtuner_fields_are_mapped_to_exists(docs: Path):
    page = (docs / "migrating-from-xtuner.md").read_text()
    rows = re.findall(r"^\| `\w+` \| \[?`(\w+)`", page.partition("## Fields")[2], re.MULTILINE)
    assert len(rows) > 30
    assert set(rows) <= set(RolloutConfig.model_fields)


def test_links_between_files_lead_somewhere(root: Path, docs: Path):
    pages = [*docs.rglob("*.md"), *root.glob("*.md"), *root.glob("core/*.md"), *root.glob("plugins/*/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(root)} links to {target}"


def test_links_to_headings_of_the_own_page_lead_somewhere(docs: Path):
    for page in docs.rglob("*.md"):
        text = page.read_text()
        slugs = {
            re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.+)$", text, re.M)
        }
        for target in re.findall(r"\]\(#([^)]+)\)", text):
            assert target in slugs, f"{page.name} has no heading #{target}"


def test_each_page_is_in_the_navigation(root: Path, docs: Path):
    navigation = (root / "mkdocs.yml").read_text()
    for page in docs.rglob("*.md"):
        assert f": {page.relative_to(docs)}\n" in navigation
