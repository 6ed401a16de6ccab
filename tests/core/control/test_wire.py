"""Values and errors as JSON and back."""

import orjson
import pytest
from pydantic import BaseModel, SecretStr

from rollout_core import ConfigError, DeadlineError, EngineError, RolloutConfig, WeightUpdateError, errors
from rollout_core.control.wire import Problem, decode, encode, problem_of, reveal, revived
from rollout_core.controller import Endpoint, EngineState, View
from rollout_core.types import CachePolicy, MemoryPart, PauseMode
from rollout_core.weights.feed import NothingSentError


def over_the_wire(error):
    return revived(decode(Problem, encode(problem_of(error))))


@pytest.mark.parametrize(
    "error",
    [getattr(errors, name)("what was asked") for name in errors.__all__ if name != "DeadlineError"],
    ids=lambda error: type(error).__name__,
)
def test_each_error_comes_back_as_its_own_kind(error):
    back = over_the_wire(error)
    assert type(back) is type(error)
    assert str(back) == "what was asked"


def test_a_deadline_keeps_its_facts():
    back = over_the_wire(DeadlineError("engine-0", "POST /pause", 1.5, "raise control_timeout_s"))
    assert isinstance(back, DeadlineError)
    assert (back.peer, back.phase, back.seconds) == ("engine-0", "POST /pause", 1.5)
    assert str(back) == "engine-0: POST /pause took longer than 1.5 s; raise control_timeout_s"


def test_an_error_that_is_not_public_comes_back_as_its_nearest_public_kind():
    assert type(over_the_wire(NothingSentError("n"))) is WeightUpdateError
    assert type(revived(Problem("SystemExit", "no error of ours"))) is EngineError
    assert type(over_the_wire(ConfigError("c"))) is ConfigError


def test_a_view_comes_back_equal():
    view = View(
        (Endpoint("engine-0", "http://127.0.0.1:1"),),
        {"engine-0": EngineState.READY, "engine-1": EngineState.FAILED},
        {"engine-1": "killed"},
        PauseMode.KEEP,
        3,
        CachePolicy.FLUSH,
        17,
    )
    assert decode(View, encode(view)) == view
    assert decode(frozenset[MemoryPart], encode(frozenset(MemoryPart))) == frozenset(MemoryPart)


class Options(BaseModel):
    password: SecretStr = SecretStr("p")


def test_only_revealing_a_config_tells_its_secrets():
    config = RolloutConfig(model_path="m", api_keys=["k"], backend_options=Options())
    assert b'"k"' not in encode(config)
    revealed = reveal(config)
    assert (revealed["api_keys"], revealed["backend_options"]) == (["k"], {"password": "p"})
    assert orjson.dumps(revealed)
