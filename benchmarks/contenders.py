"""Ways to generate from one model, each in a process of its own that waits for work and reports seconds.

A contender is a function ``(connection, model folder, threads)`` that loads the model, sends ``"ready"``, and then
answers every ``Work`` with the seconds that it took and the number of tokens that it generated.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

__all__ = ["CONTENDERS", "Contender", "Work"]


@dataclass(frozen=True)
class Work:
    """Prompts to complete with exactly ``max_tokens`` tokens each, all given at once."""

    prompts: list[list[int]]
    max_tokens: int
    temperature: float
    group: bool = False
    """All prompts are one: the samples of a group."""


Answer = tuple[float, int]


def embedded(pipe: Connection, model: str, threads: int, prefix_reuse: bool = False) -> None:
    """The embedded backend, through the controller and the client as a run uses it, with log-probabilities.

    Without ``prefix_reuse`` a round does not find the prompts of the round before.
    """
    from rollout_core import Controller, GenerateRequest, Plugins, RolloutClient, RolloutConfig, SampleParams

    async def serve(controller: Controller) -> None:
        async with RolloutClient(controller) as client:
            pipe.send("ready")
            while (work := await asyncio.to_thread(pipe.recv)) is not None:
                params = SampleParams(max_tokens=work.max_tokens, temperature=work.temperature, ignore_eos=True)
                group = f"group-{time.time()}" if work.group else None
                requests = [GenerateRequest(tuple(ids), params, group_id=group) for ids in work.prompts]
                started = time.perf_counter()
                results = await asyncio.gather(*map(client.generate, requests))
                seconds = time.perf_counter() - started
                if failed := [result.error for result in results if result.error]:
                    raise RuntimeError(failed[0])
                pipe.send((seconds, sum(len(result.token_ids) for result in results)))

    options = {"threads": threads, "prefix_reuse": prefix_reuse}
    config = RolloutConfig(model_path=model, dtype="float32", backend_options=options)
    with Controller(Plugins.load(config)) as controller:
        asyncio.run(serve(controller))


def embedded_groups(pipe: Connection, model: str, threads: int) -> None:
    """The embedded backend as it is by default: the prompt of a group is computed once."""
    embedded(pipe, model, threads, prefix_reuse=True)


def padded_generate(pipe: Connection, model: str, threads: int) -> None:
    """``model.generate`` on one left-padded batch."""
    import torch

    loaded = _load(model, threads)

    def run(work: Work) -> int:
        width = max(map(len, work.prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in work.prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in work.prompts])
        out = loaded.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=work.max_tokens,
            min_new_tokens=work.max_tokens,
            pad_token_id=0,
            **_sampling(work),
        )
        return int(out[:, width:].numel())

    _answer(pipe, run)


def continuous_batching(pipe: Connection, model: str, threads: int) -> None:
    """The library's own continuous batching (``generate_batch``)."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    loaded = _load(model, threads)

    def run(work: Work) -> int:
        # Without an end-of-sequence id no sample stops before its budget.
        config = GenerationConfig(max_new_tokens=work.max_tokens, eos_token_id=-1, pad_token_id=0, **_sampling(work))
        sizes = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=4096, return_logprobs=True)
        out = loaded.generate_batch(work.prompts, generation_config=config, continuous_batching_config=sizes)
        return sum(len(result.generated_tokens) for result in out.values())

    _answer(pipe, run)


def _load(model: str, threads: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(threads)
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()


def _sampling(work: Work) -> dict[str, Any]:
    if work.temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": work.temperature, "top_k": 0, "top_p": 1.0}


def _answer(pipe: Connection, run: Callable[[Work], int]) -> None:
    import torch

    pipe.send("ready")
    while (work := pipe.recv()) is not None:
        with torch.inference_mode():
            started = time.perf_counter()
            tokens = run(work)
            pipe.send((time.perf_counter() - started, tokens))


CONTENDERS = {
    "embedded": embedded,
    "embedded_groups": embedded_groups,
    "generate": padded_generate,
    "continuous_batching": continuous_batching,
}


class Contender:
    """One contender's process."""

    def __init__(self, name: str, model: str, threads: int) -> None:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # the contenders that wait must not spin
        context = multiprocessing.get_context("spawn")
        self.name = name
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=CONTENDERS[name], args=(other, model, threads))
        self._process.start()
        other.close()

    def __enter__(self) -> Self:
        if (said := self._pipe.recv()) != "ready":
            raise RuntimeError(f"{self.name} said {said}")
        return self

    def run(self, work: Work) -> float:
        """Tokens per second."""
        self._pipe.send(work)
        seconds, tokens = self._pipe.recv()
        expected = len(work.prompts) * work.max_tokens
        if tokens != expected:
            raise RuntimeError(f"{self.name} generated {tokens} tokens, expected {expected}")
        return float(tokens / seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self._process.join()
