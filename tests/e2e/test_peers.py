"""Registries that follow each other, as processes: the first steps of a user, crashes, rings, and a peer that goes away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.mcp_registry import GeneratedMcpRegistry
from support.server import RunningServer, running_server, start_server, stop_server
from support.service import profile
from waypost.cli.main import main

LOOPBACK = ("--allow-cidrs", "127.0.0.0/8", "--anonymous-read")
SECONDS = 40.0


def wait_for(is_true: Callable[[], object], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < until, f"not within {SECONDS:g} s: {what}"
        time.sleep(0.05)


def load(server: RunningServer, count: int, prefix: str = "urn:ex:") -> None:
    lines = "\n".join(json.dumps(profile(f"{prefix}{number}", name=f"Agent {number}")) for number in range(count))
    answer = httpx2.post(
        f"{server.url}/api/v1/agents:batch",
        content=lines,
        headers={**server.headers, "Content-Type": "application/x-ndjson"},
        timeout=60,
    )
    assert all("error" not in json.loads(line) for line in answer.text.splitlines()), answer.text[:500]


def follow(server: RunningServer, other: RunningServer, name: str, **options: Any) -> None:
    body = {"url": other.url, "name": name, **options}
    answer = httpx2.post(f"{server.url}/api/v1/peers", json=body, headers=server.headers, timeout=30)
    assert answer.status_code == 201, answer.text


def peer_of(server: RunningServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{server.url}/api/v1/peers/{name}", headers=server.headers).json()
    return found


def count(server: RunningServer) -> int:
    found: int = httpx2.get(f"{server.url}/api/v1/stats", headers=server.headers).json()["agents"]
    return found


def withdraw(server: RunningServer, agent_id: str) -> None:
    path = agent_id.replace(":", "%3A")
    assert httpx2.delete(f"{server.url}/profile/v1/agents/{path}", headers=server.headers).status_code == 204


def has(server: RunningServer, agent_id: str) -> bool:
    path = agent_id.replace(":", "%3A")
    return httpx2.get(f"{server.url}/api/v1/agents/{path}", headers=server.headers).status_code == 200


def test_two_registries_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_server("--anonymous-read") as there, running_server(*LOOPBACK) as here:
        at = ["--server", here.url, "--data", str(here.data)]
        load(there, 3)
        assert main(["peers", "list", *at]) == 0
        assert "No peers" in capsys.readouterr().err
        assert main(["peers", "add", there.url, "--name", "there", "--dry-run", *at]) == 0
        shown = capsys.readouterr().out
        assert "would add" in shown
        assert "agents     3" in shown
        assert main(["peers", "add", there.url, "--name", "there", *at]) == 0
        assert "key        sha256:" in capsys.readouterr().out
        wait_for(lambda: count(here) == 3, "all agents")
        assert main(["peers", "list", "-o", "json", *at]) == 0
        (peer,) = json.loads(capsys.readouterr().out)
        assert {"name", "url", "kind", "state", "last_contact", "lag_seconds", "records", "error"} <= set(peer)
        assert (peer["name"], peer["kind"], peer["records"], peer["error"]) == ("there", "waypost", 3, None)
        assert (peer["pull"], peer["ask"], peer["reexport"], peer["namespaces"]) == (True, False, False, [])
        assert main(["peers", "pause", "there", *at]) == 0
        assert main(["peers", "show", "there", *at]) == 0
        shown = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
        assert (shown["state"], shown["pull"], shown["ask"], "namespaces" in shown) == ("paused", "yes", "no", False)
        assert main(["peers", "resume", "there", *at]) == 0
        assert main(["peers", "sync", "there", *at]) == 0
        assert main(["peers", "remove", "there", *at]) == 0
        assert count(here) == 0
        assert main(["peers", "show", "there", *at]) == 1
        assert "waypost peers list" in capsys.readouterr().err


def test_the_list_says_what_was_not_taken_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    with running_server("--anonymous-read") as there, running_server(*LOOPBACK) as here:
        load(here, 1)
        load(there, 3)
        at = ["--server", here.url, "--data", str(here.data)]
        follow(here, there, "there")
        wait_for(lambda: peer_of(here, "there")["complete"], "a complete copy")
        assert main(["peers", "list", *at]) == 0
        assert "2 agents, 1 not taken: local_owner" in capsys.readouterr().out


def test_a_peer_on_a_private_network_needs_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with running_server("--anonymous-read") as there, running_server() as here:
        assert main(["peers", "add", there.url, "--server", here.url, "--data", str(here.data)]) == 77
        assert "allow_cidrs" in capsys.readouterr().err


def test_a_peer_that_needs_a_token_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_server() as there, running_server(*LOOPBACK) as here:
        load(there, 1)
        at = ["--server", here.url, "--data", str(here.data)]
        assert main(["peers", "add", there.url, *at]) == 69
        assert "--token-file" in capsys.readouterr().err
        (tmp_path / "token").write_text(there.admin_token)
        assert main(["peers", "add", there.url, "--token-file", str(tmp_path / "token"), *at]) == 0
        wait_for(lambda: count(here) == 1, "the agent")
        assert there.admin_token not in httpx2.get(f"{here.url}/api/v1/peers", headers=here.headers).text


def test_a_kill_while_pulling_loses_and_repeats_nothing(tmp_path: Path) -> None:
    agents = 3000
    with running_server("--anonymous-read") as there:
        load(there, agents)
        here = start_server(*LOOPBACK, folder=tmp_path)
        try:
            follow(here, there, "there")
            for _ in range(3):
                wait_for(lambda server=here: count(server) > 0, "a first page")
                here.kill()
                here = start_server(*LOOPBACK, folder=tmp_path)
            wait_for(lambda: peer_of(here, "there")["complete"], "a complete copy")
            assert count(here) == agents
            load(there, 1, "urn:later:")
            withdraw(there, "urn:ex:7")
            wait_for(lambda: has(here, "urn:later:0") and not has(here, "urn:ex:7"), "changes after the restart")
            wait_for(lambda: peer_of(here, "there")["complete"], "a complete copy again")
        finally:
            stop_server(here)


def test_a_peer_that_goes_away_costs_nothing_and_comes_back(tmp_path: Path) -> None:
    there = start_server("--anonymous-read", folder=tmp_path)
    port = there.url.rsplit(":", 1)[1]
    with running_server(*LOOPBACK) as here:
        load(there, 5)
        follow(here, there, "there")
        wait_for(lambda: count(here) == 5, "all agents")
        there.kill()
        wait_for(lambda: peer_of(here, "there")["state"] == "failing", "the failure to show")
        assert peer_of(here, "there")["error"]
        assert count(here) == 5  # an error removes nothing
        there = start_server("--anonymous-read", "--port", port, folder=tmp_path)
        try:
            withdraw(there, "urn:ex:0")
            wait_for(lambda: count(here) == 4, "the withdrawal")
            assert peer_of(here, "there")["error"] is None
        finally:
            stop_server(there)


def test_a_ring_of_three_ends(tmp_path: Path) -> None:
    """a ← b ← c ← a, all passing on what they have: each agent is in each registry once, and goes everywhere."""
    options = {"reexport": True, "visibility": "public"}
    with running_server(*LOOPBACK) as a, running_server(*LOOPBACK) as b, running_server(*LOOPBACK) as c:
        ring = (a, b, c)
        for number, server in enumerate(ring):
            load(server, 2, f"urn:{'abc'[number]}:")
        for reader, writer in ((b, a), (c, b), (a, c)):
            follow(reader, writer, "next", **options)
        wait_for(lambda: [count(server) for server in ring] == [6, 6, 6], "all agents everywhere")
        at_c = httpx2.get(f"{c.url}/api/v1/agents/urn%3Aa%3A0", headers=c.headers).json()
        assert at_c["federation"]["origin_service"] == a.url
        assert at_c["federation"]["via"] == [b.url]
        withdraw(a, "urn:a:0")
        wait_for(lambda: not any(has(server, "urn:a:0") for server in ring), "the withdrawal everywhere")
        time.sleep(1)
        assert not any(has(server, "urn:a:0") for server in ring)  # for good
        assert [peer_of(server, "next")["error"] for server in ring] == [None, None, None]


def test_every_process_of_a_service_asks_peers() -> None:
    """Only the leader knows the peers and which of them failed: the others pass such a search on."""
    with running_server("--anonymous-read") as there, running_server(*LOOPBACK, "--workers", "2") as here:
        load(there, 1)
        follow(here, there, "there", pull=False, ask=True)
        body = {"query": "agent 0", "federation": "auto"}
        for _ in range(12):  # each on a connection of its own, so that every process gets some
            found = httpx2.post(f"{here.url}/profile/v1/discover", json=body).json()
            assert [each["id"] for each in found["candidates"]] == ["urn:ex:0"], found
            assert httpx2.post(f"{here.url}/profile/v1/discover", json={"query": "agent 0"}).json()["candidates"] == []


@pytest.mark.long
def test_an_mcp_registry_of_30000_servers(tmp_path: Path) -> None:
    """MCP-6: three versions of each, of which one is current; a later reading takes the changes only."""
    registry = GeneratedMcpRegistry(30_000)
    with registry.running() as url, running_server(*LOOPBACK) as here:
        started_at = time.monotonic()
        body = {"url": url, "name": "mcp", "max_records": 50_000, "every_seconds": 1}
        answer = httpx2.post(f"{here.url}/api/v1/peers", json=body, headers=here.headers, timeout=30)
        assert (answer.status_code, answer.json()["kind"]) == (201, "mcp")
        until = time.monotonic() + 600
        while peer_of(here, "mcp")["state"] != "current":
            assert time.monotonic() < until, peer_of(here, "mcp")
            time.sleep(0.5)
        took = time.monotonic() - started_at
        print(
            f"\n{registry.rows} versions of {registry.servers} servers in {took:.0f} s, {registry.servers / took:.0f}/s"
        )
        assert count(here) == 30_000
        for number in (0, 1, 2, 12_345, 29_999):
            path = f"/api/v1/agents/{f'io.example/server-{number}'.replace('/', '%2F')}?as=mcp"
            document = httpx2.get(here.url + path, headers=here.headers).json()
            assert document["server"]["version"] == registry.current_version(number)
        before = registry.requests
        registry.delete(7)
        wait_for(lambda: count(here) == 29_999, "the deletion")
        assert registry.requests - before < 100  # not everything again
