"""The numbers are those of the unmodified model, whatever the batch."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
import torch

FAMILIES = ["llama", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3"]


def forced(reference: Any, family: str, prompt: list[int], reply: dict[str, Any]) -> list[float]:
    """Log-probabilities of the reply's tokens in one teacher-forced pass."""
    ids = prompt + reply["token_ids"]
    logprobs = reference(family, ids)
    return [logprobs[len(prompt) + i - 1, token].item() for i, token in enumerate(reply["token_ids"])]


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_equal_a_teacher_forced_forward(family: str, serve: Any, reference: Any, prompt: Any) -> None:
    served = serve(family)
    prompts = [prompt(seed, length) for seed, length in enumerate((1, 5, 18, 40, 70))]
    requests = [{"prompt": ids, "max_tokens": 30, "seed": 3, "ignore_eos": True} for ids in prompts]
    for ids, reply in zip(prompts, served.together(requests), strict=True):
        assert len(reply["token_ids"]) == 30
        assert reply["logprobs"] == pytest.approx(forced(reference, family, ids, reply), abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_the_most_likely_ones(family: str, serve: Any, reference: Any, prompt: Any) -> None:
    ids = prompt(1, 33)
    reply = serve(family).generate(ids, max_tokens=24, temperature=0.0, ignore_eos=True)
    best = reference(family, ids + reply["token_ids"])[len(ids) - 1 : -1].argmax(1).tolist()
    assert reply["token_ids"] == best


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "qwen2"])
def test_chunked_prefill_equals_whole_prefill(family: str, serve: Any, reference: Any, prompt: Any) -> None:
    served = serve(family, max_prefill_tokens=16)
    ids = prompt(2, 75)
    reply = served.generate(ids, max_tokens=8, seed=0, ignore_eos=True, prompt_logprobs=True)
    assert reply["logprobs"] == pytest.approx(forced(reference, family, ids, reply), abs=1e-4)
    whole = reference(family, ids)
    assert reply["prompt_logprobs"][0] is None
    expected = [whole[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
    assert reply["prompt_logprobs"][1:] == pytest.approx(expected, abs=1e-4)


def test_scoring_a_prompt_needs_no_new_token(llama: Any, reference: Any, prompt: Any) -> None:
    ids = prompt(4, 12)
    reply = llama.generate(ids, max_tokens=0, prompt_logprobs=True)
    assert (reply["token_ids"], reply["finish_reason"]) == ([], "length")
    whole = reference("llama", ids)
    expected = [whole[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
    assert reply["prompt_logprobs"][1:] == pytest.approx(expected, abs=1e-4)


def test_top_logprobs_are_the_largest_of_the_model(llama: Any, reference: Any, prompt: Any) -> None:
    ids = prompt(5)
    reply = llama.generate(ids, max_tokens=4, top_logprobs=3, temperature=0.5, seed=1, ignore_eos=True)
    whole = reference("llama", ids + reply["token_ids"])[len(ids) - 1 : -1]
    values, tokens = whole.topk(3, dim=1)
    assert [[pair[0] for pair in pairs] for pairs in reply["top_logprobs"]] == tokens.tolist()
    found = torch.tensor([[pair[1] for pair in pairs] for pairs in reply["top_logprobs"]])
    assert torch.allclose(found, values, atol=1e-4)


def test_sampled_logprobs_are_those_of_the_tempered_distribution(llama: Any, reference: Any, prompt: Any) -> None:
    ids = prompt(6)
    reply = llama.generate(ids, max_tokens=6, temperature=0.7, seed=1, ignore_eos=True)
    rows = reference("llama", ids + reply["token_ids"])[len(ids) - 1 : -1]
    tempered = torch.log_softmax(rows / 0.7, -1)
    expected = [tempered[i, token].item() for i, token in enumerate(reply["token_ids"])]
    assert reply["sampled_logprobs"] == pytest.approx(expected, abs=1e-4)
    assert llama.generate(ids, max_tokens=2)["sampled_logprobs"] is None
    assert llama.generate(ids, max_tokens=2, temperature=0.0)["sampled_logprobs"] is None


def test_tokens_do_not_depend_on_the_batch(llama: Any, prompt: Any) -> None:
    request = {"prompt": prompt(7, 25), "max_tokens": 20, "seed": 11, "temperature": 0.8, "top_p": 0.9}
    alone = llama.generate(**request)
    others = [{"prompt": prompt(seed, 5 * seed), "max_tokens": 3 * seed} for seed in range(1, 12)]
    crowd = llama.together([*others[:6], request, *others[6:]])[6]
    assert crowd["token_ids"] == alone["token_ids"]
    assert crowd["logprobs"] == pytest.approx(alone["logprobs"], abs=5e-5)


def test_routed_experts_are_those_of_a_teacher_forced_forward(serve: Any, reference: Any, prompt: Any) -> None:
    served = serve("qwen3_moe", return_routed_experts=True)
    ids = prompt(8, 20)
    fields = {"max_tokens": 5, "seed": 2, "ignore_eos": True, "routed_experts": True}
    first, copied = served.generate(ids, **fields), served.generate(ids, **fields)
    assert copied["cached_tokens"] == len(ids) - 1
    output = reference("qwen3_moe", ids + first["token_ids"], output_router_logits=True)
    expected = torch.stack([layer.topk(2, dim=-1).indices for layer in output.router_logits], dim=1).numpy()
    for reply in (first, copied):
        record = reply["routed_experts"]
        assert record["shape"] == [len(ids) + 5 - 1, 3, 2]
        chosen = np.frombuffer(base64.b64decode(record["data"]), record["dtype"]).reshape(record["shape"])
        assert (chosen == expected[:-1]).all()
