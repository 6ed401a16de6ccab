"""What the live checks share: the engine, the prompts, and requests with names that tell what they are for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

from rollout_core.errors import EngineError, RolloutError
from rollout_core.model import ModelInfo
from rollout_core.testing.live.engine import LiveEngine
from rollout_core.testing.suite import Suite, expect, not_offered, not_run
from rollout_core.types import Capability, GenerateRequest, GenerateResult, Reply, SampleParams, Status

__all__ = ["LiveSuite"]

_TEXTS = (
    "The capital of France is",
    "Count from one to ten: one, two, three,",
    "Once upon a time there was a small robot who",
    "A recipe for bread needs flour, water and",
    "The three primary colours are",
    "In the morning the train leaves the station and",
    "Water boils at one hundred degrees because",
    "Dear Sir or Madam, I am writing to",
)


_KEY = "conformance-key"


class LiveSuite(Suite):
    """One engine for all checks of a class; it is started again when a check has killed it."""

    config: ClassVar[Mapping[str, Any]] = {"context_length": 512}
    """Settings of the config. A short context keeps the check of its limit quick."""

    prompts: ClassVar[Sequence[Sequence[int]]] = ()
    """At least four prompts as token ids. Unset: English sentences, where the model folder has a tokenizer."""

    eos_prompt: ClassVar[Sequence[int]] = ()
    """A prompt whose response ends by itself. Unset: one is looked for."""

    long_tokens: ClassVar[int] = 384
    """Budget of a response that must not end before a check interrupts it."""

    check_timeout_s: ClassVar[float] = 120.0
    """For one wait of a check."""

    logprob_tolerance: ClassVar[float] = 1e-3
    """Between two computations of the same log-probability."""

    tie_tolerance: ClassVar[float] = 0.02
    """Between the log-probabilities of two tokens of which a greedy engine may take either."""

    _engine: ClassVar[LiveEngine | None] = None
    _folder: ClassVar[tempfile.TemporaryDirectory[str] | None] = None
    _start_error: ClassVar[RolloutError | None] = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _engine_life(cls) -> Iterator[None]:
        yield
        cls.close_engine()

    @classmethod
    def close_engine(cls) -> None:
        """End the engine of this class; harmless when there is none."""
        if cls._engine is not None:
            cls._engine.close()
        if cls._folder is not None:
            cls._folder.cleanup()
        cls._engine = cls._folder = cls._start_error = None

    @property
    def engine(self) -> LiveEngine:
        """The running engine."""
        cls = type(self)
        if cls._start_error is not None:
            raise EngineError(f"the engine did not start: {cls._start_error}")
        if cls._engine is None:
            self._start()
        assert cls._engine is not None
        return cls._engine

    def ensure_alive(self) -> None:
        """Start the engine again if an earlier check has killed it."""
        cls = type(self)
        if cls._engine is not None and not cls._engine.alive:
            cls._engine.close()
            cls._engine = None

    def _start(self) -> None:
        cls = type(self)
        if self.model is None:
            not_run(f"{cls.__name__} names no model to serve; set `model`")
        cls._folder = cls._folder or tempfile.TemporaryDirectory(prefix="rollout-live-")
        try:
            cls._engine = LiveEngine(self.load(**self._key()), Path(cls._folder.name), self.check_timeout_s)
        except RolloutError as error:
            cls._start_error = error
            raise

    def _key(self) -> dict[str, Any]:
        return {"api_keys": [_KEY]} if self.face.offers(Capability.API_KEY) else {}

    # Prompts and requests

    @property
    def model_info(self) -> ModelInfo:
        """The model that the engine serves."""
        return self.engine.controller.model

    @property
    def context_length(self) -> int:
        """Longest prompt and response together, in tokens."""
        length = self.engine.controller.context_length
        return length if length is not None else not_run("neither config nor model sets a context length")

    def prompt(self, index: int = 0) -> tuple[int, ...]:
        """One of the prompts; later indices repeat the earlier ones with a token more."""
        prompts = self.prompts or self._tokenized() or self._numbered()
        base = tuple(prompts[index % len(prompts)])
        return base + base[:1] * (index // len(prompts))

    def _tokenized(self) -> list[list[int]]:
        file = Path(str(self.model)) / "tokenizer.json"
        if not file.is_file():
            return []
        # Imported here: an engine without a tokenizer has no need of the package.
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in _TEXTS]

    def _numbered(self) -> list[list[int]]:
        size = self.model_info.vocab_size
        return [[(7 * start + 3 * step) % size for step in range(6)] for start in range(1, 9)]

    def request(self, index: int = 0, **params: Any) -> GenerateRequest:
        """A request for one of the prompts; 16 tokens unless said otherwise."""
        return GenerateRequest(self.prompt(index), SampleParams(**{"max_tokens": 16, **params}))

    def greedy(self, index: int = 0, **params: Any) -> GenerateRequest:
        """A request for the most likely tokens; it runs through the end of sequence where that is offered."""
        return self.request(index, **{"temperature": 0.0, **self.unending(), **params})

    def long(self, index: int = 0, **params: Any) -> GenerateRequest:
        """A request that takes a while."""
        return self.greedy(index, **{"max_tokens": self.long_tokens, **params})

    def unending(self) -> dict[str, Any]:
        """Parameters that keep a response going."""
        return {"ignore_eos": True} if self.face.offers(Capability.IGNORE_EOS) else {}

    def need_health(self) -> None:
        """End the check for a backend that cannot say what its engine works on."""
        if "health" not in self.face.groups:
            not_offered("the hooks of the group 'health', which show what the engine works on")

    def complete(self, *requests: GenerateRequest) -> list[GenerateResult]:
        """The results of requests that must all be completed."""
        results = self.engine.generate(*requests)
        for result in results:
            expect(
                result.status is Status.COMPLETED,
                f"a request came back {result.status} ({result.finish_reason}): {result.error}",
            )
        return results

    def complete_one(self, request: GenerateRequest) -> GenerateResult:
        """The result of a request that must be completed."""
        return self.complete(request)[0]

    def send_raw(self, request: GenerateRequest) -> Reply:
        """The engine's own reply to a request, past the checks of core."""
        call = self.face.build_payload(request)
        return self.engine.post(call.path, orjson.dumps(call.body))

    def begin_long(self, request: GenerateRequest) -> Any:
        """Send a request and return its future once the engine works on it."""
        health = self.engine.health()
        future = self.engine.begin(request)
        if "health" in self.face.groups:
            self.engine.wait_until(
                lambda now: now.running > 0 and now.progress > health.progress + len(request.prompt_ids),
                "a request is running",
            )
        return future

    def same_greedy(self, one: GenerateResult, other: GenerateResult) -> str:
        """Why two greedy results differ, or nothing; engines may break a near tie either way."""
        for position, (mine, theirs) in enumerate(zip(one.token_ids, other.token_ids, strict=False)):
            gap = abs(one.logprobs[position] - other.logprobs[position]) if one.logprobs and other.logprobs else 0.0
            if mine != theirs:
                return (
                    "" if gap <= self.tie_tolerance else f"token {position} is {mine} in one and {theirs} in the other"
                )
            if gap > max(self.logprob_tolerance, 1e-6):
                return f"the log-probability of token {position} differs by {gap:.3g}"
        same_length = len(one.token_ids) == len(other.token_ids)
        return "" if same_length else f"{len(one.token_ids)} tokens in one and {len(other.token_ids)} in the other"

    def expect_same(self, one: GenerateResult, other: GenerateResult, what: str) -> None:
        """Fail unless two greedy results agree."""
        difference = self.same_greedy(one, other)
        expect(not difference, f"{what}: {difference}")

    def eos_ids(self) -> frozenset[int]:
        """The model's end-of-sequence ids, from its config files."""
        found: set[int] = set()
        for name in ("config.json", "generation_config.json"):
            file = Path(str(self.model)) / name
            value = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
            found |= set(value if isinstance(value, list) else [] if value is None else [value])
        return frozenset(found)
