"""GRPO on CPU, whole: a tiny model learns to add one to every digit, from samples of a real engine.

    python examples/grpo_cpu/train.py [--seed 0] [--steps 60] [--no-publish] [--output grpo-output]

The model is made here and first imitates a teacher that is wrong most of the time. Then, at every step: groups of
samples are drawn and scored; generation is paused, and what was cut comes back with the tokens it has; the engine
gives its memory to the trainer; the trainer takes one step and publishes its weights; generation goes on, and cut
samples are continued. With --no-publish the engine never gets the new weights, and the reward stays where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
from plot import plot
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rollout_core import (
    Controller,
    GenerateRequest,
    GenerateResult,
    Plugins,
    RolloutClient,
    RolloutConfig,
    SampleParams,
    Status,
)
from rollout_core.weights import WeightPublisher

DIGITS = 8
ASK, END = 10, 11  # the tokens after the ten digits
GROUPS, GROUP, WANTED = 24, 8, 16  # groups in flight, samples of each, and how many complete ones make a step
CLIP, LEARNING_RATE = 0.2, 2e-3


def make_model(folder: Path) -> LlamaForCausalLM:
    """A random Llama of 100,000 parameters, saved with its tokenizer, so that an engine can serve it."""
    words = {**{str(digit): digit for digit in range(10)}, "?": ASK, ".": END}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=".").save_pretrained(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"vocab_size": 12, "bos_token_id": None, "eos_token_id": END}
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=64, **sizes, **ids))


def imitate(model: LlamaForCausalLM, steps: int = 400) -> None:
    """Learn from a teacher whose every digit is right in one of three cases."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        digits = torch.randint(10, (128, DIGITS))
        right = torch.rand(digits.shape) < 1 / 3
        taught = torch.where(right, (digits + 1) % 10, torch.randint(10, digits.shape))
        ids = torch.cat([digits, torch.full((128, 1), ASK), taught, torch.full((128, 1), END)], dim=1)
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids.where(torch.arange(ids.shape[1]) > DIGITS, -100)).loss.backward()
        optimizer.step()


def reward(result: GenerateResult) -> float:
    """The share of the digits that are right."""
    expected = [(digit + 1) % 10 for digit in result.prompt_ids[:DIGITS]]
    found = [token for token in result.token_ids if token != END]
    return sum(a == b for a, b in zip(expected, found, strict=False)) / max(DIGITS, len(found))


def train(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, groups: list[list[GenerateResult]]) -> None:
    """One step of GRPO: advantages within each group, clipped ratios against what the engine sampled from."""
    results, advantages = [result for group in groups for result in group], []
    for group in groups:
        rewards = torch.tensor([reward(result) for result in group])
        advantages += ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist()
    length = max(len(r.prompt_ids) + len(r.token_ids) for r in results)
    ids = torch.full((len(results), length), END)
    behaviour, mask = torch.zeros(len(results), length), torch.zeros(len(results), length)
    for row, result in enumerate(results):
        start, end = len(result.prompt_ids), len(result.prompt_ids) + len(result.token_ids)
        ids[row, :end] = torch.tensor(result.prompt_ids + result.token_ids)
        behaviour[row, start:end], mask[row, start:end] = torch.tensor(result.logprobs), 1.0
    logprobs = model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    ratio = (logprobs - behaviour[:, 1:]).exp()
    gain = torch.tensor(advantages)[:, None]
    objective = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain) * mask[:, 1:]
    optimizer.zero_grad()
    (-objective.sum() / mask.sum()).backward()
    optimizer.step()


class Loop:
    """The trainer's state, and one method per part of a step."""

    def __init__(self, controller: Controller, client: RolloutClient, model: LlamaForCausalLM, publish: bool) -> None:
        self.controller, self.client, self.model, self.publishes = controller, client, model, publish
        self.publisher = WeightPublisher(controller, bucket_bytes=2**20)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
        self.params = SampleParams(max_tokens=DIGITS + 2)
        self.requests: dict[str, GenerateRequest] = {}
        self.tasks: set[asyncio.Task[GenerateResult]] = set()
        self.groups: dict[str, list[GenerateResult]] = {}  # complete samples of the groups in flight
        self.cut: dict[str, GenerateResult] = {}  # aborted samples, to be continued

    async def step(self) -> dict[str, float]:
        """Draw, train, publish; what was measured."""
        started = time.perf_counter()
        self.fill()
        ready = await self.draw()
        times = {"generate": time.perf_counter() - started}
        lags = [self.controller.view.weight_version - (r.oldest_version or 0) for group in ready for r in group]
        scores = [reward(r) for group in ready for r in group]
        times |= await asyncio.to_thread(self.update, ready)
        await self.collect(asyncio.ALL_COMPLETED)  # the pause has brought all of them back
        return {"reward": sum(scores) / len(scores), "lag": sum(lags) / len(lags), "cut": len(self.cut), **times}

    def fill(self) -> None:
        """Continue what was cut, and add new groups."""
        for name, prior in self.cut.items():
            self.send(self.requests[name], prior)
        self.cut = {}
        while len(self.groups) < GROUPS:
            group, prompt = f"group-{len(self.requests)}", (*random.choices(range(10), k=DIGITS), ASK)
            self.groups[group] = []
            for index in range(GROUP):
                self.send(GenerateRequest(prompt, self.params, f"{group}-{index}", group_id=group), None)

    def send(self, request: GenerateRequest, prior: GenerateResult | None) -> None:
        self.requests[request.request_id] = request
        self.tasks.add(asyncio.create_task(self.client.generate(request, prior=prior)))

    async def draw(self) -> list[list[GenerateResult]]:
        """Groups that are complete, as soon as there are enough; they leave the flight."""
        while sum(len(group) == GROUP for group in self.groups.values()) < WANTED:
            await self.collect(asyncio.FIRST_COMPLETED)
        complete = [name for name, group in self.groups.items() if len(group) == GROUP]
        return [self.groups.pop(name) for name in complete]

    async def collect(self, until: str) -> None:
        done, self.tasks = await asyncio.wait(self.tasks, return_when=until) if self.tasks else (set(), set())
        for result in (task.result() for task in done):
            if result.status is Status.ABORTED:
                self.cut[result.request_id] = result
            elif result.status is Status.COMPLETED:
                self.groups[str(self.requests[result.request_id].group_id)].append(result)
            else:
                raise RuntimeError(f"{result.request_id} came back {result.status}: {result.error}")

    def update(self, groups: list[list[GenerateResult]]) -> dict[str, float]:
        """The trainer's part of a step, while generation is paused."""
        parts: dict[str, Callable[[], object]] = {
            "offload": self.controller.offload,
            "train": lambda: train(self.model, self.optimizer, groups),
            "onload": self.controller.onload,
            "publish": lambda: self.publishes and self.publisher.publish(self.model.state_dict().items()),
        }
        times = {}
        with self.controller.paused("abort") as report:
            for name, part in parts.items():
                started = time.perf_counter()
                part()
                times[name] = time.perf_counter() - started
        return {"pause": report.seconds, **times}


async def run(options: argparse.Namespace, model: LlamaForCausalLM, folder: Path) -> None:
    config = RolloutConfig(model_path=str(folder), backend="transformers", max_batch_size=64, random_seed=options.seed)
    with Controller(Plugins.load(config)) as controller, (options.output / "steps.jsonl").open("w") as log:
        async with RolloutClient(controller) as client:
            loop = Loop(controller, client, model, not options.no_publish)
            for number in range(options.steps):
                record = {"step": number, **await loop.step()}
                print(json.dumps(record), file=log, flush=True)
                print(f"step {number:3}  reward {record['reward']:.2f}  lag {record['lag']:.2f}  cut {record['cut']}")
            loop.publisher.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--no-publish", action="store_true", help="never give the engine the new weights")
    parser.add_argument("--output", type=Path, default=Path("grpo-output"), help="folder of the log and the plot")
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    imitate(model := make_model(options.output / "model"))
    model.save_pretrained(options.output / "model")
    asyncio.run(run(options, model, options.output / "model"))
    plot(options.output / "steps.jsonl", options.output / "steps.png")


if __name__ == "__main__":
    main()
