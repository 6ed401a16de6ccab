"""Everything that a run needs, loaded and checked before anything starts or is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_core.client.admission import Admission
from rollout_core.config import RolloutConfig
from rollout_core.errors import InputError, ModelError
from rollout_core.executors import cluster_for
from rollout_core.model import ModelInfo
from rollout_core.plugins import Plugins
from rollout_core.render import Renderer
from rollout_core.run.manifest import public_config, versions_of
from rollout_core.run.plan import Plan
from rollout_core.run.prompt import Prompt
from rollout_core.run.prompt_file import PromptFile, PromptScan
from rollout_core.run.reward import load_reward
from rollout_core.topology import Topology
from rollout_core.types import GenerateRequest, SampleParams

__all__ = ["RunOptions", "RunSetup"]

MAX_CONCURRENCY_PER_ENGINE = 1024


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the user asks for, besides the config."""

    prompts: PromptFile
    params: SampleParams
    output: Path
    n: int = 1
    """Samples of each prompt."""
    seed: int | None = None
    concurrency: int | None = None
    """Requests in flight; unset: twice what the engines run at once, so that none waits for the next."""
    file_format: str = "jsonl"
    resume: bool = False
    strict: bool = False
    """Refuse a prompt file with a broken line, instead of failing that line's samples."""
    chat: bool = False
    """Take prompts that are text for the messages of a user."""
    reward: str | None = None
    """``module:function``"""


@dataclass(frozen=True, slots=True)
class RunSetup:
    """A run that can start."""

    options: RunOptions
    plugins: Plugins
    model: ModelInfo
    topology: Topology
    renderer: Renderer
    scan: PromptScan
    plan: Plan

    @classmethod
    def check(cls, options: RunOptions, config: RolloutConfig) -> RunSetup:
        """Load the plugins, the tokenizer and the prompts; cheap checks come first.

        Raises:
            ConfigError, ModelError, PluginError, InputError: naming what cannot be run, and why.
        """
        plugins = Plugins.load(config)
        if options.reward is not None:
            plugins.register(load_reward(options.reward), "reward")
        config = plugins.config
        model = ModelInfo.read(config.model_path, trust_remote_code=config.trust_remote_code)
        topology = plugins.backend.build_topology(cluster_for(config))
        plan = Plan(options.params, options.n, _concurrency(options, config, model, topology), options.seed)
        # One request stands for all: what the backend does not offer is refused now, not once a sample.
        Admission(plugins.backend, model, None).check(GenerateRequest((0,), plan.request(0, 0, (0,)).params))
        scan = options.prompts.scan()
        if options.strict and scan.broken_count:
            raise InputError(f"{scan.broken_count} lines are no prompts (--strict):\n  " + "\n  ".join(scan.broken))
        renderer = _renderer(config, options, scan)
        return cls(options, plugins, model, topology, renderer, scan, plan)

    @property
    def planned(self) -> int:
        """Samples of the whole run."""
        return self.scan.prompts * self.plan.n

    def first_prompt(self) -> Prompt:
        """The first prompt that is not broken."""
        prompts: Iterator[Prompt] = (prompt for prompt in self.options.prompts if isinstance(prompt, Prompt))
        return next(prompts)

    def identity(self) -> dict[str, Any]:
        """What a resume must agree with. Not the number of prompts: a run may be finished with a higher limit."""
        return {
            "prompts": self.scan.fingerprint,
            "prompt_field": self.options.prompts.prompt_field,
            "backend": self.plugins.backend.name,
            "model": self.model.fingerprint,
            "chat_template": self.renderer.chat_template_fingerprint,
            "system_prompt": self.plugins.config.system_prompt,
            "chat": self.options.chat,
            "n": self.plan.n,
            "reward": self.options.reward,
            "format": self.options.file_format,
            **self.plan.params.model_dump(mode="json"),
            "seed": self.plan.seed,
        }

    def facts(self) -> dict[str, Any]:
        """What the manifest records besides."""
        prompts = self.options.prompts
        return {
            "config": public_config(self.plugins.config),
            "prompts": {
                "path": prompts.name or str(prompts.path.absolute()),
                "sha256": self.scan.fingerprint,
                "count": self.scan.prompts,
                "broken": self.scan.broken_count,
            },
            "model": {
                "path": self.model.path,
                "architecture": self.model.architecture,
                "fingerprint": self.model.fingerprint,
                "chat_template_sha256": self.renderer.chat_template_fingerprint,
            },
            "params": self.plan.params.model_dump(mode="json"),
            "n": self.plan.n,
            "seed": self.plan.seed,
            "concurrency": self.plan.concurrency,
            "engines": len(self.topology.engines),
            "versions": versions_of(self.plugins.backend),
        }


def _concurrency(options: RunOptions, config: RolloutConfig, model: ModelInfo, topology: Topology) -> int:
    if options.concurrency is not None:
        return options.concurrency
    context_length = config.context_length or model.context_length
    at_once = config.batch_size_for(context_length) if context_length else MAX_CONCURRENCY_PER_ENGINE
    return len(topology.engines) * min(2 * at_once, MAX_CONCURRENCY_PER_ENGINE)


def _renderer(config: RolloutConfig, options: RunOptions, scan: PromptScan) -> Renderer:
    """The tokenizer of the run; a model without one serves prompts that are token ids."""
    if not (scan.texts or scan.chats):
        return Renderer(None)
    renderer = Renderer.load(
        config.tokenizer,
        trust_remote_code=config.trust_remote_code,
        system_prompt=config.system_prompt,
        chat=options.chat,
    )
    _check_template(renderer, options, scan)
    return renderer


def _check_template(renderer: Renderer, options: RunOptions, scan: PromptScan) -> None:
    if renderer.chat_template_fingerprint is None and (scan.chats or options.chat):
        asked = f"{scan.chats} of {scan.prompts} prompts are chat messages" if scan.chats else "--chat was given"
        raise ModelError(
            f"{asked}, and the tokenizer has no chat template; give the prompts as text or token ids, "
            f"or set tokenizer_path to a tokenizer that has one"
        )
