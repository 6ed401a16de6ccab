"""The code in the README and the quickstart runs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rollout_core
from rollout_core.config import load_config

SUBCOMMANDS = ("init", "check", "show", "schema")
PLACE = "path/to/SmolLM2-135M-Instruct"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer of bytes, made without a download."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tiny-llama")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_python_example_of_the_readme_draws_a_sample(root: Path, tiny_model: Path):
    code, *_ = blocks(root / "README.md", "python")
    assert PLACE in code
    script = code.replace(PLACE, str(tiny_model))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\(\d+(, \d+){15}\) \(-\d", done.stdout), done.stdout


def test_the_python_example_of_the_quickstart_names_what_exists(docs: Path):
    (code,) = blocks(docs / "index.md", "python")
    tree = ast.parse(code)
    (imported,) = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    assert [name.name for name in imported.names if not hasattr(rollout_core, name.name)] == []


def test_the_config_example_is_a_config(docs: Path, tmp_path: Path):
    (text,) = blocks(docs / "configuration.md", "toml")
    (tmp_path / "run.toml").write_text(text)
    assert load_config([tmp_path / "run.toml"]).engines == 2


def test_commands_on_the_pages_have_options_that_exist(root: Path, docs: Path):
    from rollout_core.cli import main

    known = dict(re.findall(r"^## (rollout [\w ]+)\n(.*?)(?=^## |\Z)", cli_page(docs), re.M | re.S))
    for page in (root / "README.md", *docs.rglob("*.md")):
        for words in re.findall(r"^\$ (rollout .+(?:\\\n.+)*)$", page.read_text(), re.MULTILINE):
            command = " ".join(word for word in words.split()[:3] if word in {"rollout", *main.lazy, *SUBCOMMANDS})
            for option in re.findall(r" (--?[a-z][a-z-]*)", words):
                assert option in known.get(command, "") + " --help --debug", f"{page.name}: {words}"


def cli_page(docs: Path) -> str:
    """The page of all options."""
    return (docs / "cli.md").read_text()
