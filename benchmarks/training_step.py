"""The weight step of the embedded engine: how fast new weights come in, and how quickly generation stops and goes on.

    python benchmarks/training_step.py --model FOLDER [--rounds 5]

Prints, each beside its floor of the same run: a weight update from shared memory (the machine's memcpy) and from disk
(reading the file), with the engine's extra memory while it is written; the time until 64 generating requests are quiet;
the time of the pause call with 5,000 requests queued; and the time from ``continue`` to the next new token.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch
from transformers import AutoModelForCausalLM

from rollout_core import Controller, GenerateRequest, Plugins, RolloutClient, RolloutConfig, SampleParams
from rollout_core.types import Health
from rollout_core.weights import FromFolder, WeightPublisher

MIB = 2**20
BUCKET = 64 * MIB
PROMPT = tuple(range(100, 164))


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def memcpy_bandwidth(sizes: list[int], rounds: int) -> float:
    """Bytes per second of the C library's memcpy between blocks of the given sizes, one after the other."""
    blocks = [[torch.full((size,), value, dtype=torch.uint8) for value in (1, 2)] for size in sizes]

    def copy() -> None:
        for source, target in blocks:
            ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)

    copy()
    return sum(sizes) / statistics.median(timed(copy) for _ in range(rounds))


def read_bandwidth(files: list[Path], rounds: int) -> float:
    """Bytes per second of reading the files into memory."""
    size = sum(file.stat().st_size for file in files)
    buffer = bytearray(max(file.stat().st_size for file in files))

    def read() -> None:
        for file in files:
            with file.open("rb", buffering=0) as stream:
                stream.readinto(buffer)

    return size / statistics.median(timed(read) for _ in range(rounds))


@contextmanager
def peak_memory(process: psutil.Process) -> Iterator[list[float]]:
    """The largest growth of a process's own memory inside the block, in bytes."""
    first, grown, stop = process.memory_full_info().uss, [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            grown[0] = max(grown[0], process.memory_full_info().uss - first)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        stop.set()
        thread.join()


def weights(controller: Controller, model: Path, server: psutil.Process, rounds: int) -> None:
    """Updates from shared memory and from disk."""
    tensors = list(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict().items())
    tensors = [(name, tensor) for name, tensor in tensors if name != "lm_head.weight"]
    sizes = [tensor.nbytes for _, tensor in tensors]
    size = sum(sizes)
    by_tensor, at_once = memcpy_bandwidth(sizes, rounds), memcpy_bandwidth([size], rounds)
    with WeightPublisher(controller, bucket_bytes=BUCKET) as publisher, controller.paused():
        publisher.publish(tensors)  # the buckets' pages are touched for the first time
        seconds = [publisher.publish(tensors).seconds for _ in range(rounds)]
        with peak_memory(server) as grown:
            publisher.publish(tensors)
    rate = size / statistics.median(seconds)
    print(
        f"shared memory   {size / MIB:.0f} MiB at {rate / 2**30:.2f} GiB/s, {rate / by_tensor:.2f} of a memcpy of the "
        f"same tensors, {rate / at_once:.2f} of one of a single block; the engine grew by {grown[0] / BUCKET:.2f} "
        "buckets"
    )
    files = sorted(model.glob("*.safetensors"))
    on_disk, floor = sum(file.stat().st_size for file in files), read_bandwidth(files, rounds)
    with controller.paused():
        seconds = [controller.update_weights(FromFolder(model)).seconds for _ in range(rounds)]
    rate = on_disk / statistics.median(seconds)
    print(
        f"disk            {on_disk / MIB:.0f} MiB at {rate / 2**30:.2f} GiB/s, {rate / floor:.2f} of reading the file"
    )


async def pauses(controller: Controller, rounds: int) -> None:
    """Pause to quiet, pause with a long queue, and continue to the next token."""
    params = SampleParams(max_tokens=400, ignore_eos=True)
    quiet, resumed = [], []
    async with RolloutClient(controller) as client:
        for _ in range(rounds):
            tasks = [asyncio.create_task(client.generate(GenerateRequest(PROMPT, params))) for _ in range(64)]
            await progress(controller, 64 * len(PROMPT) // 2)
            started = time.perf_counter()
            await asyncio.to_thread(controller.pause_generation, "keep")
            quiet.append(time.perf_counter() - started)
            started = time.perf_counter()
            await asyncio.to_thread(controller.continue_generation)
            await progress(controller, 1)
            resumed.append(time.perf_counter() - started)
            await asyncio.to_thread(controller.abort_requests)
            await asyncio.gather(*tasks)
        tasks = [asyncio.create_task(client.generate(GenerateRequest(PROMPT, params))) for _ in range(5000)]
        await until(controller, lambda health: health.waiting > 4000)
        started = time.perf_counter()
        await asyncio.to_thread(controller.pause_generation, "keep")
        queued = time.perf_counter() - started
        controller.continue_generation()
        controller.abort_requests()
        await asyncio.gather(*tasks)
    print(f"pause to quiet  {statistics.median(quiet):.2f} s with 64 generating (target: under 1 s)")
    print(f"pause call      {queued:.2f} s with 5,000 in flight (target: under 1 s)")
    print(f"continue        {statistics.median(resumed):.2f} s to the first new token (target: under 0.5 s)")


async def until(controller: Controller, holds: Callable[[Health], bool]) -> None:
    """Wait until something holds of the engine."""

    def watch() -> None:
        while not holds(controller.health()["engine-0"]):
            time.sleep(0.002)

    await asyncio.to_thread(watch)


async def progress(controller: Controller, tokens: int) -> None:
    """Wait until the engine has computed so many more tokens."""
    first = (await asyncio.to_thread(controller.health))["engine-0"].progress
    await until(controller, lambda health: health.progress >= first + tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="folder of a checkpoint")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    config = RolloutConfig(model_path=str(options.model), max_batch_size=64)
    with Controller(Plugins.load(config)) as controller:
        port = int(controller.view.endpoints[0].url.rsplit(":", 1)[1])
        server = next(
            child
            for child in psutil.Process().children(recursive=True)
            if any(c.laddr.port == port and c.status == psutil.CONN_LISTEN for c in child.net_connections("tcp"))
        )
        weights(controller, options.model, server, options.rounds)
        asyncio.run(pauses(controller, options.rounds))


if __name__ == "__main__":
    main()
