"""Peers of a cluster: one node pulls, all know, and another one takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx2

from service.cluster.conftest import Cluster
from support.server import RunningServer, running_server
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


def test_three_nodes_pull_from_another_registry(cluster: Cluster) -> None:
    with running_server("--anonymous-read", "--access-log") as there:
        nodes = [cluster.start("--allow-cidrs", "127.0.0.0/8") for _ in range(3)]
        headers = nodes[0].headers
        put(there, "urn:ex:a")
        body: dict[str, Any] = {"url": there.url, "name": "there"}
        assert httpx2.post(f"{nodes[0].url}/api/v1/peers", json=body, headers=headers, timeout=30).status_code == 201
        wait_for(lambda: all(has(node, "urn:ex:a", headers) for node in nodes), "the agent on every node")
        shown = [httpx2.get(f"{node.url}/api/v1/peers", headers=headers).json()["peers"][0] for node in nodes]
        assert {(each["name"], each["records"], each["kind"]) for each in shown} == {("there", 1, "waypost")}
        wait_for(
            lambda: all(
                httpx2.get(f"{node.url}/api/v1/peers/there", headers=headers).json()["complete"] for node in nodes
            ),
            "the state on every node",
        )
        before = _polls(there)
        time.sleep(3)
        assert _polls(there) - before <= 6  # one node polls, not three

        for number in (0, 1):  # whoever pulled, the last one does now
            nodes[number].kill()
        put(there, "urn:ex:b")
        wait_for(lambda: has(nodes[2], "urn:ex:b", headers), "another node to take over")
        path = "urn%3Aex%3Aa"
        assert httpx2.delete(f"{there.url}/profile/v1/agents/{path}", headers=there.headers).status_code == 204
        wait_for(lambda: not has(nodes[2], "urn:ex:a", headers), "the withdrawal")
        answer = httpx2.delete(f"{nodes[2].url}/api/v1/peers/there", headers=headers, timeout=30)
        assert answer.status_code == 204
        assert not has(nodes[2], "urn:ex:b", headers)


def _polls(server: RunningServer) -> int:
    return server.log.read_text("utf-8", "replace").count("/api/v1/feed")
