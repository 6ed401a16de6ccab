"""The least loaded server, and the same one for a session."""

import time

from rollout_core.client import Router
from rollout_core.controller import Endpoint

A, B = Endpoint("engine-0", "http://a"), Endpoint("engine-1", "http://b")


def test_without_endpoints_there_is_nothing_to_pick() -> None:
    assert Router(60).pick((), None) is None


def test_the_least_loaded_server_is_picked() -> None:
    router = Router(60)
    with router.sending(A):
        assert router.pick((A, B), None) == B
        assert (router.in_flight(A), router.in_flight(B)) == (1, 0)
    assert router.in_flight(A) == 0


def test_a_session_stays_on_its_server_though_others_are_less_loaded() -> None:
    router = Router(60)
    home = router.pick((A, B), "session")
    assert home is not None
    with router.sending(home):
        assert router.pick((A, B), "session") == home


def test_a_session_moves_when_its_server_is_gone_and_stays_there() -> None:
    router = Router(60)
    assert router.pick((A,), "session") == A
    assert router.pick((B,), "session") == B
    with router.sending(B):
        assert router.pick((A, B), "session") == B


def test_an_engine_that_failed_the_request_is_avoided_while_there_is_another() -> None:
    router = Router(60)
    assert router.pick((A, B), None, avoid=["engine-0"]) == B
    assert router.pick((A,), None, avoid=["engine-0"]) == A


def test_a_session_without_requests_is_forgotten() -> None:
    router = Router(0.01)
    router.pick((A,), "old")
    time.sleep(0.02)
    router.pick((A,), "new")
    assert list(router._homes) == ["new"]
