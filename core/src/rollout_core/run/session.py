"""One session of a run: takes the output folder, starts the engines, runs the job, and writes how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from rollout_core.client import RolloutClient
from rollout_core.control import ControlServer
from rollout_core.control.address import FILE_NAME
from rollout_core.controller import Controller
from rollout_core.errors import OutputError, RolloutError
from rollout_core.run.interrupt import Interrupts
from rollout_core.run.job import Job
from rollout_core.run.output import OutputFolder
from rollout_core.run.progress import Progress
from rollout_core.run.record import Outcome
from rollout_core.run.reward import Scorer
from rollout_core.run.setup import RunSetup
from rollout_core.run.sink import Sink, open_sink
from rollout_core.run.summary import Tally

__all__ = ["Ending", "run_session"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a session ended."""

    summary: dict[str, Any]
    complete: bool
    """Every sample of the run completed."""
    interrupted: bool
    """By a signal."""
    error: RolloutError | None = None
    """What ended it early: an engine that did not start, a full disk."""


def run_session(setup: RunSetup, progress: Progress) -> Ending:
    """Draw what is missing of a run.

    Raises:
        OutputError: the output folder cannot be used; nothing was started.
    """
    options = setup.options
    output = OutputFolder.open(options.output, setup.identity(), setup.facts(), resume=options.resume)
    try:
        sink = open_sink(output.path, options.file_format)
        return _Session(setup, output, sink, progress).run()
    finally:
        progress.close()
        output.close()


class _Session:
    def __init__(self, setup: RunSetup, output: OutputFolder, sink: Sink, progress: Progress) -> None:
        self._setup = setup
        self._output = output
        self._sink = sink
        self._progress = progress
        self._tally = Tally(setup.plan.n, setup.planned)
        for record in sink.kept():
            outcome = Outcome.of(record)
            # A lower limit than before leaves samples out of sight, but not out of the file.
            if outcome.prompt_index < setup.scan.prompts:
                self._tally.add(outcome)
        self._kept, self._kept_tokens = self._tally.samples, self._tally.response_tokens
        self._job: Job | None = None
        self._wall_s = 0.0

    def run(self) -> Ending:
        error: RolloutError | None = None
        with Interrupts(self._progress.close) as interrupts:
            try:
                if not self._tally.complete:
                    self._draw(interrupts)
            except RolloutError as reason:
                error = reason
            except KeyboardInterrupt:
                pass
            error = self._finish(error)
        return Ending(self._summary(), self._tally.complete, interrupts.count > 0, error)

    def _draw(self, interrupts: Interrupts) -> None:
        plugins = self._setup.plugins
        with (
            Controller(plugins, log_dir=self._output.log_dir, on_event=self._progress.engine) as controller,
            ControlServer(controller, self._output.path / FILE_NAME),
        ):
            self._progress.begin(self._tally)
            run_loop(self._run_job(controller, interrupts))

    async def _run_job(self, controller: Controller, interrupts: Interrupts) -> None:
        loop = asyncio.get_running_loop()
        async with RolloutClient(controller) as client:
            job = self._job = Job(
                self._setup.plan,
                self._setup.options.prompts,
                client=client,
                renderer=self._setup.renderer,
                scorer=Scorer(self._setup.plugins),
                sink=self._sink,
                tally=self._tally,
                progress=self._progress,
            )
            interrupts.during(loop, lambda: self._stop(job))
            try:
                await job.run()
            finally:
                self._wall_s = time.monotonic() - job.began
                interrupts.after(loop)

    def _stop(self, job: Job) -> None:
        self._progress.note("stopping; what is done is kept (once more: at once)")
        job.stop()

    def _finish(self, error: RolloutError | None) -> RolloutError | None:
        """Close the files and say how it ended, as far as the disk lets us; the first error counts."""
        status = "complete" if self._tally.complete else "interrupted"
        for step in (self._sink.close, lambda: self._output.finish(status, self._tally.counts(), self._summary())):
            try:
                step()
            except OutputError as reason:
                error = error or reason
        with suppress(Exception):  # an extension that only listens
            self._setup.plugins.hook.run_finished(summary=self._summary())
        return error

    def _summary(self) -> dict[str, Any]:
        tokens = self._tally.response_tokens - self._kept_tokens
        session = {
            "samples": self._tally.samples - self._kept,
            "kept_samples": self._kept,
            "response_tokens": tokens,
            "wall_s": self._wall_s,
            "tokens_per_s": tokens / self._wall_s if self._wall_s else 0.0,
            "first_sample_s": self._job.first_sample_s if self._job else None,
        }
        return {"output": str(self._output.path), **self._tally.summary(), "session": session}


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, with uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
