"""kill -9 during tasks and callbacks: accepted tasks are done and delivered, and an invitation is used once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import httpx2

from support.certificates import Authority
from support.fake_dns_server import dns_server
from support.receiver import Receiver, receiver
from support.server import RunningServer, start_server, stop_server

ROUNDS, ROUNDS_LONG = 3, 20
SENDERS = 4
WAIT_SECONDS = 120.0
KEPT = "https://agents.example.net/kept"


class Senders:
    """Several who send tasks as fast as they are answered, until the service is gone."""

    def __init__(self, callback: str) -> None:
        self._callback = callback
        self.accepted: dict[str, str] = {}  # the idempotency key that was sent, and the task in the response
        self._number = 0

    async def run(self, server: RunningServer, enough: int) -> None:
        """Until `enough` were accepted in this round; those behind it are cut off by the kill."""
        goal = len(self.accepted) + enough
        async with httpx2.AsyncClient(base_url=server.url, headers=server.headers, timeout=60) as http:
            sending = [asyncio.create_task(self._send(http)) for _ in range(SENDERS)]
            async with asyncio.timeout(WAIT_SECONDS):
                while len(self.accepted) < goal:
                    await asyncio.sleep(0.005)
            server.kill()
            await asyncio.gather(*sending)

    async def _send(self, http: httpx2.AsyncClient) -> None:
        with contextlib.suppress(httpx2.TransportError):
            while True:
                self._number += 1
                key = f"key-{self._number}"
                task = {"task": "echo", "input": key, "callback": self._callback}
                answer = await http.post("/agent/tasks", json=task, headers={"Idempotency-Key": key})
                if answer.status_code == 202:
                    self.accepted[key] = answer.json()["taskId"]
                elif answer.status_code == 429:
                    await asyncio.sleep(0.01)


async def all_told(taking: Receiver, ids: set[str]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not ids <= {taken.json["taskId"] for taken in taking.taken}:
            await asyncio.sleep(0.02)


async def test_no_accepted_task_is_lost_by_a_kill_and_every_result_is_delivered(tmp_path: Path, is_long: bool) -> None:
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    chance = random.Random(7)
    async with dns_server() as names, receiver(authority.server_context("bob.example.com")) as taking:
        names.set("bob.example.com", "A", ["127.0.0.1"])
        flags = ["--allow-cidrs", "127.0.0.1/32", "--resolver", names.address, "--fetch-ca", str(authority.certificate)]
        senders = Senders(f"https://bob.example.com:{taking.port}/agent/webhook")
        data = tmp_path / "data"
        for _ in range(ROUNDS_LONG if is_long else ROUNDS):
            taking.answers = [("503 Busy", b"")] * 2  # some are delivered again, after a restart
            server = await asyncio.to_thread(start_server, *flags, folder=tmp_path, data=data)
            try:
                await senders.run(server, enough=chance.randint(5, 30))
            finally:
                stop_server(server)
        server = await asyncio.to_thread(start_server, *flags, folder=tmp_path, data=data)
        try:
            await all_told(taking, set(senders.accepted.values()))
            async with httpx2.AsyncClient(base_url=server.url, headers=server.headers, timeout=60) as http:
                for key, task_id in senders.accepted.items():
                    status = (await http.get(f"/agent/tasks/{task_id}")).json()
                    assert (status["status"], status["result"]) == ("succeeded", key)
                key, task_id = next(iter(senders.accepted.items()))
                task = {
                    "task": "echo",
                    "input": key,
                    "callback": f"https://bob.example.com:{taking.port}/agent/webhook",
                }
                again = await http.post("/agent/tasks", json=task, headers={"Idempotency-Key": key})
                assert again.json()["taskId"] == task_id
                await _use_once(http, server)
        finally:
            stop_server(server)


async def _use_once(http: httpx2.AsyncClient, server: RunningServer) -> None:
    """An invitation used before a kill is used after it; waiting tasks still wait."""
    document = {"id": KEPT, "name": "Kept", "description": "Waits.", "bindings": []}
    document["bindings"] = [{"protocol": "https", "endpoint": "https://agents.example.net/x"}]
    made = await http.post("/api/v1/agents", json=document, headers={"Waypost-Visibility": "private"})
    assert made.is_success, made.text
    assert (
        await http.post(f"/api/v1/agents/{KEPT.replace('/', '%2F')}:host", json={"domain": "kept.example"})
    ).is_success
    sent = await http.post("/agent/tasks", params={"agent": KEPT}, json={"task": "wait"})
    invited = (await http.post("/api/v1/invitations", json={"agent": KEPT})).json()
    path = f"/.well-known/agent.json?invite={invited['invitation']['invite']['code']}"
    async with httpx2.AsyncClient(base_url=server.url, headers={"Host": "kept.example"}, timeout=60) as stranger:
        assert (await stranger.get(path)).status_code == 200
    server.kill()
    again = await asyncio.to_thread(start_server, folder=server.log.parent, data=server.data)
    try:
        async with httpx2.AsyncClient(base_url=again.url, headers={"Host": "kept.example"}, timeout=60) as stranger:
            assert (await stranger.get(path)).status_code == 404
        async with httpx2.AsyncClient(base_url=again.url, headers=server.headers, timeout=60) as admin:
            taken = (await admin.post("/agent/tasks:take", json={"agent": KEPT})).json()["tasks"]
            assert [work["taskId"] for work in taken] == [sent.json()["taskId"]]
    finally:
        stop_server(again)
