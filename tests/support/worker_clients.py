"""Clients of a service whose processes are killed one by one: they continue, and check what they read.

A missing response, or one that says "try later", leaves two possible states: the previous and the requested one. Once the
writer is back, one of them is final.
"""

from __future__ import annotations

import threading

import httpx2

from support.kill_clients import Client
from support.worker_processes import wait_for


class PatientClient(Client):
    """Writes until it is stopped, across restarts of the processes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.interruptions = 0

    def run_until(self, stop: threading.Event, url: str, headers: dict[str, str]) -> None:
        while not stop.is_set() and not self.complaints:
            try:
                # New connections reach both processes.
                with httpx2.Client(base_url=url, headers=headers, timeout=60, verify=False) as http:
                    while not stop.is_set() and not self.complaints and self._choice.random() < 0.9:
                        self._write(http)
            except httpx2.TransportError:
                self._recover(url, headers)
            if self.complaints and ": 503 " in self.complaints[-1]:
                self.complaints.pop()
                self.answers -= 1
                self._recover(url, headers)

    def _write(self, http: httpx2.Client) -> None:
        agent, before = None, dict(self.answered)
        super()._write(http)
        if self.complaints:  # not done, as far as is known
            agent = next((agent for agent in self.agents if self.answered[agent] != before[agent]), None)
            if agent is not None:
                self.asked = (agent, self.answered[agent])
            self.answered = before

    def _recover(self, url: str, headers: dict[str, str]) -> None:
        self.interruptions += 1
        wait_for(lambda: httpx2.get(f"{url}/readyz", timeout=60, verify=False).status_code == 200)
        found: dict[str, int] = {}
        for agent in self.agents:
            answer = wait_for(lambda agent=agent: _read(f"{url}/profile/v1/agents/{agent}", headers))  # type: ignore[misc]
            if answer.status_code == 200:
                found[agent] = int(answer.json()["version"].rsplit(".", 1)[1])
        complaints, self.complaints = self.complaints, []
        self.settle(found)
        self.complaints = complaints


def _read(url: str, headers: dict[str, str]) -> httpx2.Response | None:
    answer = httpx2.get(url, headers=headers, timeout=60, verify=False)
    return answer if answer.status_code in (200, 404) else None
