"""Validation errors of a plugin's options, in plain words."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from rollout_core.config.explain import explain


class Cache(BaseModel):
    model_config = ConfigDict(extra="forbid")

    blocks: int = Field(default=1, ge=1)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    threads: int = 1
    mode: Literal["fast", "slow"] = "fast"
    level: str = Field(default="info", pattern="^(info|debug)$")
    cache: Cache | None = None
    names: list[str] = []
    password: SecretStr | None = None


def told(table: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        Options.model_validate(table)
    return explain(caught.value, "options of 'x'", Options)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"thread": 1}, "thread is not a known setting; did you mean threads?"),
        ({"cache": {"block": 1}}, "cache.block is not a known setting; did you mean blocks?"),
        ({"cache": {"blocks": 0}}, "cache.blocks is 0; expected 1 or more"),
        ({"cache": 3}, "cache is 3; expected a table"),
        ({"names": ["a", 1]}, "names[1] is 1; expected text in quotes"),
        ({"mode": "fats"}, "mode is \"fats\"; expected one of 'fast' or 'slow'; did you mean fast?"),
        ({"level": "loud"}, 'level is "loud"; expected text that matches ^(info|debug)$'),
        ({"password": 5150}, "password is hidden; expected text in quotes"),
    ],
)
def test_each_kind_of_problem_is_one_plain_sentence(table, sentence):
    assert told(table) == f"options of 'x': {sentence}"


def test_a_long_value_is_cut():
    assert len(told({"threads": "x" * 500})) < 150


def test_each_problem_is_a_line():
    assert len(told({"thread": 1, "mode": "no"}).splitlines()) == 2
