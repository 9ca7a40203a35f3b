"""A service with tasks, a callback receiver and DNS, and an agent that signs its requests."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from support.certificates import Authority
from support.fake_dns_server import DnsServer, dns_server
from support.receiver import Receiver, receiver
from support.service import Bench, service
from support.signing import key_of
from waypost.messaging.request_signatures import sign_request
from waypost.trust.keys.private_key import PrivateKey

WAIT_SECONDS = 60.0
TASKS = "/agent/tasks"
BOB = "agent:bob.example.com"


class TaskService:
    """A service, a callback receiver at bob.example.com, and a DNS server."""

    def __init__(self, bench: Bench, taking: Receiver, names: DnsServer) -> None:
        self.bench = bench
        self.taking = taking
        self.names = names

    @property
    def callback(self) -> str:
        return f"https://bob.example.com:{self.taking.port}/agent/webhook"

    @property
    def own(self) -> str:
        """The Agent URI of the service."""
        return f"agent:{httpx2.URL(self.bench.application.base_url).host}"

    async def work(self) -> None:
        """Run all work that is due."""
        runner = self.bench.application.messaging.runner
        for _ in range(4):
            await runner.run_due()
            await runner.wait_idle()

    async def ended(self, client: httpx2.AsyncClient, location: str) -> dict[str, Any]:
        """The status, once the task has ended."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                await self.work()
                status: dict[str, Any] = (await client.get(location)).json()
                if status["status"] in ("succeeded", "failed", "cancelled"):
                    return status

    async def trust(self, agent: str, key: PrivateKey) -> None:
        answer = await self.bench.admin().post("/api/v1/keys", json={"agent_id": agent, "public_key": key.public.pem()})
        assert answer.is_success, answer.text

    def signing(self, agent: str = BOB, key: PrivateKey | None = None) -> SigningClient:
        return SigningClient(self, agent, key or key_of())


class SigningClient:
    """Requests signed by an agent (P-5). Each part of a signature can be replaced."""

    def __init__(self, place: TaskService, agent: str, key: PrivateKey) -> None:
        self._place = place
        self._agent = agent
        self._key = key

    def headers(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        to: str | None = None,
        at: float | None = None,
        id: str | None = None,  # noqa: A002
    ) -> dict[str, str]:
        now = self._place.bench.clock.now() if at is None else at
        signed = (id or str(uuid.uuid4()), self._agent, to or self._place.own)
        return dict(sign_request(self._key, signed, method, path, now, body))

    async def request(
        self, method: str, path: str, document: Any = None, *, host: str | None = None, **signed: Any
    ) -> httpx2.Response:
        body = b"" if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", **self.headers(method, path.partition("?")[0], body, **signed)}
        if host is not None:
            headers["Host"] = host
        return await self._place.bench.anonymous().request(method, path, content=body, headers=headers)


@asynccontextmanager
async def place(folder: Path, **settings: Any) -> AsyncIterator[TaskService]:
    (folder / "tls").mkdir()
    authority = Authority(folder / "tls")
    given = {"fetch_ca": authority.certificate, "allow_cidrs": ("127.0.0.1/32",), **settings}
    async with dns_server() as names, receiver(authority.server_context("bob.example.com")) as taking:
        names.set("bob.example.com", "A", ["127.0.0.1"])
        async with service(folder / "data", resolver=names.address, **given) as bench:
            yield TaskService(bench, taking, names)
