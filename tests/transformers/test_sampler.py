"""Draws follow the distribution that the parameters describe; log-probabilities are the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rollout_transformers.engine.logits import Penalties, RowParams, adjust
from rollout_transformers.engine.noise import exponentials, noise_key
from rollout_transformers.engine.sampler import Draw, NonFiniteLogits, sample, token_logprobs

VOCABULARY = 3000


def random_logits(seed: int, rows: int = 1, spread: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCABULARY, generator=generator) * spread


def slow_distribution(
    logits: torch.Tensor,
    prompt: list[int],
    response: list[int],
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    banned: tuple[int, ...] = (),
) -> dict[int, float]:
    """Token probabilities, one token at a time, straight from the definitions."""
    values = dict(enumerate(logits.double().tolist()))
    for token in set(prompt) | set(response):
        values[token] = values[token] / repetition if values[token] > 0 else values[token] * repetition
    for token in set(response):
        values[token] -= frequency * response.count(token) + presence
    for token in banned:
        del values[token]
    values = {token: value / temperature for token, value in values.items()}
    ranked = sorted(values, key=lambda token: -values[token])
    if top_k:
        ranked = ranked[:top_k]
    weights = {token: float(np.exp(values[token] - values[ranked[0]])) for token in ranked}
    total, reached, kept = sum(weights.values()), 0.0, []
    for token in ranked:
        if reached >= top_p * total and top_p < 1.0:
            break
        kept.append(token)
        reached += weights[token]
    kept = [token for token in kept if weights[token] >= min_p * weights[kept[0]]]
    mass = sum(weights[token] for token in kept)
    return {token: weights[token] / mass for token in kept}


CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7},
    {"top_k": 1},
    {"top_k": 20},
    {"top_k": 2500},
    {"top_p": 0.3},
    {"top_p": 0.95},
    {"top_p": 0.999},
    {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.7, "min_p": 0.05, "temperature": 0.9},
    {"repetition": 1.4},
    {"presence": 0.8},
    {"frequency": 0.5, "presence": -0.2, "repetition": 0.8},
    {"banned": (3, 2999), "temperature": 0.8},
]


def row_params(case: dict[str, Any], prompt: list[int], response: list[int], **fields: Any) -> RowParams:
    names = ("repetition", "presence", "frequency")
    penalties = None
    if any(name in case for name in names):
        given = {"repetition": 1.0, "presence": 0.0, "frequency": 0.0} | {n: case[n] for n in names if n in case}
        penalties = Penalties(VOCABULARY, prompt, **given)
        for token in response:
            penalties.add(token)
    rest = {name: value for name, value in case.items() if name not in names}
    return RowParams(penalties=penalties, **rest, **fields)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_adjusted_distribution_equals_the_slow_one(case: dict[str, Any], spread: float) -> None:
    logits = random_logits(1, rows=3, spread=spread)
    best = int(logits[1].argmax())
    prompt, response = [5, 6, best], [7, 7, best, 8]
    rows = [RowParams(), row_params(case, prompt, response), RowParams(temperature=0.0)]
    found = torch.softmax(adjust(logits, rows)[1].double(), 0)
    expected = slow_distribution(logits[1], prompt, response, **case)
    assert set(torch.nonzero(found).flatten().tolist()) == set(expected)
    assert all(found[token].item() == pytest.approx(p, rel=1e-4) for token, p in expected.items())


def test_parameters_of_one_row_leave_the_others_alone() -> None:
    logits = random_logits(2, rows=len(CASES))
    together = adjust(logits, [row_params(case, [1], [2, 2]) for case in CASES])
    for index, case in enumerate(CASES):
        alone = adjust(logits[index : index + 1], [row_params(case, [1], [2, 2])])
        assert torch.equal(together[index], alone[0])


def test_draws_follow_the_distribution() -> None:
    logits = torch.full((1, VOCABULARY), -9.0)
    tokens, probabilities = [3, 4, 700, 2999], [0.5, 0.25, 0.2, 0.05]
    logits[0, tokens] = torch.tensor(probabilities).log() + 5.0
    many = 4000
    keys = [noise_key(1, position) for position in range(many)]
    draws = sample(logits.expand(many, -1), [RowParams(noise_key=key) for key in keys])
    found = [draw.token for draw in draws if isinstance(draw, Draw)]
    for token, probability in zip(tokens, probabilities, strict=True):
        deviation = (probability * (1 - probability) / many) ** 0.5
        assert found.count(token) / many == pytest.approx(probability, abs=4 * deviation)


def test_small_noise_in_the_logits_hardly_ever_changes_a_draw() -> None:
    flat = random_logits(3, rows=500, spread=0.5)
    noisy = flat + (torch.rand(flat.shape, generator=torch.Generator().manual_seed(0)) - 0.5) * 2e-6
    rows = [RowParams(noise_key=noise_key(7, i)) for i in range(500)]
    changed = sum(one.token != other.token for one, other in zip(sample(flat, rows), sample(noisy, rows), strict=True))
    assert changed <= 1


def test_greedy_takes_the_most_likely_token_and_its_raw_logprob() -> None:
    logits = random_logits(4, rows=2)
    first, second = sample(logits, [RowParams(temperature=0.0), RowParams(noise_key=3)])
    assert first.token == logits[0].argmax()
    assert first.logprob == pytest.approx(torch.log_softmax(logits[0], 0).max().item(), abs=1e-6)
    assert second.logprob == second.sampled_logprob


def test_a_row_that_is_not_finite_fails_alone() -> None:
    logits = random_logits(5, rows=3)
    logits[1, 17] = float("nan")
    draws = sample(logits, [RowParams(temperature=0.0), RowParams(noise_key=1), RowParams(noise_key=2)])
    assert [isinstance(draw, NonFiniteLogits) for draw in draws] == [False, True, False]


def test_top_logprobs_are_cut_to_what_each_row_asked_for() -> None:
    logits = random_logits(6, rows=2)
    one, other = sample(logits, [RowParams(top_logprobs=2), RowParams()])
    assert [token for token, _ in one.top] == logits[0].topk(2).indices.tolist()
    assert other.top == []


def test_logprobs_are_never_positive() -> None:
    logits = torch.full((1, VOCABULARY), -1000.0)
    logits[0, 9] = 1000.0
    (draw,) = sample(logits, [RowParams(noise_key=1)])
    assert (draw.token, draw.logprob) == (9, 0.0)
    assert token_logprobs(logits, torch.tensor([9])) == [0.0]


def test_noise_depends_on_seed_and_position_only() -> None:
    assert noise_key(1, 2) == noise_key(1, 2)
    keys = {noise_key(seed, position) for seed in range(-5, 20) for position in range(200)}
    assert len(keys) == 25 * 200
    pair = exponentials([noise_key(1, 0), noise_key(1, 1)], 4)
    assert np.array_equal(pair[1:], exponentials([noise_key(1, 1)], 4))
    assert exponentials([noise_key(1, 0)], 20000).mean() == pytest.approx(1.0, abs=0.03)
