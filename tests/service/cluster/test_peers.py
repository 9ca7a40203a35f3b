"""Peers of a cluster: one node pulls, all know, and another one takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2

from service.cluster.conftest import Cluster
from support.postgresql import PostgresqlServer
from support.server import RunningServer
from support.service import profile

SECONDS = 60.0


def wait_for(is_true: Callable[[], object], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < until, f"not within {SECONDS:g} s: {what}"
        time.sleep(0.05)


def put(server: RunningServer, agent_id: str) -> None:
    assert httpx2.post(f"{server.url}/api/v1/agents", json=profile(agent_id), headers=server.headers).is_success


def has(server: RunningServer, agent_id: str, headers: dict[str, str]) -> bool:
    path = agent_id.replace(":", "%3A")
    return httpx2.get(f"{server.url}/api/v1/agents/{path}", headers=headers).status_code == 200


def withdraw(server: RunningServer, agent_id: str) -> None:
    path = agent_id.replace(":", "%3A")
    assert httpx2.delete(f"{server.url}/profile/v1/agents/{path}", headers=server.headers).status_code == 204


class Pullers:
    """The nodes of a cluster by the names that they have in its database."""

    def __init__(self, cluster: Cluster, postgresql: PostgresqlServer) -> None:
        self._cluster = cluster
        self._postgresql = postgresql
        self._database = cluster.url.rsplit("/", 1)[1]
        self.alive: dict[str, RunningServer] = {}

    def _sql(self, statement: str) -> set[str]:
        return set(self._postgresql.sql(statement, database=self._database).split())

    def start(self) -> RunningServer:
        server = self._cluster.start("--allow-cidrs", "127.0.0.0/8")
        (name,) = self._sql("SELECT node FROM waypost.nodes") - set(self.alive)
        self.alive[name] = server
        return server

    def holder(self) -> str | None:
        """The node that has the lease of the peer."""
        statement = "SELECT node FROM waypost.leases WHERE name = 'peer there' AND until > clock_timestamp()"
        return next(iter(self._sql(statement)), None)

    def kill_holder(self) -> str:
        wait_for(lambda: self.holder() in self.alive, "a node that pulls")
        name = self.holder()
        assert name is not None
        self.alive.pop(name).kill()
        return name


def test_three_nodes_pull_from_another_cluster(cluster: Cluster, postgresql: PostgresqlServer, tmp_path: Path) -> None:
    """The node that pulls is killed twice, and the node that it pulls from once."""
    with ExitStack() as stack:
        there = Cluster(tmp_path / "there", postgresql.create_database(), stack)
        followed, other = (there.start("--anonymous-read", "--access-log") for _ in range(2))
        pullers = Pullers(cluster, postgresql)
        first = pullers.start()
        pullers.start()
        pullers.start()
        headers = first.headers

        def is_everywhere(agent_id: str) -> bool:
            return all(has(node, agent_id, headers) for node in pullers.alive.values())

        def shown() -> list[dict[str, Any]]:
            nodes = pullers.alive.values()
            return [httpx2.get(f"{node.url}/api/v1/peers/there", headers=headers).json() for node in nodes]

        put(other, "urn:ex:a")
        put(followed, "urn:ex:b")
        body: dict[str, Any] = {"url": followed.url, "name": "there"}
        assert httpx2.post(f"{first.url}/api/v1/peers", json=body, headers=headers, timeout=30).status_code == 201
        wait_for(lambda: is_everywhere("urn:ex:a") and is_everywhere("urn:ex:b"), "the agents on every node")
        wait_for(lambda: all(each["complete"] for each in shown()), "the state on every node")
        assert {(each["name"], each["records"], each["kind"]) for each in shown()} == {("there", 2, "waypost")}
        before = _polls(followed)
        time.sleep(3)
        assert _polls(followed) - before <= 6  # one node polls, not three

        killed = pullers.kill_holder()
        put(other, "urn:ex:c")
        withdraw(followed, "urn:ex:a")
        wait_for(lambda: is_everywhere("urn:ex:c"), "another node to take over")
        wait_for(lambda: not any(has(node, "urn:ex:a", headers) for node in pullers.alive.values()), "the withdrawal")
        assert pullers.kill_holder() != killed

        followed.kill()  # another node of its cluster answers at its address, and knows its cursors
        heir = there.start("--anonymous-read", "--access-log", "--port", followed.url.rsplit(":", 1)[1])
        assert heir.url == followed.url
        put(other, "urn:ex:d")
        wait_for(lambda: is_everywhere("urn:ex:d"), "the last node to go on")
        wait_for(lambda: all(each["complete"] and each["records"] == 3 for each in shown()), "a complete copy")
        assert [each["error"] for each in shown()] == [None]
        assert "status=410" not in heir.log.read_text("utf-8", "replace")  # nothing was read again from the beginning

        (last,) = pullers.alive.values()
        assert httpx2.delete(f"{last.url}/api/v1/peers/there", headers=headers, timeout=30).status_code == 204
        assert not any(has(last, f"urn:ex:{name}", headers) for name in "bcd")


def _polls(server: RunningServer) -> int:
    return server.log.read_text("utf-8", "replace").count("/api/v1/feed")
