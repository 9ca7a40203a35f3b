"""The AF API under test, twice: inside an application (`Discovery`) and over the registry, with the same requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import httpx2

from waypost.model.json import dump_json
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.search.ranker import HybridRanker
from waypost.server.api.agent_framework.api import AfHandler, AfOptions
from waypost.server.api.agent_framework.middleware import Discovery, DiscoveryOptions
from waypost.server.api.agent_framework.providers import StaticProvider
from waypost.server.api.agent_framework.registry_directory import RegistryDirectory
from waypost.server.http.asgi import Receive, Request, Scope, Send
from waypost.server.renderer import Renderer
from waypost.stores.memory import MemoryStore

BASE_URL = "https://app.example"
BASE = "/.well-known/agentframework/v1"
AGENTS = f"{BASE}/agents"
ALICE = {"Authorization": "Bearer alice"}
START = 1_790_000_000.0

ANNOTATOR: dict[str, Any] = {
    "id": "image-annotator",
    "name": "Image Annotator",
    "version": "1.4.2",
    "summary": "Annotates images with labels and boxes.",
    "description": "Annotates images and returns JSON labels and bounding boxes.",
    "owner": {"name": "Vision Team", "email": "vision@example.com"},
    "tags": ["vision", "annotation"],
    "endpoints": [
        {"method": "POST", "path": "/v1/message:send", "description": "Send message to agent"},
        {"method": "POST", "path": "/v1/message:stream", "description": "Send message with streaming (SSE)"},
        {"method": "GET", "path": "/v1/tasks/{id}", "description": "Get task status/results"},
    ],
    "capabilities": {},
    "created_at": "2025-06-12T08:15:00Z",
    "updated_at": "2025-08-15T10:01:03Z",
    "metadata": {"canonical_id": "image-annotator"},
}
FAQ: dict[str, Any] = {
    "id": "faq-search",
    "name": "FAQ Search",
    "version": "0.9.0",
    "summary": "Semantic search over internal FAQs.",
    "description": "Semantic search over internal FAQs. Knows the handbook.",
    "tags": ["search", "knowledge"],
    "endpoints": [{"method": "POST", "path": "/v1/ask"}],
    "capabilities": {},
    "updated_at": "2025-08-14T09:00:00Z",
    "metadata": {"canonical_id": "faq-search"},
}


def numbered(count: int, **members: Any) -> list[dict[str, Any]]:
    """Profile documents whose names sort by number."""
    return [
        {
            "id": f"agent-{number:04d}",
            "name": f"Agent {number:04d}",
            "description": f"Agent number {number}. Does things.",
            "bindings": [{"protocol": "https", "endpoint": f"https://a{number}.example/invoke"}],
            **members,
        }
        for number in range(count)
    ]


class Clock:
    """A manual clock."""

    def __init__(self, at: float = START) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    wall = latest = now


class Served(Protocol):
    """An API with its agents, and the two ways to change them."""

    client: httpx2.AsyncClient
    clock: Clock
    name: str

    async def register(self, document: Mapping[str, Any]) -> None: ...

    async def withdraw(self, agent_id: str) -> None: ...


def bearer(scope: Scope) -> Principal:
    """`Authorization: Bearer NAME` is the subject NAME: enough authentication for a test."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            subject = value.decode().removeprefix("Bearer ")
            return Principal(subject=subject, scopes=frozenset((SCOPE_READ, SCOPE_WRITE)), via="test")
    return ANONYMOUS


class ServedApplication:
    name = "application"

    def __init__(self, agents: Iterable[Mapping[str, Any]], clock: Clock, options: Mapping[str, Any]) -> None:
        self.clock = clock
        self.provider = StaticProvider(agents, base_url=BASE_URL, now=clock.now)
        chosen = {"base_url": BASE_URL, "principal": bearer, "legacy": True, **options}
        self.app = Discovery(provider=self.provider, options=DiscoveryOptions(**chosen), now=clock.now)
        self.client = client_of(self.app)

    async def register(self, document: Mapping[str, Any]) -> None:
        self.provider.register(document)

    async def withdraw(self, agent_id: str) -> None:
        self.provider.withdraw(agent_id)


class ServedRegistry:
    name = "service"

    def __init__(self, registry: Registry, clock: Clock, options: Mapping[str, Any]) -> None:
        self.registry = registry
        self.clock = clock
        directory = RegistryDirectory(registry, Renderer(BASE_URL, "app.example"))
        self.surface = AfHandler(
            directory, AfOptions(**{"base_url": BASE_URL, "legacy": True, **options}), now=clock.now
        )
        self.client = client_of(self._app)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self.surface.handle(request, bearer(scope), "test-request")
        assert response is not None
        await response.send(send, head=request.method == "HEAD")

    async def register(self, document: Mapping[str, Any], **more: Any) -> None:
        data = dump_json(dict(document))
        dialect, _, decoded = decode_document(data, None, DecodeContext(now=self.clock.now(), base_url=BASE_URL))
        owner = Principal(subject="alice", scopes=frozenset((SCOPE_WRITE,)), via="test")
        await self.registry.publish(
            Publication(dialect=dialect, document=data, decoded=decoded, principal=owner, **more)
        )

    async def withdraw(self, agent_id: str) -> None:
        owner = Principal(subject="alice", scopes=frozenset((SCOPE_WRITE,)), via="test")
        await self.registry.withdraw(owner, agent_id)


def client_of(app: Any, root_path: str = "") -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, root_path=root_path)
    return httpx2.AsyncClient(transport=transport, base_url="http://test", headers={"accept-encoding": "identity"})


@asynccontextmanager
async def application(agents: Iterable[Mapping[str, Any]] = (), **options: Any) -> AsyncIterator[ServedApplication]:
    served = ServedApplication(agents, Clock(), options)
    async with served.client:
        yield served


@asynccontextmanager
async def service(agents: Iterable[Mapping[str, Any]] = (), **options: Any) -> AsyncIterator[ServedRegistry]:
    clock = Clock()
    registry = Registry(MemoryStore(), partial(HybridRanker, None), clock)
    await registry.start()
    served = ServedRegistry(registry, clock, options)
    try:
        for document in agents:
            await served.register(document)
        async with served.client:
            yield served
    finally:
        await registry.stop()


Opener = Callable[..., Any]
SURFACES: dict[str, Opener] = {"application": application, "service": service}


def links_of(response: httpx2.Response) -> dict[str, str]:
    """The targets of the Link header by relation."""
    return {link["rel"]: link["url"] for link in response.links.values()}
