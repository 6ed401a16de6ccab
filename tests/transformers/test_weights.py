"""What fits the model is known before anything is written; tied weights need one of their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rollout_transformers.engine.weights import IncomingTensor, WeightsRefused, WeightWriter

TIED = "lm_head.weight"


@pytest.fixture
def tied(checkpoint: Callable[[str], Path], tmp_path: Path) -> Any:
    """A model whose head is its embedding."""
    config = transformers.LlamaConfig.from_pretrained(checkpoint("llama"), tie_word_embeddings=True)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    return model


def written(model: Any, folder: Path, tensors: dict[str, Any]) -> None:
    """Write the tensors through a file in the place of shared memory."""
    incoming, data, offset = [], b"", 0
    for name, tensor in tensors.items():
        incoming.append(IncomingTensor(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), offset))
        data += tensor.contiguous().numpy().tobytes()
        offset = len(data)
    bucket = folder / "bucket"
    bucket.write_bytes(data)
    writer = WeightWriter(model, folder, False)
    writer.begin([IncomingTensor(item.name, item.dtype, item.shape) for item in incoming])
    writer.write(incoming, str(bucket))
    writer.finish()


@pytest.mark.parametrize("names", ["both", "embedding", "head"])
def test_tied_weights_take_either_of_their_names(tied: Any, tmp_path: Path, names: str) -> None:
    state = {name: tensor + 1 for name, tensor in tied.state_dict().items()}
    left_out = {"both": None, "embedding": TIED, "head": "model.embed_tokens.weight"}[names]
    written(tied, tmp_path, {name: tensor for name, tensor in state.items() if name != left_out})
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    for name, tensor in tied.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_checkpoint_without_the_tied_head_is_whole(tied: Any, tmp_path: Path) -> None:
    before = tied.lm_head.weight.clone()
    with torch.no_grad():
        tied.lm_head.weight.zero_()
    WeightWriter(tied, tmp_path, False).load(tmp_path, refuse_non_finite=True)
    assert torch.equal(tied.lm_head.weight, before)


def test_what_did_not_come_is_named_at_the_end(tied: Any, tmp_path: Path) -> None:
    writer = WeightWriter(tied, tmp_path, False)
    writer.begin([IncomingTensor(n, "float32", tuple(t.shape)) for n, t in tied.state_dict().items()])
    with pytest.raises(RuntimeError, match=r"the update ended before .* and 26 more came"):
        writer.finish()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float33"}, "has the unknown dtype 'float33'"),
        ({"dtype": "int32"}, "has dtype int32, the model's is torch.float32"),
        ({"shape": (1, 2)}, r"has shape \[1, 2\], the model's is \[64\]"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(tied: Any, tmp_path: Path, change: Any, message: str) -> None:
    tensors = {
        name: {"name": name, "dtype": "float32", "shape": tuple(t.shape)} for name, t in tied.state_dict().items()
    }
    tensors["model.norm.weight"] |= change
    with pytest.raises(WeightsRefused, match=f"model.norm.weight {message}"):
        WeightWriter(tied, tmp_path, False).begin([IncomingTensor(**tensor) for tensor in tensors.values()])
