"""Weights that a trainer in another process brings bucket by bucket."""

import pytest
import torch

from rollout_core import RemoteController, StateError, WeightUpdateError
from rollout_core.controller import EngineState
from rollout_core.weights import WeightPublisher

ONES = {"a": torch.full((64,), 1, dtype=torch.uint8), "b": torch.full((64,), 2, dtype=torch.uint8)}
TRAINER = """
import torch
from rollout_core.weights import WeightPublisher

class Slow:
    def __init__(self, tensors):
        self.tensors = tensors
    def __getattr__(self, name):
        return getattr(self.tensors, name)
    def portions(self, size):
        for number, portion in enumerate(self.tensors.portions(size)):
            if number == 3:
                say("in the middle")
                hear()
            yield portion

class Publisher(WeightPublisher):
    def _source(self, named):
        return super()._source(Slow(named))

with RemoteController.connect(where) as controller, Publisher(controller, bucket_bytes=64) as publisher:
    publisher.publish([(str(i), torch.full((64,), i, dtype=torch.uint8)) for i in range(5)])
"""


@pytest.fixture
def remote(run):
    with RemoteController.connect(run(engines=2).where) as controller:
        yield controller


def engines(started):
    import httpx

    return [httpx.get(endpoint.url + "/health").json() for endpoint in started.view.endpoints]


def test_buckets_reach_every_engine_in_order_and_generation_goes_on(run):
    started = run(engines=2)
    with RemoteController.connect(started.where) as remote, WeightPublisher(remote, bucket_bytes=64) as publisher:
        first = publisher.publish(ONES.items(), version=7)
        second = publisher.publish([("a", ONES["b"])])
    assert (first.version, first.engines, second.version) == (7, ("engine-0", "engine-1"), 8)
    assert [engine["buckets"] for engine in engines(started.controller)] == [["a:1", "b:2", "a:2"]] * 2
    assert started.controller.view.weight_version == 8
    assert started.controller.view.paused is None


def test_what_an_engine_refuses_is_written_nowhere(run):
    started = run(engines=2)
    with RemoteController.connect(started.where) as remote, WeightPublisher(remote, bucket_bytes=64) as publisher:
        with pytest.raises(WeightUpdateError, match="unexpected is no parameter of this model"):
            publisher.publish([*ONES.items(), ("unexpected", ONES["a"])])
        assert [engine["buckets"] for engine in engines(started.controller)] == [[], []]
        assert publisher.publish(ONES.items()).version == 1


def test_what_the_trainer_refuses_is_written_nowhere(remote):
    with WeightPublisher(remote) as publisher:
        with pytest.raises(WeightUpdateError, match="a has NaN or infinite values"):
            publisher.publish([("a", torch.tensor([float("nan")]))], refuse_non_finite=True)
        with pytest.raises(WeightUpdateError, match="version 0 is not above 0"):
            publisher.publish(ONES.items(), version=0)
        assert publisher.publish(ONES.items()).version == 1


def test_a_trainer_that_is_killed_in_the_middle_leaves_engines_in_quarantine_until_the_next_update(
    run, other, wait_for
):
    started = run(trainer_lease_s=1.5)
    trainer = other(TRAINER, started.where)
    assert trainer.heard() == "in the middle"
    trainer.kill()
    wait_for(lambda: started.controller.view.states["engine-0"] is EngineState.QUARANTINED)
    assert "gave no sign of life" in started.controller.view.reasons["engine-0"]
    wait_for(lambda: started.controller.view.paused is None)
    with RemoteController.connect(started.where) as remote, WeightPublisher(remote) as publisher:
        assert publisher.publish(ONES.items()).engines == ("engine-0",)
    assert started.controller.view.states["engine-0"] is EngineState.READY


def test_a_trainer_brings_one_update_at_a_time(remote):
    options = {"version": None, "keep_cache": False, "refuse_non_finite": False, "verify_within": None}
    begin = {"trainer": remote._lease.trainer, "capability": "weights_from_shared_memory", "options": options}
    with pytest.raises(StateError, match="has begun no update"):
        remote._long("end_update", object, trainer=remote._lease.trainer, failure=None)
    remote._long("begin_update", object, **begin)
    with pytest.raises(StateError, match="is running already"):
        remote._long("begin_update", object, **begin)
    with pytest.raises(WeightUpdateError, match="0 updates for 2 targets"):
        remote._long("describe_weights", object, trainer=remote._lease.trainer, updates=[])
    with pytest.raises(WeightUpdateError, match="the trainer described no weights"):
        remote._long("end_update", object, trainer=remote._lease.trainer, failure=None)
