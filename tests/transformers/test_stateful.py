"""Random sequences of generate, pause, abort, continue, offload, update and kill, against real engines.

After every step each sample that was ever submitted is in exactly one place, and what came back obeys the rules; at
the end every sample is the one that an undisturbed run gives. Updates write the same values under a new version, so
that the tokens can be compared.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.transformers.test_memory import server_of

from rollout_core import (
    Controller,
    GenerateRequest,
    GenerateResult,
    Plugins,
    RolloutClient,
    RolloutConfig,
    SampleParams,
    StateError,
    Status,
)
from rollout_core.types import MemoryPart, PauseMode
from rollout_core.weights import FromFolder

TOKENS = 60
PARTS = st.sets(st.sampled_from(list(MemoryPart)), min_size=1)


def request_of(number: int) -> GenerateRequest:
    """Different prompts and seeds; every third sample shares its prompt with the one before."""
    prompt = tuple(range(200 + number - number % 3, 212 + number - number % 3))
    params = SampleParams(seed=number, max_tokens=TOKENS, ignore_eos=True)
    return GenerateRequest(prompt, params, request_id=f"sample-{number}")


class Samples:
    """One client in a loop of its own, and where each sample is."""

    def __init__(self, controller: Controller) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = RolloutClient(controller)
        self.call(self.client.__aenter__())
        self.waiting: dict[str, Future[GenerateResult]] = {}
        self.back: dict[str, GenerateResult] = {}
        self.submitted: list[GenerateRequest] = []

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def submit(self, request: GenerateRequest, prior: GenerateResult | None = None) -> None:
        if prior is None:
            self.submitted.append(request)
        work = self.client.generate(request, prior=prior)
        self.waiting[request.request_id] = asyncio.run_coroutine_threadsafe(work, self.loop)

    def collect(self) -> None:
        for name in [name for name, future in self.waiting.items() if future.done()]:
            assert name not in self.back, f"{name} came back twice"
            self.back[name] = self.waiting.pop(name).result()

    def resume(self) -> None:
        """Go on with every aborted sample."""
        requests = {request.request_id: request for request in self.submitted}
        for name, result in list(self.back.items()):
            if result.status is Status.ABORTED:
                self.submit(requests[name], self.back.pop(name))

    def close(self) -> None:
        self.call(self.client.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Steps(RuleBasedStateMachine):
    """What trainers and accidents do to two engines."""

    folder: ClassVar[Path]
    uncut: ClassVar[Callable[[int], tuple[int, ...]]]

    @initialize()
    def begin(self) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        config = RolloutConfig(
            model_path=str(self.folder), backend="transformers", engines=2, health_check_interval_s=0.5
        )
        self.controller = Controller(Plugins.load(config), log_dir=Path(self.scratch.name))
        self.controller.start()
        self.samples = Samples(self.controller)
        self.offloaded: set[MemoryPart] = set()
        self.dropped = False
        self.alive = 2

    @property
    def paused(self) -> bool:
        return self.controller.view.paused is not None

    @rule(count=st.integers(1, 4))
    def generate(self, count: int) -> None:
        for _ in range(count):
            self.samples.submit(request_of(len(self.samples.submitted)))

    @rule(mode=st.sampled_from(list(PauseMode)))
    def pause(self, mode: PauseMode) -> None:
        if self.offloaded or self.dropped:
            return  # what is frozen stays frozen
        self.controller.pause_generation(mode)

    @rule()
    def go_on(self) -> None:
        if self.offloaded or self.dropped:
            with pytest.raises(StateError):
                self.controller.continue_generation()
        else:
            self.controller.continue_generation()

    @rule()
    def abort(self) -> None:
        self.controller.abort_requests()

    @rule()
    def resume(self) -> None:
        self.samples.collect()
        self.samples.resume()

    @rule(parts=PARTS, discard=st.booleans())
    def offload(self, parts: set[MemoryPart], discard: bool) -> None:
        kept_aside = MemoryPart.WEIGHTS in self.offloaded and not self.dropped
        if not self.paused or (discard and kept_aside and MemoryPart.WEIGHTS in parts):
            with pytest.raises(StateError):
                self.controller.offload(parts, discard_weights=discard)
            return
        assert self.controller.offload(parts, discard_weights=discard) == parts - self.offloaded
        self.dropped |= discard and MemoryPart.WEIGHTS in parts - self.offloaded
        self.offloaded |= parts

    @rule(parts=PARTS)
    def onload(self, parts: set[MemoryPart]) -> None:
        assert self.controller.onload(parts) == parts & self.offloaded
        self.offloaded -= parts

    @rule(keep_cache=st.booleans())
    def update(self, keep_cache: bool) -> None:
        before = self.controller.view.weight_version
        if MemoryPart.WEIGHTS in self.offloaded:
            with pytest.raises(StateError):
                self.controller.update_weights(FromFolder(self.folder))
            return
        assert self.controller.update_weights(FromFolder(self.folder), keep_cache=keep_cache).version == before + 1
        self.dropped = False

    @precondition(lambda self: self.alive == 2 and len(self.samples.submitted) > 3)
    @rule()
    def kill(self) -> None:
        self.alive = 1
        os.kill(server_of(self.controller).pid, signal.SIGKILL)

    @invariant()
    def each_sample_is_in_one_place_and_obeys_the_rules(self) -> None:
        if not hasattr(self, "samples"):
            return
        self.samples.collect()
        names = [request.request_id for request in self.samples.submitted]
        assert Counter(names) == Counter([*self.samples.waiting, *self.samples.back])
        for result in self.samples.back.values():
            assert result.status in (Status.COMPLETED, Status.ABORTED), result.error
            count = len(result.token_ids)
            assert len(result.logprobs or ()) == len(result.weight_versions) == count
            assert list(result.weight_versions) == sorted(result.weight_versions)
            assert result.lag >= 0

    def teardown(self) -> None:
        if not hasattr(self, "samples"):
            return
        try:
            self.controller.onload()
            if self.dropped:
                self.controller.update_weights(FromFolder(self.folder))
            self.controller.continue_generation()
            self._finish()
            for number, request in enumerate(self.samples.submitted):
                result = self.samples.back[request.request_id]
                assert result.status is Status.COMPLETED, result.error
                assert result.token_ids == type(self).uncut(number)
        finally:
            self.samples.close()
            self.controller.close()
            self.scratch.cleanup()

    def _finish(self) -> None:
        for _ in range(len(self.samples.submitted) + 1):
            for future in list(self.samples.waiting.values()):
                future.result(60)
            self.samples.collect()
            self.samples.resume()
            if not self.samples.waiting:
                return


def test_no_sample_is_lost_doubled_or_changed(checkpoint: Callable[[str], Path], tmp_path: Path, llama: Any) -> None:
    known: dict[int, tuple[int, ...]] = {}

    def uncut(number: int) -> tuple[int, ...]:
        if number not in known:
            request = request_of(number)
            reply = llama.generate(list(request.prompt_ids), seed=number, max_tokens=TOKENS, ignore_eos=True)
            known[number] = tuple(reply["token_ids"])
        return known[number]

    Steps.folder, Steps.uncut = checkpoint("llama"), staticmethod(uncut)
    run_state_machine_as_test(
        Steps,
        settings=settings(
            max_examples=6,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
