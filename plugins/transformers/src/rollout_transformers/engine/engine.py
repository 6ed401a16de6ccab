"""The engine: a thread that owns the model and runs the scheduler, and the commands other threads send it.

Everything that touches the model or the samples happens in that thread, between steps. The HTTP side only submits
commands and waits for futures.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from rollout_transformers.engine.metrics import Metrics
from rollout_transformers.engine.model import load_model
from rollout_transformers.engine.request import GenerateBody, RequestLimits
from rollout_transformers.engine.rows import RowTable
from rollout_transformers.engine.runner import ModelRunner
from rollout_transformers.engine.sample import Sample
from rollout_transformers.engine.scheduler import Scheduler
from rollout_transformers.engine.settings import EngineSettings
from rollout_transformers.engine.training_step import PauseMode, TrainingStep

__all__ = ["Engine", "EngineStopped"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MEMORY_SHARE = {"cpu": 0.5, "cuda": 0.85}
"""Share of the free memory that the K/V store may take when no budget is given."""


class EngineStopped(Exception):
    """The engine's thread has ended and takes no more work."""


class Engine:
    """Loads a model and serves samples from it until stopped."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.loaded = load_model(settings)
        self.runner = ModelRunner(self.loaded, settings.return_routed_experts)
        self.runner.check()
        budget = settings.kv_cache_tokens or _default_budget(self.runner, settings)
        budget = max(budget, self.loaded.context_length)
        rows = RowTable(self.runner.cache, settings.max_batch_size, budget, settings.prefix_reuse)
        self.scheduler = Scheduler(self.runner, rows, settings.max_prefill_tokens, settings.weight_version)
        self.step = TrainingStep(self.scheduler, self.loaded.model, settings)
        self.limits = RequestLimits(
            vocab_size=self.loaded.vocab_size,
            context_length=self.loaded.context_length,
            routed_experts=settings.return_routed_experts,
        )
        self.failure: BaseException | None = None
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._quiet: list[Callable[[], None]] = []
        self._seeds = random.Random(settings.random_seed)
        self._arrivals = 0
        self._stopping = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    # Called from any thread

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that runs; whatever is in flight fails with `EngineStopped`."""
        self._commands.put(self._set_stopping)
        if self._thread.is_alive():
            self._thread.join()

    def generate(self, body: GenerateBody) -> tuple[int, Future[dict[str, Any]]]:
        """Queue a validated request; its number (for `abort_number`) and the future of its reply."""
        self._arrivals += 1
        item = Sample(body, self.loaded, self._arrivals, self._seeds.getrandbits(64))
        item.future.set_running_or_notify_cancel()
        self._send(lambda: self.scheduler.submit(item), item.future)
        return item.number, item.future

    def abort(self, request_ids: Collection[str]) -> Future[int]:
        """End requests by name with the tokens they have; the number of samples ended."""
        names = frozenset(request_ids)
        return self.call(lambda: self.scheduler.abort(lambda item: item.body.request_id in names))

    def abort_all(self) -> Future[int]:
        """End every request, queued ones included."""
        return self.call(lambda: self.scheduler.abort(lambda item: True))

    def abort_number(self, number: int) -> Future[int]:
        """End one sample, whose client is gone."""
        return self.call(lambda: self.scheduler.abort(lambda item: item.number == number))

    def pause(self, mode: PauseMode) -> Future[dict[str, Any]]:
        """Stop generating; the future resolves when the engine is quiet in the way `mode` asks."""
        future: Future[dict[str, Any]] = Future()
        future.set_running_or_notify_cancel()
        self._send(lambda: self._pause(mode, future), future)
        return future

    def resume(self) -> Future[dict[str, Any]]:
        """Go on after a pause, exactly where it stopped."""
        return self.call(self._resume)

    def command(self, function: Callable[..., None], *arguments: Any) -> Future[dict[str, Any]]:
        """Run a command of the training step in the engine's thread; the future has the state after it."""
        return self.call(lambda: self._commanded(function, arguments))

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run a function in the engine's thread between two steps."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        self._send(lambda: _resolve(future, function), future)
        return future

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    @property
    def metrics(self) -> Metrics:
        """The running totals."""
        return self.scheduler.metrics

    def counts(self) -> tuple[int, int]:
        """Samples that occupy a row, and samples in the queue."""
        return len(self.scheduler.rows.active), len(self.scheduler.admission.waiting)

    def _send(self, command: Callable[[], None], future: Future[Any]) -> None:
        self._commands.put(command)
        if self._closed:
            self._drop_commands()
            if not future.done():
                future.set_exception(self._stopped())

    # In the engine's thread

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while not self._stopping:
                    self._take_commands()
                    if self._may_step() and not self._stopping:
                        self.scheduler.step()
                    self._announce_quiet()
        except BaseException as err:
            logger.critical("the engine's thread died", exc_info=err)
            self.failure = err
        finally:
            self._closed = True
            self._drop_commands()

    def _take_commands(self) -> None:
        """Run what has arrived; wait for something when there is nothing to compute."""
        if not self._may_step() and not self._stopping:
            self._commands.get()()
        while not self._stopping:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return

    def _may_step(self) -> bool:
        return self.step.may_generate and self.scheduler.busy

    def _pause(self, mode: PauseMode, future: Future[dict[str, Any]]) -> None:
        aborted = self.step.pause(mode)
        self._quiet.append(lambda: future.set_result(self.step.state() | {"aborted": aborted}))

    def _resume(self) -> dict[str, Any]:
        self.step.resume()
        self._announce_quiet(force=True)
        return self.step.state()

    def _commanded(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> dict[str, Any]:
        function(*arguments)
        return self.step.state()

    def _announce_quiet(self, force: bool = False) -> None:
        if self._quiet and (force or not self._may_step()):
            waiters, self._quiet = self._quiet, []
            for announce in waiters:
                announce()

    def _set_stopping(self) -> None:
        self._stopping = True

    def _drop_commands(self) -> None:
        """Answer commands that came too late: they see a scheduler without samples."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._commands.get_nowait()()
        self.scheduler.fail_all(self._stopped())
        self._announce_quiet(force=True)

    def _stopped(self) -> EngineStopped:
        return EngineStopped("the server is shutting down" if self.failure is None else f"engine died: {self.failure}")


def _resolve(future: Future[Result], function: Callable[[], Result]) -> None:
    try:
        future.set_result(function())
    except Exception as err:
        future.set_exception(err)


def _default_budget(runner: ModelRunner, settings: EngineSettings) -> int:
    """Tokens of K/V that fit in a share of the memory that is free after loading."""
    most = settings.max_batch_size * runner.loaded.context_length
    kind = runner.loaded.device.type
    if kind == "cuda":
        free = torch.cuda.mem_get_info(runner.loaded.device)[0]
    else:
        import psutil  # type: ignore[import-untyped]

        free = psutil.virtual_memory().available
    share = settings.memory_fraction or MEMORY_SHARE.get(kind, 0.5)
    return min(most, int(free * share) // max(runner.cache.bytes_per_token(), 1))
