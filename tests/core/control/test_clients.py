"""Clients in other processes: the same client, and the same barrier."""

import asyncio
import signal

from rollout_core import ControlServer, GenerateRequest, RolloutClient

FAIL = 3
CLIENT = """
async def main():
    async with RolloutClient.connect(where) as client:
        say("in")
        while line := await asyncio.to_thread(hear):
            prompt, count = map(int, line.split())
            work = asyncio.gather(*(client.generate(GenerateRequest((prompt,))) for _ in range(count)))
            await asyncio.sleep(0)
            say("sent")
            results = await work
            statuses = {result.status.value for result in results}
            say(len({result.request_id for result in results}), *statuses, results[0].error or "")
    say("out")

asyncio.run(main())
"""


def start_clients(other, where, count):
    clients = [other(CLIENT, where) for _ in range(count)]
    assert [client.heard() for client in clients] == ["in"] * count
    return clients


def draw(client, prompt=1, count=1):
    client.tell(f"{prompt} {count}")
    assert client.heard() == "sent"
    return client.heard()


def test_clients_in_several_processes_generate_and_a_pause_waits_for_all_of_them(run, other):
    started = run()
    clients = start_clients(other, started.where, 3)
    assert [draw(client, count=3) for client in clients] == ["3 completed"] * 3
    report = started.controller.pause_generation("abort")
    assert (report.clients, report.lost_clients) == (3, 0)
    started.controller.continue_generation()
    for client in clients:
        client.tell("")
    assert [client.heard() for client in clients] == ["out"] * 3
    assert started.controller.status().clients == ()


def test_a_pause_brings_requests_back_and_holds_new_ones_until_it_ends(run, other, wait_for):
    started = run()
    (client,) = start_clients(other, started.where, 1)
    client.tell("2 5")
    assert client.heard() == "sent"
    wait_for(lambda: started.engine()["held"] == 5)
    report = started.controller.pause_generation("abort")
    assert (report.in_flight, report.aborted) == (5, 5)
    assert client.heard() == "5 aborted"
    client.tell("1 4")
    assert client.heard() == "sent"
    assert started.engine()["progress"] == 0
    started.controller.continue_generation()
    assert client.heard() == "4 completed"


def test_a_killed_client_holds_a_pause_up_until_its_lease_ends_and_no_longer(run, other):
    started = run(client_lease_s=1.5)
    dead, alive = start_clients(other, started.where, 2)
    dead.kill()
    report = started.controller.pause_generation("abort")
    assert (report.clients, report.lost_clients) == (1, 1)
    started.controller.continue_generation()
    assert draw(alive) == "1 completed"


def test_a_client_that_was_stopped_beyond_its_lease_sees_the_pause_before_it_sends_again(run, other, wait_for):
    started = run(client_lease_s=0.6)
    (client,) = start_clients(other, started.where, 1)
    client.kill(signal.SIGSTOP)
    report = started.controller.pause_generation("abort")
    assert report.lost_clients == 1
    client.tell("1 1")
    client.kill(signal.SIGCONT)
    assert client.heard() == "sent"
    # The engine asserts that nothing comes through while it is paused; the client joins anew and waits.
    wait_for(lambda: started.controller.status().clients)
    assert started.engine()["progress"] == 0
    started.controller.continue_generation()
    assert client.heard() == "1 completed"


def test_a_client_goes_on_for_its_lease_without_its_controller_then_fails_clearly_and_comes_back(
    run, other, wait_for, tmp_path
):
    started = run(client_lease_s=3.0)
    (client,) = start_clients(other, started.where, 1)
    started.server.close()
    assert draw(client) == "1 completed"

    def failed():
        answer = draw(client)
        return "1 failed no engine is in service: controller: not heard of for" in answer and answer

    wait_for(failed)
    assert "does not exist; it is there while the controller runs" in failed()
    with ControlServer(started.controller, tmp_path / "run" / "control.json"):
        wait_for(lambda: draw(client) == "1 completed")
        assert started.controller.pause_generation("abort").lost_clients <= 1
        assert len(started.controller.status().clients) == 1


def test_an_engine_that_fails_requests_of_remote_clients_goes_out_of_service(run, other, wait_for):
    started = run(max_retries_per_sample=0, max_retries_per_worker=2)
    clients = start_clients(other, started.where, 2)
    assert "answered 500: broken" in draw(clients[0], FAIL)
    assert draw(clients[0]) == "1 completed"
    assert "answered 500: broken" in draw(clients[0], FAIL)
    assert started.controller.view.endpoints  # an answer came between the faults
    assert "answered 500: broken" in draw(clients[1], FAIL)
    wait_for(lambda: not started.controller.view.endpoints)
    assert "2 requests in a row failed" in started.controller.view.reasons["engine-0"]


def test_a_local_client_and_a_remote_one_are_told_apart(run, other, wait_for):
    started = run()
    (remote,) = start_clients(other, started.where, 1)

    async def use():
        async with RolloutClient(started.controller) as client:
            work = [asyncio.create_task(client.generate(GenerateRequest((2,)))) for _ in range(7)]
            await asyncio.sleep(0.1)
            status = started.controller.status()
            await asyncio.to_thread(started.controller.abort_requests)
            await asyncio.gather(*work)
            return status

    by_pid = {client.pid: client.in_flight for client in asyncio.run(use()).clients}
    assert by_pid == {None: 7, remote.process.pid: 0}


def test_five_thousand_requests_in_flight_are_paused_and_come_back_once_each(run, other, wait_for):
    started = run()
    (client,) = start_clients(other, started.where, 1)
    client.tell("2 5000")
    assert client.heard() == "sent"
    wait_for(lambda: started.engine()["held"] == 5000, 60)
    report = started.controller.pause_generation("abort")
    assert (report.clients, report.in_flight, report.aborted) == (1, 5000, 5000)
    assert client.heard() == "5000 aborted"
    started.controller.continue_generation()
