"""Tasks, swarms and invitations with several processes: all write one file, and nothing is used twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from support.server import RunningServer, running_server
from support.worker_processes import both, wait_for

HOST = "vault.example.com"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--workers", "2") as running:
        yield running


def test_a_task_sent_through_one_process_is_seen_and_done_through_the_other(server: RunningServer) -> None:
    with both(server) as (writer, follower):
        for through, asked in ((writer, follower), (follower, writer), (follower, follower)):
            sent = through.post("/agent/tasks", json={"task": "echo", "input": [1]})
            assert sent.status_code == 202, sent.text
            where = sent.headers["location"]
            assert asked.get(where).status_code == 200
            status = wait_for(lambda where=where, asked=asked: _ended(asked, where))
            assert status == {"status": "succeeded", "result": [1]}


def _ended(http: httpx2.Client, where: str) -> dict[str, object] | None:
    status = http.get(where).json()
    return {name: status[name] for name in ("status", "result")} if status["status"] == "succeeded" else None


def test_a_swarm_joined_through_one_process_is_seen_through_the_other(server: RunningServer) -> None:
    with both(server) as (writer, follower):
        for number, through in enumerate((writer, follower)):
            joined = through.post("/agent/swarm/join", json={"agent": f"agent:a{number}.example.com", "task": "both"})
            assert joined.status_code == 200, joined.text
        for asked in (writer, follower):
            members = asked.get(f"/agent/swarm/{joined.json()['swarmId']}").json()["members"]
            assert [each["agent"] for each in members] == ["agent:a0.example.com", "agent:a1.example.com"]


def test_one_use_of_an_invitation_is_one_use_over_all_processes(server: RunningServer) -> None:
    document = {"id": "urn:agent:vault", "name": "Vault", "description": "Keeps.", "bindings": []}
    document["bindings"] = [{"protocol": "https", "endpoint": "https://vault.example.com/x"}]
    with both(server) as (writer, follower):
        writer.post("/api/v1/agents", json=document, headers={"Waypost-Visibility": "private"})
        assert writer.post("/api/v1/agents/urn%3Aagent%3Avault:host", json={"domain": HOST}).is_success
        for _ in range(3):
            made = follower.post("/api/v1/invitations", json={"agent": "urn:agent:vault"})
            assert made.status_code == 201, made.text
            path = f"/.well-known/agent.json?invite={made.json()['invitation']['invite']['code']}"
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(lambda http, path=path: _shown(http, path), [writer, follower] * 6))
            assert sorted(found) == [200] + [404] * 11


def _shown(http: httpx2.Client, path: str) -> int:
    return http.get(path, headers={"Host": HOST, "Authorization": ""}).status_code
