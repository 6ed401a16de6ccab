"""Ports are leased by binding them."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollout_core.errors import LaunchError
from rollout_core.ports import PortLease

RANGE = (20000, 32000)


def test_thirty_two_leases_at_once_are_all_different() -> None:
    with ThreadPoolExecutor(32) as pool:
        leases = list(pool.map(lambda _: PortLease.acquire("127.0.0.1", RANGE), range(32)))
    assert len({lease.port for lease in leases}) == 32
    for lease in leases:
        lease.release()


def test_a_leased_port_can_be_bound_by_the_server_but_not_leased_again() -> None:
    with PortLease.acquire("127.0.0.1", RANGE) as lease:
        with socket.create_server(("127.0.0.1", lease.port)):
            pass
        with pytest.raises(LaunchError, match="no free port"):
            PortLease.acquire("127.0.0.1", (lease.port, lease.port))


def test_a_port_that_another_program_listens_on_is_not_leased() -> None:
    with PortLease.acquire("127.0.0.1", RANGE) as lease:
        port = lease.port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LaunchError, match=f"between {port} and {port}; widen port_range"),
    ):
        PortLease.acquire("127.0.0.1", (port, port))


def test_a_released_port_can_be_leased_again_and_releasing_twice_is_harmless() -> None:
    lease = PortLease.acquire("127.0.0.1", RANGE)
    lease.release()
    lease.release()
    PortLease.acquire("127.0.0.1", (lease.port, lease.port)).release()
