"""Draws every missing sample of a run: keeps the engines busy, scores, and writes before it counts.

Prompts are read and rendered ahead in one thread, samples are written in another, rewards are computed in a pool; the
event loop only waits for engines. Samples are sent one by one as others end, so no batch waits for its slowest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from rollout_core.errors import RolloutError
from rollout_core.render import Renderer
from rollout_core.run.plan import Plan
from rollout_core.run.progress import Progress
from rollout_core.run.prompt import BrokenPrompt, Prompt
from rollout_core.run.record import Outcome, record_of
from rollout_core.run.reward import Scorer
from rollout_core.run.sink import Sink
from rollout_core.run.summary import Tally
from rollout_core.types import FinishReason, GenerateRequest, GenerateResult, Sample, Status

__all__ = ["Generator", "Job"]

RENDER_AHEAD = 32
"""Prompts that are rendered at once, while the ones before are sent."""
SCORE_THREADS = 16
BACKLOG = 4096
"""Samples that may wait for their reward or the disk before sending pauses."""
WRITE_AT_ONCE = 1024

T = TypeVar("T")


class Generator(Protocol):
    """What draws samples: a :class:`rollout_core.client.RolloutClient`."""

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """One result per request, whatever happens; cancelling the call cancels the request."""


@dataclass(frozen=True, slots=True)
class _Finished:
    sample: Sample
    reward_error: str | None = None


class Job:
    """One session of a run. Call :meth:`run` once."""

    def __init__(
        self,
        plan: Plan,
        prompts: Iterable[Prompt | BrokenPrompt],
        *,
        client: Generator,
        renderer: Renderer,
        scorer: Scorer,
        sink: Sink,
        tally: Tally,
        progress: Progress,
    ) -> None:
        """``tally`` knows the samples that ``sink`` holds already; they are not drawn again."""
        self._plan = plan
        self._prompts = iter(prompts)
        self._client = client
        self._renderer = renderer
        self._scorer = scorer
        self._sink = sink
        self._tally = tally
        self._progress = progress
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._room = asyncio.Semaphore(plan.concurrency + BACKLOG)
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: set[asyncio.Task[Any]] = set()
        self._finished: asyncio.Queue[_Finished | None] = asyncio.Queue()
        self._scoring = ThreadPoolExecutor(SCORE_THREADS, thread_name_prefix="score")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="render")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._closed = False
        self._told = False
        self.began = time.monotonic()
        self.first_sample_s: float | None = None
        """From the start of the job to the first sample on disk, in seconds."""

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Send nothing more, cancel what is in flight, and let :meth:`run` return when the rest is written."""
        self._stop.set()

    async def run(self) -> None:
        """Draw, score and write every missing sample, or those that a stop leaves time for.

        Raises:
            OutputError: the disk refuses.
            InputError: the prompts cannot be read any more.
        """
        self.began = time.monotonic()
        sender, writer = asyncio.create_task(self._send_all()), asyncio.create_task(self._write_all())
        stop, ticker = asyncio.create_task(self._stop.wait()), asyncio.create_task(self._tick())
        try:
            await asyncio.wait([sender, writer, stop], return_when=asyncio.FIRST_COMPLETED)
            await self._end_sending(sender, cancel=stop.done() or writer.done())
            self._finished.put_nowait(None)
            await writer
            if not sender.cancelled():
                sender.result()
        finally:
            for task in (sender, writer, stop, ticker):
                task.cancel()
            for pool in (self._scoring, self._reading, self._writing):
                pool.shutdown(wait=False, cancel_futures=True)

    async def _end_sending(self, sender: asyncio.Task[None], *, cancel: bool) -> None:
        """Wait until nothing is sent any more; what is being scored is never cut off."""
        if cancel or sender.exception() is not None:
            self._closed = True
            sender.cancel()
            for task in tuple(self._in_flight):
                task.cancel()
        await asyncio.wait([sender])
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _tick(self) -> None:
        while True:
            self._progress.update(len(self._in_flight))
            await asyncio.sleep(1.0)

    # Send

    async def _send_all(self) -> None:
        async for prompt, ids in self._rendered():
            for sample_index in self._tally.missing(prompt.index):
                await self._room.acquire()
                if isinstance(ids, str):
                    # A failed sample too, so that the counts add up.
                    self._finished.put_nowait(_Finished(self._unsent(prompt, sample_index, ids)))
                    continue
                await self._slots.acquire()
                request = self._plan.request(prompt.index, sample_index, ids)
                self._spawn(self._draw(prompt, sample_index, request))
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _draw(self, prompt: Prompt | BrokenPrompt, sample_index: int, request: GenerateRequest) -> None:
        if self._closed:
            return
        call = asyncio.ensure_future(self._client.generate(request))
        self._in_flight.add(call)
        try:
            result = await call
        except asyncio.CancelledError:
            result = _ended(request, Status.ABORTED, FinishReason.ABORT, "the run was stopped")
        except Exception as error:  # one request must not end the others, whatever the client has come to
            result = _ended(request, Status.FAILED, FinishReason.ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._in_flight.discard(call)
            self._slots.release()
        self._finished.put_nowait(await self._scored(_sample(prompt, sample_index, result)))

    async def _scored(self, sample: Sample) -> _Finished:
        if sample.result.status is not Status.COMPLETED or not self._scorer.active:
            return _Finished(sample)
        loop = asyncio.get_running_loop()
        reward, error = await loop.run_in_executor(self._scoring, self._scorer.score, sample)
        return _Finished(replace(sample, reward=reward), error)

    def _unsent(self, prompt: Prompt | BrokenPrompt, sample_index: int, error: str) -> Sample:
        result = GenerateResult(
            request_id=f"{self._plan.session}-{prompt.index}-{sample_index}",
            prompt_ids=(),
            status=Status.FAILED,
            finish_reason=FinishReason.ERROR,
            error=error,
        )
        return _sample(prompt, sample_index, result)

    # Render

    async def _rendered(self) -> AsyncIterator[tuple[Prompt | BrokenPrompt, tuple[int, ...] | str]]:
        """Prompts that miss samples, with their token ids or the reason why there are none."""
        wanted = (prompt for prompt in self._prompts if self._tally.missing(prompt.index))
        chunks = _chunks(((prompt, self._render(prompt)) for prompt in wanted), RENDER_AHEAD)
        loop = asyncio.get_running_loop()
        coming = loop.run_in_executor(self._reading, next, chunks, None)
        while (chunk := await coming) is not None:
            coming = loop.run_in_executor(self._reading, next, chunks, None)
            for item in chunk:
                yield item

    def _render(self, prompt: Prompt | BrokenPrompt) -> tuple[int, ...] | str:
        if isinstance(prompt, BrokenPrompt):
            return prompt.error
        try:
            return self._renderer.render(prompt.value)
        except RolloutError as error:
            return f"{prompt.place}: {error}"

    # Write

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        ended = False
        while not ended:
            batch = [await self._finished.get()]
            while len(batch) < WRITE_AT_ONCE and not self._finished.empty():
                batch.append(self._finished.get_nowait())
            finished = [item for item in batch if item is not None]
            ended = len(finished) < len(batch)
            outcomes = await loop.run_in_executor(self._writing, self._write, finished)
            for outcome in outcomes:
                self._count(outcome)

    def _write(self, finished: list[_Finished]) -> list[Outcome]:
        """In the writing thread."""
        if not finished:
            return []
        records = [record_of(item.sample, item.reward_error) for item in finished]
        self._sink.write(records)
        for item in finished:
            self._announce(item.sample)
        return list(map(Outcome.of, records))

    def _announce(self, sample: Sample) -> None:
        try:
            self._scorer.announce(sample)
        except Exception as error:  # an extension only listens: its fault is told once, and costs nothing
            if not self._told:
                self._told = True
                self._progress.warn(f"sample_finished of an extension failed: {type(error).__name__}: {error}")

    def _count(self, outcome: Outcome) -> None:
        if self.first_sample_s is None:
            self.first_sample_s = time.monotonic() - self.began
        self._tally.add(outcome)
        self._room.release()


def _sample(prompt: Prompt | BrokenPrompt, sample_index: int, result: GenerateResult) -> Sample:
    return Sample(
        sample_id=f"{prompt.index}-{sample_index}",
        prompt_index=prompt.index,
        sample_index=sample_index,
        prompt=prompt.value if isinstance(prompt, Prompt) else None,
        fields=prompt.fields,
        result=result,
    )


def _ended(request: GenerateRequest, status: Status, reason: FinishReason, error: str) -> GenerateResult:
    return GenerateResult(
        request_id=request.request_id,
        prompt_ids=request.prompt_ids,
        status=status,
        finish_reason=reason,
        error=error,
    )


def _chunks(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while chunk := list(islice(items, size)):
        yield chunk
