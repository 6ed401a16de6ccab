"""A trainer's tensors are described, converted and cut into buckets."""

from pathlib import Path

import pytest
import torch

from rollout_core import WeightUpdateError
from rollout_core.weights.shared_memory import Segment
from rollout_core.weights.tensors import NamedTensors, write_portion

MODEL = {
    "a": torch.arange(10, dtype=torch.float32),
    "b": torch.linspace(-1, 1, 12, dtype=torch.bfloat16).reshape(3, 4),
    "c": torch.arange(5),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
    "scalar": torch.tensor(3.5),
}


def read_back(named: NamedTensors, bucket_bytes: int) -> dict[str, torch.Tensor]:
    found = {}
    for portion in named.portions(bucket_bytes):
        assert portion.size <= max(bucket_bytes, named.largest())
        buffer = torch.zeros(portion.size, dtype=torch.uint8)
        write_portion(portion, buffer)
        for spec in portion.specs:
            dtype = getattr(torch, spec.dtype)
            count = torch.Size(spec.shape).numel() * dtype.itemsize
            found[spec.name] = buffer[spec.offset : spec.offset + count].view(dtype).view(spec.shape).clone()
    return found


@pytest.mark.parametrize("bucket_bytes", [1, 64, 128, 10_000])
def test_what_is_read_from_the_buckets_is_what_was_put_in(bucket_bytes: int) -> None:
    found = read_back(NamedTensors(MODEL.items()), bucket_bytes)
    assert list(found) == list(MODEL)
    assert all(torch.equal(found[name], tensor) for name, tensor in MODEL.items())


def test_floating_point_tensors_are_converted_and_others_are_not() -> None:
    found = read_back(NamedTensors(MODEL.items(), "bfloat16"), 10_000)
    assert (found["a"].dtype, found["b"].dtype, found["c"].dtype) == (torch.bfloat16, torch.bfloat16, torch.int64)
    assert torch.equal(found["a"], MODEL["a"].to(torch.bfloat16))


def test_parameters_that_require_gradients_are_taken() -> None:
    named = NamedTensors(torch.nn.Linear(2, 2).named_parameters())
    assert set(read_back(named, 64)) == {"weight", "bias"}


@pytest.mark.parametrize(
    ("tensors", "dtype", "message"),
    [
        ([], None, "no tensor"),
        ([("a", torch.ones(1)), ("a", torch.ones(1))], None, "a comes twice"),
        ([("a", torch.ones(1))], "float7", "no dtype 'float7'"),
    ],
)
def test_updates_that_cannot_be_sent_are_refused(
    tensors: list[tuple[str, torch.Tensor]], dtype: str | None, message: str
) -> None:
    with pytest.raises(WeightUpdateError, match=message):
        NamedTensors(tensors, dtype)


def test_the_first_tensor_with_a_nan_is_named() -> None:
    bad = torch.ones(3)
    bad[1] = float("nan")
    with pytest.raises(WeightUpdateError, match="bad has NaN"):
        NamedTensors([("good", torch.ones(2)), ("bad", bad)]).refuse_non_finite()


def test_a_segment_is_a_file_that_others_can_map_and_that_goes_away() -> None:
    segment = Segment(4096)
    segment.tensor()[:3] = torch.tensor([1, 2, 3], dtype=torch.uint8)
    assert Path(segment.path).read_bytes()[:4] == bytes([1, 2, 3, 0])
    segment.close()
    segment.close()
    assert not Path(segment.path).exists()


def test_more_shared_memory_than_there_is_is_refused_with_what_to_do() -> None:
    with pytest.raises(WeightUpdateError, match="lower bucket_bytes"):
        Segment(2**50)
