"""The service in this process on a manual clock: real store, index and APIs, no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from support.stores import find_test_store, make_patient_store
from waypost.app import Application, build, mint_locally
from waypost.net.clock import ManualClock
from waypost.registry.ports import OutboundSender
from waypost.settings import Settings

NOW = 1_780_000_000.0  # 2026-05-28


class Bench:
    """A started application, clients with different scopes, and the clock."""

    def __init__(self, application: Application, clock: ManualClock) -> None:
        self.application = application
        self.clock = clock
        self.registry = application.registry
        self._clients: list[httpx2.AsyncClient] = []

    @property
    def admin_token(self) -> str:
        return (self.application.settings.data / "admin.token").read_text().strip()

    def token(self, subject: str, *scopes: str, ttl_seconds: int = 3600) -> str:
        settings = self.application.settings
        wanted = scopes or ("discover:read", "discover:write")
        return mint_locally(settings, subject, wanted, ttl_seconds, clock=self.clock)[0]

    def client(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        given = dict(headers)
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        made = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.application.http_app), base_url=self.application.base_url, headers=given
        )
        self._clients.append(made)
        return made

    def admin(self) -> httpx2.AsyncClient:
        return self.client(self.admin_token)

    def as_(self, subject: str, *scopes: str) -> httpx2.AsyncClient:
        return self.client(self.token(subject, *scopes))

    def anonymous(self) -> httpx2.AsyncClient:
        return self.client()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        await self.application.stop()


@asynccontextmanager
async def service(
    data: Path, *, clock: ManualClock | None = None, sender: OutboundSender | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    """`async with service(tmp_path, anonymous_read=True) as bench:`"""
    clock = clock or ManualClock(NOW)
    chosen = {"data": data, "store": "memory", "embedder": "none", "health_checks": False, **settings}
    store = None
    if (url := find_test_store(data, is_new=chosen["store"] == "memory")) is not None:
        chosen["store"] = url
        store = make_patient_store(url, data)
    application = build(Settings(**chosen), clock=clock, peer_sender=sender, store=store)
    await application.start()
    bench = Bench(application, clock)
    try:
        yield bench
    finally:
        await bench.close()


def profile(agent_id: str = "https://agents.example.net/id/minimal", **members: Any) -> dict[str, Any]:
    """A small profile document."""
    return {
        "id": agent_id,
        "name": "Minimal Agent",
        "description": "Answers short factual questions.",
        "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}],
        **members,
    }
