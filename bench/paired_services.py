"""Two services with the same history, keys and clock; one of them then gets a thousand private agents."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx2

from waypost.app import Application, build, mint_locally
from waypost.net.clock import ManualClock
from waypost.settings import Settings

PRIVATE = 1000
TAGS = ("translation", "invoice", "weather", "legal", "travel")
WORDS = ("falcon", "invoice", "weather report", "translate a contract", "book a journey", "helper")


_NOW = 1_780_000_000.0


class Twin(Protocol):
    """A service that was started, and clients of it."""

    @property
    def registry(self) -> Any: ...

    def as_(self, subject: str) -> httpx2.AsyncClient: ...


T = TypeVar("T", bound=Twin)
Open = Callable[[Path], AbstractAsyncContextManager[T]]


class Opened:
    """A service in this process, asked without a socket: nothing but its own work is measured."""

    def __init__(self, application: Application, clock: ManualClock) -> None:
        self.application = application
        self.registry = application.registry
        self._clock = clock
        self.clients: list[httpx2.AsyncClient] = []

    def as_(self, subject: str) -> httpx2.AsyncClient:
        scopes = ("discover:read", "discover:write")
        token = mint_locally(self.application.settings, subject, scopes, 3600, clock=self._clock)[0]
        made = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.application.http_app),
            base_url=self.application.base_url,
            headers={"Authorization": f"Bearer {token}"},
        )
        self.clients.append(made)
        return made


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[Opened]:
    clock = ManualClock(_NOW)
    application = build(Settings(data=data, embedder="none", anonymous_read=True, health_checks=False), clock=clock)
    await application.start()
    twin = Opened(application, clock)
    try:
        yield twin
    finally:
        for client in twin.clients:
            await client.aclose()
        await application.stop()


def profile(agent_id: str, **members: Any) -> dict[str, Any]:
    return {
        "id": agent_id,
        "name": "Minimal Agent",
        "description": "Answers short factual questions.",
        "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}],
        **members,
    }


def visible() -> list[dict[str, Any]]:
    chance = random.Random(5)
    return [
        profile(
            f"seen-{number:02d}",
            name=f"Helper {number}",
            description=f"Helps with {chance.choice(TAGS)} and a {chance.choice(WORDS)}.",
            tags=chance.sample(TAGS, 2),
            constraints={"region": chance.choice(("eu", "us"))},
            version="1.0",
        )
        for number in range(30)
    ]


def private() -> list[dict[str, Any]]:
    """Near to everything that is visible, and to what is asked."""
    chance = random.Random(7)
    return [
        profile(
            f"hidden-{number}",
            name=f"Helper {number % 40}",
            description=f"A falcon that helps with {chance.choice(TAGS)} and a {chance.choice(WORDS)}.",
            tags=[*chance.sample(TAGS, 2), "hush", chance.choice(TAGS)[:-1]],
            constraints={"region": chance.choice(("eu", "us", "asia"))},
            version="1.0",
        )
        for number in range(PRIVATE)
    ]


async def register(twin: Twin, subject: str, documents: list[dict[str, Any]], **headers: str) -> None:
    lines = "\n".join(json.dumps(document) for document in documents).encode()
    answer = await twin.as_(subject).post("/api/v1/agents:batch", content=lines, headers=headers)
    assert "error" not in answer.text, answer.text[:300]


@asynccontextmanager
async def twins(folder: Path, open_service: Open[T]) -> AsyncIterator[tuple[T, T]]:
    """Without and with the private agents."""
    async with open_service(folder / "without") as first:
        await register(first, "owner", visible())
        await first.as_("owner").post("/api/v1/agents", json=profile("gone"))
        await first.as_("owner").delete("/api/v1/agents/gone")
    shutil.copytree(folder / "without", folder / "with", ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    async with AsyncExitStack() as stack:
        pair = [await stack.enter_async_context(open_service(folder / name)) for name in ("without", "with")]
        await register(pair[1], "alice", private(), **{"Waypost-Visibility": "private"})
        await pair[1].as_("alice").post("/api/v1/agents/hidden-0:renew")
        await pair[1].as_("alice").delete("/api/v1/agents/hidden-1")
        for twin in pair:  # all that is done later, done now: what is asked for next finds both at rest
            await twin.registry.searchable()
            await twin.registry.prepare()  # a service does it half a second after its start
            await twin.registry.leader.compact()
        yield pair[0], pair[1]
