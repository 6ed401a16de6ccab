"""Clients in other processes: the same client, and the same barrier."""



CLIENT = """
async def main():
    async with RolloutClient.connect(where) as client:
        say("in")
        while (line := await asyncio.to_thread(hear)):
            results = await asyncio.gather(*(client.generate(GenerateRequest((int(line),))) for _ in range(3)))
            say(*(result.status.value for result in results), results[0].error or "")
    say("out")

asyncio.run(main())
"""


def test_clients_in_several_processes_generate_and_a_pause_waits_for_all_of_them(run, other):
    started = run()
    clients = [other(CLIENT, started.where) for _ in range(3)]
    assert [client.heard() for client in clients] == ["in"] * 3
    for client in clients:
        client.tell("1")
    assert [client.heard() for client in clients] == ["completed completed completed"] * 3
    report = started.controller.pause_generation("abort")
    assert (report.clients, report.lost_clients) == (3, 0)
    started.controller.continue_generation()
    for client in clients:
        client.tell("")
    assert [client.heard() for client in clients] == ["out"] * 3
    assert started.controller.status().clients == ()
