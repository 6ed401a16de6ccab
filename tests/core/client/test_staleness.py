"""Every sample says how old it is, and one that is too old is marked."""

from dataclasses import replace
from typing import Any

import pytest

from rollout_core import GenerateRequest, GenerateResult, SampleParams, Status
from rollout_core.types import CachePolicy, FinishReason

ASK = GenerateRequest((1, 2, 3), SampleParams(max_tokens=4), request_id="r")
PRIOR = GenerateResult(
    request_id="r",
    prompt_ids=(1, 2, 3),
    token_ids=(7, 8),
    logprobs=(-0.1, -0.2),
    weight_versions=(1, 2),
    finish_reason=FinishReason.ABORT,
    status=Status.ABORTED,
)


def serving(fleet: Any, version: int, **settings: Any) -> Any:
    """One good engine, whose replies are of version 3, while `version` is published."""
    engines = fleet(**settings)
    shown = type(engines).view
    view = property(lambda self: replace(shown.fget(self), weight_version=version, cache_policy=CachePolicy.KEEP))
    engines.__class__ = type("Published", (type(engines),), {"view": view})
    return engines


async def test_a_sample_says_its_oldest_and_newest_version_and_its_lag(fleet: Any) -> None:
    async with serving(fleet, 5).client() as client:
        result = await client.generate(ASK, prior=PRIOR)
    assert result.weight_versions == (1, 2, 3, 3)
    assert (result.oldest_version, result.newest_version, result.lag) == (1, 3, 4)
    assert (result.status, result.cache_policy) == (Status.COMPLETED, CachePolicy.KEEP)


def test_a_result_without_tokens_has_no_version() -> None:
    result = GenerateResult("r", (1,))
    assert (result.oldest_version, result.newest_version, result.lag) == (None, None, 0)


@pytest.mark.parametrize(("limit", "status"), [(1, Status.EXPIRED), (2, Status.COMPLETED), (None, Status.COMPLETED)])
async def test_a_sample_above_the_limit_expires_and_keeps_its_tokens(fleet: Any, limit: int, status: Status) -> None:
    async with serving(fleet, 5, max_staleness=limit).client() as client:
        result = await client.generate(ASK)
    assert (result.status, result.finish_reason, result.token_ids) == (status, FinishReason.LENGTH, (5, 6))


async def test_a_prior_that_is_too_old_is_not_continued(fleet: Any) -> None:
    engines = serving(fleet, 5, max_staleness=3)
    async with engines.client() as client:
        result = await client.generate(ASK, prior=PRIOR)
    assert (result.status, result.token_ids, engines.bodies) == (Status.EXPIRED, (7, 8), [])
