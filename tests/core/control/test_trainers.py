"""Trainers in other processes: the methods of the controller, and a lease on the pause."""

import signal
import time

import pytest

from rollout_core import CapabilityError, RemoteController, StateError, WeightUpdateError
from rollout_core.types import MemoryPart, PauseMode
from rollout_core.weights import FromFolder

TRAINER = """
with RemoteController.connect(where) as controller:
    controller.pause_generation("abort")
    say("paused")
    while (line := hear()) != "end":
        try:
            if line == "offload":
                controller.offload(discard_weights=True)
            if line == "continue":
                controller.continue_generation()
            say("done")
        except RolloutError as error:
            say(type(error).__name__, error)
say("out")
"""


def weights(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    return FromFolder(folder)


def start_trainer(other, where):
    trainer = other(TRAINER, where)
    assert trainer.heard() == "paused"
    return trainer


def test_a_remote_controller_does_a_whole_weight_step(run, tmp_path):
    started = run()
    with RemoteController.connect(started.where) as remote:
        with remote.paused("abort") as report:
            assert (report.mode, report.clients) == (PauseMode.ABORT, 0)
            assert started.controller.view.paused is PauseMode.ABORT
            assert remote.offload() == {MemoryPart.WEIGHTS, MemoryPart.KV_CACHE}
            assert remote.status().controller.offloaded == (MemoryPart.KV_CACHE, MemoryPart.WEIGHTS)
            remote.onload_weights()
            updated = remote.update_weights(weights(tmp_path), version=4)
            remote.onload_kvcache()
        assert (updated.version, updated.engines, updated.quarantined) == (4, ("engine-0",), {})
        assert remote.health()["engine-0"].alive
        assert remote.abort_requests() == 0
    assert started.controller.view.paused is None
    assert started.controller.view.weight_version == 4
    told = started.engine()["told"]
    assert told == ["pause", "offload", "onload", "set_version", "onload", "continue", "abort"]


def test_errors_keep_their_kinds_over_the_wire(run, tmp_path):
    started = run()
    with RemoteController.connect(started.where) as remote:
        with pytest.raises(StateError, match=r"pause_generation\(\) before offload"):
            remote.offload()
        with pytest.raises(CapabilityError, match="does not offer pause_wait"):
            remote.pause_generation("wait")
        with pytest.raises(WeightUpdateError, match="version 0 is not above 0"):
            remote.update_weights(weights(tmp_path), version=0)
        with pytest.raises(WeightUpdateError, match="is not a folder"):
            remote.update_weights(FromFolder(tmp_path / "nothing"))
    assert started.controller.view.paused is None


def test_generation_goes_on_when_the_trainer_is_killed_while_it_holds_the_pause(run, other, wait_for):
    started = run(trainer_lease_s=1.0)
    trainer = start_trainer(other, started.where)
    assert [t.holds_pause for t in started.status().trainers] == [True]
    trainer.kill()
    wait_for(lambda: started.controller.view.paused is None)
    wait_for(lambda: started.engine()["told"] == ["pause", "continue"])
    notice = f"(process {trainer.process.pid}) gave no sign of life for 1 s; generation went on"
    wait_for(lambda: notice in started.status().notice)


def test_generation_stays_paused_when_the_config_says_so_until_another_trainer_continues_it(run, other, wait_for):
    started = run(trainer_lease_s=1.0, lost_trainer="stay_paused")
    start_trainer(other, started.where).kill()
    wait_for(lambda: "stays paused" in started.status().notice)
    assert started.controller.view.paused is PauseMode.ABORT
    with RemoteController.connect(started.where) as remote:
        remote.continue_generation()
    assert started.controller.view.paused is None


def test_memory_of_a_killed_trainer_is_taken_back_but_dropped_weights_are_not_served(run, other, wait_for, tmp_path):
    started = run(trainer_lease_s=1.0)
    trainer = start_trainer(other, started.where)
    trainer.tell("offload")
    assert trainer.heard() == "done"
    trainer.kill()
    wait_for(lambda: "the weights were discarded" in started.status().notice)
    assert started.controller.status().offloaded == ()
    assert started.controller.view.paused is PauseMode.ABORT
    with RemoteController.connect(started.where) as remote:
        remote.update_weights(weights(tmp_path))
        remote.continue_generation()
    assert started.controller.view.weight_version == 1


def test_a_trainer_that_lives_holds_the_pause_as_long_as_it_likes(run, other, wait_for):
    started = run(trainer_lease_s=1.0)
    trainer = start_trainer(other, started.where)
    beyond_its_lease = time.monotonic() + 2.5
    wait_for(lambda: time.monotonic() > beyond_its_lease)
    assert started.controller.view.paused is PauseMode.ABORT
    assert started.status().trainers[0].seen_s < 1.0
    trainer.tell("continue")
    assert trainer.heard() == "done"
    assert started.controller.view.paused is None


def test_a_trainer_that_comes_back_after_its_lease_is_told_so(run, other, wait_for):
    started = run(trainer_lease_s=0.5)
    trainer = start_trainer(other, started.where)
    trainer.kill(signal.SIGSTOP)
    wait_for(lambda: started.controller.view.paused is None)
    trainer.tell("continue")
    trainer.kill(signal.SIGCONT)
    answer = trainer.heard()
    assert answer.startswith("StateError")
    assert "gave no sign of life for 0.5 s; its pause is over, and pause_generation() begins a new one" in answer
    trainer.tell("end")
    assert trainer.heard() == "out"


def test_a_pause_of_the_controllers_own_process_has_no_lease(run, other, wait_for):
    started = run(trainer_lease_s=0.5)
    started.controller.pause_generation("abort")
    trainer = start_trainer(other, started.where)
    trainer.kill()
    wait_for(lambda: started.status().trainers == ())
    assert started.status().notice == ""
    assert started.controller.view.paused is PauseMode.ABORT


def test_a_trainer_that_leaves_without_continuing_ends_its_pause(run):
    started = run()
    with RemoteController.connect(started.where) as remote:
        remote.pause_generation("abort")
    assert started.controller.view.paused is None
    assert "left while it held the pause; generation went on" in started.status().notice


def test_a_lost_trainer_may_begin_anew(run, wait_for):
    started = run(trainer_lease_s=60.0)
    with RemoteController.connect(started.where) as remote:
        remote.pause_generation("abort")
        remote._link.call("detach", object, trainer=remote._lease.trainer)
        with pytest.raises(StateError, match="begins a new one"):
            remote.continue_generation()
        remote.pause_generation("keep")
        remote.continue_generation()
    assert started.controller.view.paused is None
