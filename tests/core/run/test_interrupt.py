"""The first signal ends a run in good order, the second at once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

CODE = """
import asyncio, os, signal, sys, time
from rollout_core.run.interrupt import Interrupts
from rollout_core.run.session import run_loop

def send(): os.kill(os.getpid(), signal.{signal})

async def work(interrupts):
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    interrupts.during(loop, stop.set)
    loop.call_later(0.05, send)
    await asyncio.wait_for(stop.wait(), 5)
    print("stopped", flush=True)
    if "{twice}":
        loop.call_later(0.05, send)
        await asyncio.sleep(5)
    interrupts.after(loop)

with Interrupts(lambda: print("at once", flush=True)) as interrupts:
    {body}
print("ended", interrupts.count, flush=True)
"""


def run(body: str, *, number: str = "SIGINT", twice: str = "") -> tuple[int, str]:
    code = CODE.format(signal=number, body=body, twice=twice)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_the_first_signal_in_the_loop_stops_the_job(number: str) -> None:
    assert run("run_loop(work(interrupts))", number=number) == (0, "stopped\nended 1\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_the_second_signal_ends_the_process_at_once(number: str) -> None:
    assert run("run_loop(work(interrupts))", number=number, twice="yes") == (1, "stopped\nat once\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_before_the_loop_is_a_keyboard_interrupt(number: str) -> None:
    body = "\n    ".join(["try:", "    send(); time.sleep(5)", "except KeyboardInterrupt:", "    print('interrupted')"])
    assert run(body, number=number) == (0, "interrupted\nended 1\n")


def test_after_the_loop_the_first_signal_is_only_noted_and_the_second_ends_the_process() -> None:
    assert run("run_loop(work(interrupts)); send(); time.sleep(5)") == (1, "stopped\nat once\n")


def test_handlers_of_before_are_put_back() -> None:
    from rollout_core.run.interrupt import Interrupts

    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
