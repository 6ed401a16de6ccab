"""A tiny tokenizer, a client that is no engine, and jobs around it: the edge is faked, the rest is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from rollout_core import Plugins, RolloutConfig
from rollout_core.render import Renderer
from rollout_core.run.job import Job
from rollout_core.run.plan import Plan
from rollout_core.run.progress import QuietProgress
from rollout_core.run.prompt import BrokenPrompt, Prompt
from rollout_core.run.reward import RewardExtension, Scorer
from rollout_core.run.sink import Sink
from rollout_core.run.sink_jsonl import JsonlSink
from rollout_core.run.summary import Tally
from rollout_core.types import FinishReason, GenerateRequest, GenerateResult, Sample, SampleParams, Status
from rollout_transformers import plugin


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory, save_tokenizer: Callable[..., Path]) -> Renderer:
    """Of the ten words, with a chat template."""
    return Renderer.load(str(save_tokenizer(tmp_path_factory.mktemp("tokenizer"))))


def result_of(request: GenerateRequest, *, tokens: int = 2, version: int = 0) -> GenerateResult:
    """A completed result."""
    return GenerateResult(
        request.request_id,
        request.prompt_ids,
        token_ids=tuple(range(3, 3 + tokens)),
        logprobs=(-0.5,) * tokens,
        text="hello world",
        finish_reason=FinishReason.STOP,
        status=Status.COMPLETED,
        weight_versions=(version,) * tokens,
        engine="engine-0",
    )


@dataclass
class FakeClient:
    """Answers after ``delay_s``, and remembers what it was asked."""

    delay_s: float = 0.0
    answer: Callable[[GenerateRequest], GenerateResult] = result_of
    requests: list[GenerateRequest] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    cancelled: int = 0

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay_s)
            return self.answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


def texts(count: int) -> list[Prompt | BrokenPrompt]:
    """That many prompts."""
    return [Prompt(i, f"p.jsonl, line {i + 1}", "hello world", {"id": i}) for i in range(count)]


@dataclass
class Bench:
    """Everything that a job needs, in a folder."""

    folder: Path
    renderer: Renderer
    plugins: Plugins
    client: FakeClient = field(default_factory=FakeClient)
    tally: Tally = field(default_factory=lambda: Tally(1, 0))

    def job(
        self,
        prompts: Iterable[Prompt | BrokenPrompt],
        *,
        n: int = 1,
        planned: int = 0,
        concurrency: int = 8,
        seed: int | None = None,
        sink: Sink | None = None,
    ) -> Job:
        """A job that writes ``samples.jsonl``."""
        self.tally = Tally(n, planned)
        return Job(
            Plan(SampleParams(max_tokens=4), n, concurrency, seed),
            prompts,
            client=self.client,
            renderer=self.renderer,
            scorer=Scorer(self.plugins),
            sink=sink or JsonlSink(self.folder / "samples.jsonl"),
            tally=self.tally,
            progress=QuietProgress(),
        )

    def reward(self, function: Callable[[Sample], Any]) -> None:
        """Score samples."""
        self.plugins.register(RewardExtension(function), "reward")

    @property
    def records(self) -> list[dict[str, Any]]:
        """What is written."""
        return [orjson.loads(line) for line in (self.folder / "samples.jsonl").read_bytes().splitlines()]


@pytest.fixture
def bench(tmp_path: Path, renderer: Renderer) -> Bench:
    """A job's surroundings."""
    return Bench(tmp_path, renderer, Plugins.from_objects(RolloutConfig(model_path="m"), plugin))


@pytest.fixture(name="texts")
def texts_fixture() -> Callable[[int], list[Prompt | BrokenPrompt]]:
    """Makes prompts."""
    return texts
