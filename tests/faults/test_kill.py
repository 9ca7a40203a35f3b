"""kill -9 at random moments under eight writers (F01), over HTTP, in a registry of ten thousand agents.

`python -m bench.registry` measures the restart time of a service with many agents.
"""

from __future__ import annotations

import asyncio
import base64
import random
import threading
from pathlib import Path

import httpx2

from support.kill_clients import (
    CLIENTS,
    PLAIN,
    Client,
    Watcher,
    document,
    found_by_search,
    listed,
    run_clients,
    steps_of,
)
from support.server import RunningServer, start_server, stop_server
from support.store_commands import NOW, Listener, make_registration, put
from waypost.stores.sqlite.store import SqliteStore
from waypost.trust.transparency_log import Checkpoint, parse_verifier_key, verify_checkpoint, verify_consistency

ROUNDS = 60
OTHERS = 10_000


async def _fill(data: Path) -> None:
    store = SqliteStore(data)
    await store.open(Listener())
    commands = [put(make_registration(f"other-{n:05}", owner="somebody")) for n in range(OTHERS)]
    for start in range(0, OTHERS, 1000):
        await asyncio.gather(*map(store.execute, commands[start : start + 1000]))
    await store.prune(events_before=NOW + 1, keep_events=0, now=NOW)
    await store.close()


def _check(server: RunningServer, clients: list[Client], watcher: Watcher, round_: int) -> None:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http:
        agents = listed(http)
        steps = steps_of(agents)
        for client in clients:
            client.settle({agent: steps[agent] for agent in client.agents if agent in steps})
        assert found_by_search(http) == agents, "the index and the table differ"
        for agent, step in steps.items():
            answer = http.get(f"/profile/v1/agents/{agent}")
            assert answer.content == document(agent, step), "a write is half there"
        marker = f"marker-{round_}"
        assert http.put(f"/profile/v1/agents/{marker}", content=document(marker, round_)).is_success
        watcher.read_until(http, marker)
        assert watcher.steps == {**steps, marker: round_}, "the log and the table differ"
        assert http.delete(f"/profile/v1/agents/{marker}").status_code == 204
        assert http.get("/api/v1/stats").json()["agents"] == OTHERS + len(steps)


class Auditor:
    """Keeps the last checkpoint: the tree after a kill must extend the one signed before it."""

    def __init__(self) -> None:
        self.seen: Checkpoint | None = None

    def look(self, server: RunningServer) -> None:
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60, verify=PLAIN) as http:
            told = http.get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"}).json()
            now = verify_checkpoint(told["note"], parse_verifier_key(told["key"]))
            if self.seen is not None:
                proof = http.get("/api/v1/audit/proof", params={"from": self.seen.size, "to": now.size}).json()
                hashes = [base64.b64decode(each) for each in proof["hashes"]]
                assert verify_consistency(self.seen.size, now.size, hashes, self.seen.root, now.root), (
                    "the trail was cut"
                )
            self.seen = now


def _kill_under_load(server: RunningServer, clients: list[Client], seconds: float) -> None:
    """The time runs from the first answer, so that a slow machine is killed in the midst of work as well."""
    answered = threading.Event()
    threads = run_clients(clients, server.url, server.headers, answered)
    assert answered.wait(120)
    threading.Event().wait(seconds)
    server.kill()
    stop_server(server)
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def test_no_answered_write_is_lost_by_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(_fill(data))
    clients, watcher = [Client(number) for number in range(CLIENTS)], Watcher()
    choice, auditor = random.Random(1), Auditor()
    for round_ in range(1, ROUNDS + 1):
        server = start_server(folder=tmp_path, data=data)
        try:
            auditor.look(server)
            _check(server, clients, watcher, round_)
            auditor.look(server)
            _kill_under_load(server, clients, choice.uniform(0.02, 0.25))
        finally:
            server.kill()
            stop_server(server)
    assert sum(client.answers for client in clients) > ROUNDS
