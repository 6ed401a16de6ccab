"""Tiny random models of several families, and engines that serve them in this process."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rollout_transformers.engine.engine import Engine  # noqa: E402
from rollout_transformers.engine.request import parse_body  # noqa: E402
from rollout_transformers.engine.settings import EngineSettings  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollout"
DEMO_MODEL = CACHE / "SmolLM2-135M-Instruct"

SIZES: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    # Wide enough that no two tokens are close to a tie.
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
WINDOW = 12
LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}


def tiny_config(family: str) -> Any:
    """Config of a random model of `family` that runs in milliseconds."""
    if family == "llama":
        return transformers.LlamaConfig(**SIZES)
    if family == "qwen2":
        return transformers.Qwen2Config(
            **SIZES, use_sliding_window=True, sliding_window=WINDOW, layer_types=LAYER_TYPES
        )
    if family == "qwen3":
        return transformers.Qwen3Config(**SIZES)
    if family == "qwen3_moe":
        return transformers.Qwen3MoeConfig(**SIZES, **EXPERTS)
    if family == "gemma2":
        return transformers.Gemma2Config(
            **SIZES, sliding_window=WINDOW, layer_types=LAYER_TYPES, attn_logit_softcapping=5.0
        )
    if family == "gemma3":
        return transformers.Gemma3TextConfig(**SIZES, sliding_window=WINDOW, layer_types=LAYER_TYPES)
    if family == "gpt_oss":
        return transformers.GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    raise ValueError(family)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a tiny checkpoint of a family."""
    if not (DEMO_MODEL / "tokenizer.json").is_file():
        pytest.skip("the tokenizer is missing: run examples/make_demo_model.py")
    made: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            torch.manual_seed(1)
            transformers.AutoModelForCausalLM.from_config(tiny_config(family)).save_pretrained(folder)
            transformers.AutoTokenizer.from_pretrained(DEMO_MODEL).save_pretrained(folder)
            made[family] = folder
        return made[family]

    return get


class Served:
    """An engine with shorthands for tests."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def submit(self, prompt: list[int], **fields: Any) -> Any:
        """The future of a reply."""
        return self.engine.generate(parse_body({"prompt_ids": prompt, **fields}))[1]

    def generate(self, prompt: list[int], **fields: Any) -> dict[str, Any]:
        """The reply."""
        reply: dict[str, Any] = self.submit(prompt, **fields).result(timeout=60)
        return reply

    def together(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replies of requests that are all waiting before the engine takes the first one."""
        self.engine.pause("keep").result(timeout=60)
        futures = [self.submit(**request) for request in requests]
        self.engine.resume().result(timeout=60)
        return [future.result(timeout=60) for future in futures]


@pytest.fixture(scope="session")
def reference(checkpoint: Callable[[str], Path]) -> Callable[..., Any]:
    """A plain teacher-forced forward pass with the library's own attention: log-probabilities [tokens, vocabulary]."""
    models: dict[str, Any] = {}

    def logprobs(family: str, ids: list[int], **fields: Any) -> Any:
        if family not in models:
            folder = DEMO_MODEL if family == "smollm2" else checkpoint(family)
            models[family] = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
        with torch.inference_mode():
            output = models[family](input_ids=torch.tensor([ids]), use_cache=False, **fields)
        return output if fields else torch.log_softmax(output.logits[0].float(), -1)

    return logprobs


@pytest.fixture
def serve(checkpoint: Callable[[str], Path]) -> Iterator[Callable[..., Served]]:
    """A function that starts an engine for a family; the engines end with the test."""
    started: list[Engine] = []

    def start(family: str = "llama", **settings: Any) -> Served:
        engine = Engine(EngineSettings(model_path=checkpoint(family), **settings))
        engine.start()
        started.append(engine)
        return Served(engine)

    yield start
    for engine in started:
        engine.stop()


@pytest.fixture(scope="module")
def llama(checkpoint: Callable[[str], Path]) -> Iterator[Served]:
    """One engine for the tests of a module that need no settings of their own."""
    engine = Engine(EngineSettings(model_path=checkpoint("llama"), max_batch_size=32))
    engine.start()
    yield Served(engine)
    engine.stop()


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(2)


@pytest.fixture
def prompt() -> Callable[[int, int], list[int]]:
    """A function that makes a random prompt from a seed and a length."""

    def make(seed: int, length: int = 20) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = torch.randint(3, 49152, (length,), generator=generator).tolist()
        return ids

    return make
