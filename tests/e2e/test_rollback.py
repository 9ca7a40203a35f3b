"""Criterion 3 of announce.md §11, and the fallback to a registry (§6.7), between hosts and with the command.

One agent announces strictly (in the registry only while the LAN fails), one keeps its registration alive, one uses only a
registry. A listener with both transports watches all of them while the LAN of the first is cut, the interface of the second
goes down, and both come back.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from support.announce import agent
from support.json_lines_process import Reading, reading
from support.netns import INTERFACE, Lan, lan
from support.server import RunningServer, clean_environment, running_server
from waypost.model.times import parse_rfc3339

REGISTRY, FIRST, SECOND, WATCHING = range(4)
STRICT, KEPT, REMOTE = (f"{number}cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d" for number in (1, 2, 3))
TTL_SECONDS = 6  # announced every three seconds
PATIENCE_SECONDS = 60.0


class Scene:
    def __init__(self, net: Lan, server: RunningServer, folder: Path, stack: ExitStack) -> None:
        self.net = net
        self.server = server
        self._folder = folder
        self._stack = stack

    def run(self, host: int, name: str, *arguments: str) -> Reading:
        """A command on a host, which is read line by line."""
        folder = self._folder / name
        folder.mkdir()
        told = agent(name, transport={"type": "tcp", "endpoint": f"10.0.0.{name[0]}:9000"})
        (folder / "agent.json").write_bytes(msgspec.json.encode(told))
        environment = clean_environment({"WAYPOST_DATA": str(folder), "WAYPOST_TOKEN": self.server.admin_token})
        words = self.net.command(host, sys.executable, "-m", "waypost", *arguments, "-o", "jsonl")
        return self._stack.enter_context(reading(words, folder, environment))

    def held(self) -> set[str]:
        """The agents in the registry."""
        with self.net.entered(WATCHING):
            answer = httpx2.get(f"{self.server.url}/agents", headers=self.server.headers, timeout=30, trust_env=False)
        return {each["agent"]["agent_id"] for each in answer.json()["agents"]}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        net = stack.enter_context(lan(4, backbone=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="waypost-test-")))
        flags = ("--host", net.far_address(REGISTRY), "--store", "memory")
        server = stack.enter_context(running_server(*flags, before=net.command(REGISTRY)))
        yield Scene(net, server, folder, stack)


class Presence:
    """Where a watcher sees each agent, over time."""

    def __init__(self, events: Reading) -> None:
        self._events = events
        self._where: dict[str, set[str]] = {}
        self._agents: dict[str, Any] = {}
        self._missing_since: dict[str, float] = {}
        self.longest_gap: dict[str, float] = {}

    def where(self, agent_id: str) -> set[str]:
        for event in self._events.new():
            self._take(event)
        return self._where.get(agent_id, set())

    def endpoint(self, agent_id: str) -> str:
        return str(self._agents[agent_id]["transport"]["endpoint"])

    def _take(self, event: dict[str, Any]) -> None:
        agent_id, at = event["agent_id"], parse_rfc3339(event["at"])
        where = self._where.setdefault(agent_id, set())
        if event["type"] in ("removed", "expired"):
            where.discard(event["via"])
        else:
            where.add(event["via"])
            self._agents[agent_id] = event["agent"]
        if not where:
            self._missing_since[agent_id] = at
        elif agent_id in self._missing_since:
            gap = at - self._missing_since.pop(agent_id)
            self.longest_gap[agent_id] = max(self.longest_gap.get(agent_id, 0.0), gap)


def eventually(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.req("ANN-39", "ANN-40")
def test_criterion_3_an_agent_whose_lan_is_cut_is_in_the_registry_and_is_found_all_the_time(scene: Scene) -> None:
    net, url = scene.net, scene.server.url
    mdns = ("--mdns", "--interface", INTERFACE)
    both = (*mdns, "--registry", url, "--ttl", f"{TTL_SECONDS}s")
    watched = Presence(scene.run(WATCHING, "watch", "browse", *mdns, "--registry", url, "--timeout", "600"))
    strict = scene.run(FIRST, STRICT, "announce", "agent.json", *both, "--suppress", "strict")
    scene.run(SECOND, KEPT, "announce", "agent.json", *both)
    scene.run(SECOND, REMOTE, "announce", "agent.json", "--registry", url)
    eventually(lambda: watched.where(STRICT) == {"mdns"}, "on the LAN alone")
    eventually(lambda: watched.where(KEPT) == {"mdns", "http"}, "on both")
    eventually(lambda: watched.where(REMOTE) == {"http"}, "in the registry alone")
    eventually(lambda: scene.held() == {KEPT, REMOTE}, "in the registry, whoever should be")
    assert {watched.endpoint(each) for each in (STRICT, REMOTE)} == {"10.0.0.1:9000", "10.0.0.3:9000"}
    strict.new()

    net.cut(FIRST)
    net.take_down(SECOND)
    eventually(lambda: STRICT in scene.held(), "in the registry when the LAN is lost")
    states = [(each["transport"], each["state"]) for each in strict.new()]
    assert states[:2] == [("mdns", "failed"), ("http", "announced")], "with the first announcement that failed"
    eventually(lambda: watched.where(STRICT) == {"http"}, "no longer on the LAN")
    eventually(lambda: watched.where(KEPT) == {"http"}, "no longer on the LAN")

    net.heal(FIRST)
    net.bring_up(SECOND)
    eventually(lambda: watched.where(STRICT) == {"mdns"}, "on the LAN alone again, as configured")
    eventually(lambda: watched.where(KEPT) == {"mdns", "http"}, "on both again, as configured")
    eventually(lambda: scene.held() == {KEPT, REMOTE}, "in the registry, whoever should be")
    assert all(gap <= TTL_SECONDS for gap in watched.longest_gap.values()), watched.longest_gap


def test_namespaces_are_removed_again() -> None:
    with lan(1, backbone=True) as net:
        subprocess.run(net.command(0, "true"), check=True)
    assert not any(Path("/run/netns", name).exists() for name in (*net.hosts, net.hub))
