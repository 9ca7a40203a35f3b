"""kill -9 of either side and of the relay during a conversation: no acknowledged message is lost or delivered twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from support.agp import ALICE, BOB, key_of
from support.server import clean_environment, start_server, stop_server
from waypost.trust.document_signatures import sign_adp_public_key

COUNT = 80
PATIENCE_SECONDS = 120.0
TESTS = Path(__file__).parents[1]


def document(agent: str, chat: str) -> dict[str, object]:
    domain = agent.removeprefix("agent:")
    return {
        "protocol": "ADP/1.1",
        "identity": {
            "id": agent,
            "domain": domain,
            "name": domain,
            "publicKey": sign_adp_public_key(key_of(agent), domain),
        },
        "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json", "chat": chat},
        "capabilities": [{"id": "chat", "name": "Chat"}],
    }


class Play:
    """Three processes, each of which can be killed and comes back where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.relay = start_server(folder=folder / "relay")
        self.url = self.relay.url
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._register()

    def _register(self) -> None:
        chat = f"ws{self.url.removeprefix('http')}/agent/chat"
        with httpx2.Client(base_url=self.url, headers=self.relay.headers, timeout=60) as http:
            for agent in (ALICE, BOB):
                body = {"agent_id": agent, "public_key": key_of(agent).public.pem()}
                assert http.post("/api/v1/keys", json=body).is_success
                assert http.post("/api/v1/agents", json=document(agent, chat)).is_success

    def start(self, role: str) -> None:
        if role == "relay":
            port = str(urlsplit(self.url).port)
            self.relay = start_server("--port", port, folder=self.folder / "relay", data=self.relay.data)
            return
        extra = (str(COUNT),) if role == "ask" else ()
        environment = {
            **clean_environment(),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "TOKEN": self.relay.admin_token,
        }
        with (self.folder / f"{role}.err").open("ab") as errors:
            self._parts[role] = subprocess.Popen(
                [sys.executable, "-m", "support.agp_process", role, str(self.folder / role), self.url, *extra],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
            )

    def kill(self, role: str) -> None:
        if role == "relay":
            self.relay.kill()
        else:
            self._parts[role].kill()
            self._parts[role].wait(PATIENCE_SECONDS)

    def lines(self, role: str, name: str) -> list[str]:
        path = self.folder / role / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []

    def wait(self, is_so: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < ends, self.told()
            time.sleep(0.02)

    def is_answered(self) -> bool:
        """One that was posted when its sender was killed may be answered without being in the list."""
        posted = self.lines("ask", "posted")
        return len(posted) >= COUNT and set(posted) <= set(self.lines("ask", "replies"))

    def told(self) -> str:
        counts = [len(self.lines("ask", "posted")), len(self.lines("echo", "heard")), len(self.lines("ask", "replies"))]
        errors = [f"--- {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.err")]
        return f"posted, heard, replies: {counts}\n" + "\n".join(errors)

    def stop(self) -> None:
        for role in list(self._parts):
            self.kill(role)
        stop_server(self.relay)


@contextmanager
def play(folder: Path) -> Iterator[Play]:
    (folder / "relay").mkdir()
    made = Play(folder)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.req("ADP-50")
def test_no_acknowledged_message_is_lost_or_delivered_twice_when_processes_are_killed(tmp_path: Path) -> None:
    with play(tmp_path) as made:
        made.start("echo")
        made.start("ask")
        for number, victim in enumerate(("echo", "relay", "ask"), 1):
            made.wait(lambda least=number * 15: len(made.lines("echo", "heard")) >= least)  # type: ignore[misc]
            made.kill(victim)
            made.start(victim)
        made.wait(made.is_answered)
        posted, heard, replies = made.lines("ask", "posted"), made.lines("echo", "heard"), made.lines("ask", "replies")
        assert len(set(heard)) == len(heard), "heard twice"
        assert len(set(replies)) == len(replies), "answered twice"
        assert set(posted) <= set(heard)
