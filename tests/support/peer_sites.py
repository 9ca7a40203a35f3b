"""A fake peer of each kind: it can have agents, lose some, and misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from support.service import NOW, profile
from support.signing import key_of
from waypost.errors import FetchFailed
from waypost.federation.feed import signed_bytes
from waypost.federation.kinds.domain import OrganisationDocument, OrganisationDocuments
from waypost.registry.ports import FetchPurpose, FetchResponse
from waypost.responses.federation import FeedBookmark

HOST = "peer.example"
URL = f"https://{HOST}"
OFFICIAL = "io.modelcontextprotocol.registry/official"


def catalog_entry(name: str, **members: Any) -> dict[str, Any]:
    return {
        "identifier": f"urn:air:example.com:agent:{name}",
        "displayName": name,
        "type": "application/a2a-agent-card+json",
        "url": f"https://example.com/{name}.json",
        "description": f"The agent {name}",
        **members,
    }


def card(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"The agent {name}",
        "version": "1.0",
        "protocolVersion": "0.3.0",
        "url": f"https://{name}.example.com/a2a",
        "capabilities": {},
        "defaultInputModes": ["text"],
        "defaultOutputModes": ["text"],
        "skills": [{"id": "work", "name": "Work", "description": "Works.", "tags": ["work"]}],
    }


def feed_line(document: dict[str, Any], etag: str, service_id: str, **members: Any) -> bytes:
    """A line of a feed; `members` replace those of a good one."""
    text = json.dumps(document)
    agent_id = document["id"]
    line = {
        "type": "registered",
        "id": agent_id,
        "at": "2026-05-28T00:00:00Z",
        "etag": etag,
        "origin": {"service": URL, "service_id": service_id, "id": agent_id, "revision": 1},
        "documents": [{"dialect": "profile", "document": text, "digest": hashlib.sha256(text.encode()).hexdigest()}],
        **members,
    }
    return json.dumps(line).encode()


class PeerSite:
    """Answers requests from `pages`: by path, a body or a status."""

    kind = ""
    url = URL

    def __init__(self) -> None:
        self.names: list[str] = []
        self.broken: bytes | int | None = None  # the answer to every request, instead
        self.failing: set[str] = set()  # paths that answer with status 500
        self.requests: list[str] = []

    def check(self, url: str, purpose: FetchPurpose) -> None: ...

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        self.requests.append(url)
        parts = urlsplit(url)
        if self.broken == 0:
            raise FetchFailed("The other server took too long to answer.", details={"reason": "timed_out"})
        if isinstance(self.broken, int) or parts.path in self.failing:
            return FetchResponse(url=url, status=self.broken if isinstance(self.broken, int) else 500, headers={})
        if self.broken is not None:
            return FetchResponse(url=url, status=200, headers={}, body=self.broken)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, given, content = self.answer(parts.path, query, dict(headers))
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return FetchResponse(url=url, status=status, headers=given, body=data if status == 200 else b"")

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return 404, {}, b""

    async def read_organisation(self, domain: str) -> OrganisationDocuments:
        return OrganisationDocuments(problem="none")


class WaypostSite(PeerSite):
    kind = "waypost"

    def __init__(self) -> None:
        super().__init__()
        self.key_number = 1
        self.service_id = "urn:uuid:00000000-0000-4000-8000-000000000001"
        self.cursor: str | None = None  # instead of one that moves
        self.lines: list[bytes] = []  # after those of the agents
        self.is_more = False  # these are not all of its agents
        self.answers = 0

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if path != "/api/v1/feed":
            return 404, {}, b""
        self.answers += 1
        lines = [*map(self.line, self.names), *self.lines]
        total = sum(int.from_bytes(hashlib.sha256(f"urn:ex:{n}\0{n}".encode()).digest()) for n in self.names)
        key = key_of(number=self.key_number)
        bookmark = FeedBookmark(
            type="bookmark",
            cursor=self.cursor or f"c{self.answers}",
            at="2026-05-28T00:00:00Z",
            service=URL,
            service_id=self.service_id,
            snapshot=self.is_more,
            count=len(self.names),
            digest=None if self.is_more else f"{total % (1 << 256):064x}",
            key=base64.b64encode(key.public.spki).decode(),
        )
        signature = base64.b64encode(key.sign(signed_bytes(bookmark))).decode()
        lines.append(msgspec.json.encode(msgspec.structs.replace(bookmark, signature=signature)))
        return 200, {}, b"\n".join(lines)

    def line(self, name: str) -> bytes:
        return feed_line(profile(f"urn:ex:{name}", name=name), name, self.service_id)


class McpSite(PeerSite):
    kind = "mcp"

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if path != "/v0.1/servers":
            return 404, {}, b""
        return 200, {}, {"servers": [self._server(name) for name in self.names], "metadata": {}}

    def _server(self, name: str) -> dict[str, Any]:
        at = "2026-05-28T00:00:00Z"
        return {
            "server": {
                "name": f"io.example/{name}",
                "description": name,
                "version": "1.0.0",
                "remotes": [{"type": "streamable-http", "url": f"https://{name}.example/mcp"}],
            },
            "_meta": {OFFICIAL: {"status": "active", "publishedAt": at, "updatedAt": at, "isLatest": True}},
        }


class CatalogSite(PeerSite):
    kind = "catalog"
    url = f"{URL}/catalog.json"

    def __init__(self) -> None:
        super().__init__()
        self.nested: dict[str, list[dict[str, Any]]] = {}

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if path in self.nested:
            entries = self.nested[path]
        elif path == urlsplit(self.url).path or path == "/.well-known/ai-catalog.json":
            links = [catalog_entry(each, type="application/ai-catalog+json", url=each) for each in self.nested]
            entries = [*map(catalog_entry, self.names), *links]
        else:
            return 404, {}, b""
        content = json.dumps({"specVersion": "1.0", "entries": entries}).encode()
        etag = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
        status = 304 if headers.get("If-None-Match") == etag else 200
        return status, {"etag": etag, "content-type": "application/ai-catalog+json"}, content


class ArdSite(CatalogSite):
    kind = "ard"
    url = URL


class A2aSite(PeerSite):
    kind = "a2a"
    url = f"{URL}/cards.json"

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        if path == "/cards.json":
            return 200, {}, [f"/cards/{name}.json" for name in self.names]
        name = path.removeprefix("/cards/").removesuffix(".json")
        return (200, {}, card(name)) if name in self.names else (404, {}, b"")


class DomainSite(PeerSite):
    kind = "domain"

    async def read_organisation(self, domain: str) -> OrganisationDocuments:
        assert domain == HOST
        if self.broken is not None:
            return OrganisationDocuments(problem="the DNS does not answer.")
        documents = [
            OrganisationDocument(dialect=None, document=json.dumps(profile(f"agent:{name}.{HOST}")).encode())
            for name in self.names
        ]
        return OrganisationDocuments(documents=documents, unresolved=len(self.failing))


SITES: tuple[type[PeerSite], ...] = (WaypostSite, McpSite, CatalogSite, ArdSite, A2aSite, DomainSite)
AT = NOW
