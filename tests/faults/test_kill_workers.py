"""kill -9 of the leader and a follower, repeatedly, under load: no acknowledged write is lost, and all processes agree."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import psutil

from support.kill_clients import Watcher, document, found_by_search, listed, steps_of
from support.server import RunningServer, start_server, stop_server
from support.worker_clients import PatientClient
from support.worker_processes import all_ready, both, wait_for, workers

ROUNDS, ROUNDS_LONG = 8, 60
CLIENTS = 4


def _kill_one(server: RunningServer, place: int) -> None:
    victim = workers(server)[place]["pid"]
    psutil.Process(victim).send_signal(signal.SIGKILL)

    def is_replaced() -> bool:
        found = all_ready(server)
        return bool(found) and found[place]["pid"] != victim

    wait_for(is_replaced)


def test_no_answered_write_is_lost_when_processes_are_killed(tmp_path: Path, is_long: bool) -> None:
    rounds = ROUNDS_LONG if is_long else ROUNDS
    server = start_server("--workers", "2", folder=tmp_path)
    clients = [PatientClient(number) for number in range(CLIENTS)]
    stop, choice = threading.Event(), random.Random(2)
    threads = [
        threading.Thread(target=client.run_until, args=(stop, server.url, server.headers), daemon=True)
        for client in clients
    ]
    try:
        for thread in threads:
            thread.start()
        for round_ in range(rounds):
            threading.Event().wait(choice.uniform(0.05, 0.4))
            _kill_one(server, 0 if round_ % 2 else 1)
        wait_for(lambda: all(client.answers > rounds or client.complaints for client in clients))
        stop.set()
        for thread in threads:
            thread.join(240)
            assert not thread.is_alive()
        assert not any(client.complaints for client in clients), [client.complaints for client in clients]
        assert sum(client.interruptions for client in clients) > 0
        with both(server) as processes:
            for http in processes:
                agents = listed(http)
                steps = steps_of(agents)
                for client in clients:
                    client.settle({agent: steps[agent] for agent in client.agents if agent in steps})
                assert found_by_search(http) == agents, "the index and the table differ"
                for agent, step in steps.items():
                    assert http.get(f"/profile/v1/agents/{agent}").content == document(agent, step)
            marker = "marker-1"
            assert processes[1].put(f"/profile/v1/agents/{marker}", content=document(marker, 1)).is_success
            watchers = [Watcher(), Watcher()]
            for http, watcher in zip(processes, watchers, strict=True):
                watcher.read_until(http, marker)
                assert watcher.steps == {**steps, marker: 1}, "the log and the table differ"
    finally:
        stop.set()
        assert stop_server(server) == 0
