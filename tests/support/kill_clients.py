"""Eight clients of a service that is killed while they write, and a model of the allowed states afterwards.

Each client has its own agents and one write in flight, so after a kill each agent is in the last acknowledged state or in
the state of the unacknowledged write. There is no third.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
from collections.abc import Iterable
from typing import Any

import httpx2

CLIENTS = 8
AGENTS = 4  # of each client
TAG = "kill-test"
PLAIN = (
    ssl.create_default_context()
)  # for clients that never use it: to make one for each takes longer than its requests


def document(agent: str, step: int) -> bytes:
    """The document of a step; deterministic, so that a partial write is detected."""
    return json.dumps(
        {
            "id": agent,
            "name": f"Agent {agent}",
            "description": f"Survives the step {step}. " + "Padding that makes the row cross a page. " * (step % 60),
            "tags": [TAG, f"of-{agent}"],
            "bindings": [{"protocol": "https", "endpoint": f"https://{agent}.example/{step}"}],
            "version": f"1.0.{step}",
        }
    ).encode()


class Client:
    """Creates, updates and withdraws its agents until the service is gone."""

    def __init__(self, number: int) -> None:
        self.agents = [f"client-{number}-agent-{each}" for each in range(AGENTS)]
        self.answered: dict[str, int | None] = dict.fromkeys(self.agents)  # None: not there
        self.asked: tuple[str, int | None] | None = None  # the write that is under way
        self.answers = 0
        self.complaints: list[str] = []
        self._choice = random.Random(number)
        self._step = 0

    def run(self, url: str, headers: dict[str, str], answered: threading.Event) -> None:
        with httpx2.Client(base_url=url, headers=headers, timeout=60, verify=PLAIN) as http:
            try:
                while not self.complaints:
                    self._write(http)
                    answered.set()
            except httpx2.TransportError:
                return

    def _write(self, http: httpx2.Client) -> None:
        agent = self._choice.choice(self.agents)
        there = self.answered[agent] is not None
        if there and self._choice.random() < 0.3:
            self.asked = (agent, None)
            answer = http.delete(f"/api/v1/agents/{agent}")
        else:
            self._step += 1
            self.asked = (agent, self._step)
            answer = http.put(f"/profile/v1/agents/{agent}", content=document(agent, self._step))
        if answer.status_code not in (200, 201, 204):
            self.complaints.append(f"{self.asked}: {answer.status_code} {answer.text}")
        self.answered[agent] = self.asked[1]
        self.asked = None
        self.answers += 1

    def settle(self, found: dict[str, int]) -> None:
        """Compare the state with the model, and continue from there."""
        assert not self.complaints, self.complaints
        for agent in self.agents:
            allowed = {self.answered[agent]}
            if self.asked is not None and self.asked[0] == agent:
                allowed.add(self.asked[1])
            assert found.get(agent) in allowed, f"{agent} is at {found.get(agent)}, not in {allowed}"
            self.answered[agent] = found.get(agent)
        self.asked = None


def run_clients(
    clients: Iterable[Client], url: str, headers: dict[str, str], answered: threading.Event
) -> list[threading.Thread]:
    """Start all clients; `answered` is set at the first response."""
    threads = [threading.Thread(target=client.run, args=(url, headers, answered), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    return threads


# --- The state of the service afterwards ----------------------------------------------------------


def listed(http: httpx2.Client) -> dict[str, dict[str, Any]]:
    answer = http.get("/api/v1/agents", params={"tag": TAG, "limit": 200})
    assert answer.status_code == 200, answer.text
    return {agent["id"]: agent for agent in answer.json()["agents"]}


def found_by_search(http: httpx2.Client) -> dict[str, dict[str, Any]]:
    """The search index as a list."""
    request = {"query": "survives the step", "required_tags": [TAG], "limit": 100, "detail": "full"}
    answer = http.post("/profile/v1/discover", json=request)
    assert answer.status_code == 200, answer.text
    added = ("status", "score", "match", "reason", "freshness", "trust")
    return {
        each["id"]: {name: value for name, value in each.items() if name not in added}
        for each in answer.json()["candidates"]
    }


def steps_of(agents: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {agent_id: int(agent["version"].rsplit(".", 1)[1]) for agent_id, agent in agents.items()}


class Watcher:
    """Watches the change log, and resumes across restarts of the service."""

    def __init__(self) -> None:
        self.cursor = "0"
        self.seen: set[str] = set()
        self.steps: dict[str, int] = {}  # what the log, replayed, says of each agent

    def read_until(self, http: httpx2.Client, marker: str) -> None:
        """Follow until `marker` is registered."""
        params = {"from": self.cursor, "include": "agent"}
        with http.stream("GET", "/api/v1/watch", params=params) as answer:
            assert answer.status_code == 200
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                    continue
                if "data" in event and event["event"] != "bookmark" and self._take(event) == marker:
                    return
                event = {}

    def _take(self, event: dict[str, str]) -> str:
        assert event["id"] not in self.seen, "an event came twice"
        self.cursor = event["id"]
        self.seen.add(event["id"])
        change = json.loads(event["data"])
        agent_id: str = change["id"]
        if change["type"] in ("withdrawn", "expired"):
            assert agent_id in self.steps, "something was removed that was never there"
            del self.steps[agent_id]
        else:
            assert (change["type"] == "registered") == (agent_id not in self.steps)
            self.steps[agent_id] = int(change["agent"]["version"].rsplit(".", 1)[1])
        return agent_id
