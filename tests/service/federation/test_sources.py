"""Kinds of peers without a feed: MCP registries and AI Catalogs, also those that misbehave."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.service import Bench, service
from waypost import limits
from waypost.errors import FetchFailed
from waypost.federation.kinds.port import PeerProblem
from waypost.federation.kinds.table import DomainLookup, make_kinds
from waypost.federation.peers import PeerRequest
from waypost.federation.pull import Puller
from waypost.model.principal import Principal
from waypost.registry.ports import FetchPurpose, FetchResponse

ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))
URL = "https://registry.example"
OFFICIAL = "io.modelcontextprotocol.registry/official"
Answer = Callable[[str, dict[str, str], dict[str, str]], tuple[int, Any, dict[str, str]]]


class FakeSite:
    """Answers requests from a function of path, query and headers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
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
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, content, given = self.answer(parts.path, query, dict(headers))
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return FetchResponse(url=url, status=status, headers=given, body=data if status == 200 else b"")


@asynccontextmanager
async def follower(tmp_path: Path, site: FakeSite, **request: Any) -> AsyncIterator[tuple[Bench, Puller]]:
    async with service(tmp_path, base_url="http://here.example", sender=site) as here:
        peers = here.application.peers
        await peers.add(ADMIN, PeerRequest(url=URL, name="other", **request))
        await peers.stop()  # the test pulls itself
        yield here, peers._pullers["other"]


async def pull(puller: Puller) -> None:
    for _ in range(50):
        if not await puller.pull_once(wait_seconds=0):
            return
    raise AssertionError("it does not end")


def versions_of(here: Bench) -> dict[str, str]:
    return {entry.name: entry.id for entry in here.registry.entries}


# --- MCP ------------------------------------------------------------------------------------------


class McpFake:
    """An MCP registry with several versions of each server."""

    def __init__(self, servers: int) -> None:
        self.entries = [
            _server(number, f"1.{version}.0", is_latest=version == number % 3, at=f"2026-01-0{version + 1}T00:00:00Z")
            for number in range(servers)
            for version in range(3)
        ]

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        if path != "/v0.1/servers":
            return 404, {}, {}
        since = query.get("updated_since", "")
        found = [each for each in self.entries if each["_meta"][OFFICIAL]["updatedAt"] >= since]
        start, limit = int(query.get("cursor", 0)), int(query["limit"])
        page: dict[str, Any] = {"servers": found[start : start + limit], "metadata": {"count": limit}}
        if start + limit < len(found):
            page["metadata"]["nextCursor"] = str(start + limit)
        return 200, page, {}


def _server(number: int, version: str, *, is_latest: bool, at: str, status: str = "active") -> dict[str, Any]:
    return {
        "server": {
            "name": f"io.example/server-{number}",
            "description": f"Server {number} of version {version}",
            "version": version,
            "remotes": [{"type": "streamable-http", "url": f"https://s{number}.example/mcp"}],
        },
        "_meta": {OFFICIAL: {"status": status, "publishedAt": at, "updatedAt": at, "isLatest": is_latest}},
    }


@pytest.mark.req("MCP-6")
async def test_an_mcp_registry_is_read_page_by_page_at_the_latest_versions(tmp_path: Path) -> None:
    fake = McpFake(80)
    async with follower(tmp_path, FakeSite(fake.answer)) as (here, puller):
        await pull(puller)
        assert puller.peer.kind == "mcp"
        found = await here.registry.registrations([entry.id for entry in here.registry.entries])
        assert len(found) == 80
        for registration in found:
            number = int(registration.record.name.rsplit("-", 1)[1])
            assert registration.record.version == f"1.{number % 3}.0"
        view = puller.view()
        assert (view.state, view.records, view.error) == ("current", 80, None)


@pytest.mark.parametrize("order", list(itertools.permutations(("1.9.0", "1.10.0", "1.2.0"))))
async def test_of_versions_that_a_registry_does_not_rank_the_highest_is_held(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Whichever was touched last, and also if the highest was known before the others."""
    fake = McpFake(0)
    for version, day in zip(order, (3, 1, 2), strict=True):
        entry = _server(0, version, is_latest=False, at=f"2026-01-0{day}T00:00:00Z")
        del entry["_meta"][OFFICIAL]["isLatest"]
        fake.entries.append(entry)
    async with follower(tmp_path, FakeSite(fake.answer)) as (here, puller):
        for _ in range(2):
            await pull(puller)
            puller.restart_snapshot()
            (found,) = await here.registry.registrations([entry.id for entry in here.registry.entries])
            assert found.record.version == "1.10.0"


async def test_a_registry_may_call_a_lower_version_the_latest_later(tmp_path: Path) -> None:
    fake = McpFake(0)
    fake.entries.append(_server(0, "2.0.0", is_latest=True, at="2026-01-01T00:00:00Z"))
    async with follower(tmp_path, FakeSite(fake.answer)) as (here, puller):
        await pull(puller)
        fake.entries[0]["_meta"][OFFICIAL]["isLatest"] = False
        fake.entries.append(_server(0, "1.9.0", is_latest=True, at="2026-05-28T20:26:30Z"))
        await pull(puller)
        (found,) = await here.registry.registrations([entry.id for entry in here.registry.entries])
        assert found.record.version == "1.9.0"


async def test_later_readings_ask_for_changes_only(tmp_path: Path) -> None:
    fake = McpFake(5)
    site = FakeSite(fake.answer)
    async with follower(tmp_path, site) as (here, puller):
        await pull(puller)
        revision = here.registry.changes.revision
        fake.entries.append(_server(0, "2.0.0", is_latest=True, at="2026-05-28T20:26:30Z"))
        fake.entries.append(_server(1, "9.0.0", is_latest=True, at="2026-05-28T20:26:30Z", status="deleted"))
        site.requests.clear()
        await pull(puller)
        assert all("updated_since=" in request for request in site.requests)
        found = {
            each.record.name: each for each in await here.registry.registrations([e.id for e in here.registry.entries])
        }
        assert found["io.example/server-0"].record.version == "2.0.0"
        assert "io.example/server-1" not in found
        assert here.registry.changes.revision - revision <= 4  # two changes, two notes at most


async def test_an_unchanged_server_is_not_stored_again(tmp_path: Path) -> None:
    fake = McpFake(5)
    async with follower(tmp_path, FakeSite(fake.answer)) as (here, puller):
        await pull(puller)
        before = here.registry.changes.revision
        puller.restart_snapshot()
        await pull(puller)
        assert here.registry.changes.revision == before


async def test_bad_servers_hold_up_no_other(tmp_path: Path) -> None:
    fake = McpFake(3)
    fake.entries.insert(0, {"server": {"name": 7}, "_meta": {OFFICIAL: {"updatedAt": "2026-01-01T00:00:00Z"}}})
    async with follower(tmp_path, FakeSite(fake.answer)) as (_, puller):
        await pull(puller)
        view = puller.view()
        assert view.records == 3
        assert view.error == "1 of its entries could not be read."
        assert (view.parked, view.parked_reasons) == (1, {"unreadable": 1})


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ({"servers": [], "metadata": {"nextCursor": "again"}}, "cursor does not move"),
        ({"agents": []}, "not a list of MCP servers"),
        (b"<html>", "not a list of MCP servers"),
        ([], "not a list of MCP servers"),
    ],
)
async def test_an_mcp_registry_that_misbehaves_is_named(tmp_path: Path, page: Any, reason: str) -> None:
    fake = McpFake(3)
    site = FakeSite(fake.answer)
    async with follower(tmp_path, site) as (here, puller):
        await pull(puller)
        site.answer = lambda path, query, headers: (200, page, {})
        with pytest.raises(PeerProblem, match=reason):
            await pull(puller)
        assert len(here.registry.entries) == 3


async def test_what_was_not_taken_is_told_after_every_reading(tmp_path: Path) -> None:
    fake = McpFake(3)
    async with follower(tmp_path, FakeSite(fake.answer), namespaces=("*server-0",)) as (_, puller):
        for _ in range(2):
            await pull(puller)
            assert puller.view().parked_reasons == {"namespace": 2}
            puller.restart_snapshot()


async def test_a_dry_run_reads_all_pages_and_says_what_would_be_taken(tmp_path: Path) -> None:
    """FED-1: its own agents, the policy and local owners count; nothing is stored."""
    fake = McpFake(120)
    async with service(tmp_path, sender=FakeSite(fake.answer)) as here:
        own = fake.entries[0]["server"]
        assert (await here.as_("alice").post("/api/v1/agents", json=own)).is_success
        peers = here.application.peers
        request = PeerRequest(url="http://other.example", namespaces=("*server-1*", "*server-0"))
        view = await peers.add(ADMIN, request, is_dry_run=True)
        assert (view.kind, view.complete, view.error) == ("mcp", True, None)
        assert view.records == 1 + 10 + 20  # 1, 10 to 19, 100 to 119
        assert view.parked_reasons == {"namespace": 120 - 32, "local_owner": 1}
        assert len(view.sample) == limits.PEER_SAMPLE
        assert peers.list() == ()
        assert len(here.registry.entries) == 1


async def test_a_peer_that_hangs_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the timeouts of every kind, one after the other: the admin waits for the reason."""
    monkeypatch.setattr(limits, "PEER_PROBE_SECONDS", 0.1)

    class Hanging(FakeSite):
        async def send(self, *_: Any, **__: Any) -> FetchResponse:
            await asyncio.Event().wait()
            raise AssertionError

    async with service(tmp_path, sender=Hanging(McpFake(1).answer)) as here:
        adding = here.application.peers.add(ADMIN, PeerRequest(url="http://other.example"))
        with pytest.raises(FetchFailed, match="no usable answer within"):
            await asyncio.wait_for(adding, 20)


async def test_a_dry_run_of_a_peer_without_an_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEER_PREVIEW_SECONDS", 0.2)
    servers = McpFake(1).entries

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        following = str(int(query.get("cursor", 0)) + 1)
        return 200, {"servers": servers, "metadata": {"nextCursor": following}}, {}

    async with service(tmp_path, sender=FakeSite(answer)) as here:
        request = PeerRequest(url="http://other.example", kind="mcp")
        view = await here.application.peers.add(ADMIN, request, is_dry_run=True)
        assert (view.records, view.complete) == (1, False)


async def test_an_mcp_registry_whose_cursors_go_round_is_named(tmp_path: Path) -> None:
    async with follower(tmp_path, FakeSite(McpFake(3).answer)) as (here, puller):
        await pull(puller)
        following = {"": "a", "a": "b", "b": "c", "c": "a"}

        def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
            return 200, {"servers": [], "metadata": {"nextCursor": following[query.get("cursor", "")]}}, {}

        puller._source = make_kinds(FakeSite(answer), here.registry.clock, DomainLookup()).sources["mcp"]
        for _ in range(2):
            with pytest.raises(PeerProblem, match="round in a circle"):
                await pull(puller)
        assert len(here.registry.entries) == 3


# --- AI Catalogs ----------------------------------------------------------------------------------


def entry(name: str, **members: Any) -> dict[str, Any]:
    return {
        "identifier": f"urn:air:example.com:agent:{name}",
        "displayName": name,
        "type": "application/a2a-agent-card+json",
        "url": f"https://example.com/{name}.json",
        "description": f"The agent {name}",
        **members,
    }


def nested(url: str) -> dict[str, Any]:
    return entry(url, type="application/ai-catalog+json", url=url)


class CatalogSite:
    def __init__(self, catalogs: dict[str, list[dict[str, Any]]]) -> None:
        self.catalogs = catalogs
        self.etag = '"1"'

    def answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        if path not in self.catalogs:
            return 404, {}, {}
        if headers.get("If-None-Match") == self.etag:
            return 304, b"", {"etag": self.etag}
        return 200, {"specVersion": "1.0", "entries": self.catalogs[path]}, {"etag": self.etag}


WELL_KNOWN = "/.well-known/ai-catalog.json"


async def test_a_catalog_and_those_in_it_are_read(tmp_path: Path) -> None:
    """Loops end, and depth is bounded."""
    catalogs = {
        WELL_KNOWN: [entry("a"), nested("/1.json"), nested(WELL_KNOWN), nested("/missing.json")],
        "/1.json": [entry("b"), nested("/2.json")],
        "/2.json": [entry("c"), nested("/3.json"), nested("/1.json")],
        "/3.json": [entry("d"), nested("/4.json")],
        "/4.json": [entry("too-deep")],
    }
    site = FakeSite(CatalogSite(catalogs).answer)
    async with follower(tmp_path, site) as (here, puller):
        await pull(puller)
        assert puller.peer.kind == "ard"  # a site that has catalogs
        assert sorted(versions_of(here)) == ["a", "b", "c", "d"]


async def test_an_unchanged_catalog_costs_one_request(tmp_path: Path) -> None:
    fake = CatalogSite({WELL_KNOWN: [entry("a")]})
    site = FakeSite(fake.answer)
    async with follower(tmp_path, site) as (here, puller):
        await pull(puller)
        site.requests.clear()
        await puller.pull_once(wait_seconds=0)
        assert len(site.requests) == 1
        assert len(here.registry.entries) == 1


async def test_entries_go_after_two_readings_without_them(tmp_path: Path) -> None:
    fake = CatalogSite({WELL_KNOWN: [entry("a"), entry("b")]})
    async with follower(tmp_path, FakeSite(fake.answer)) as (here, puller):
        await pull(puller)
        fake.catalogs[WELL_KNOWN] = [entry("a", description="It does more.")]
        fake.etag = '"2"'
        await puller.pull_once(wait_seconds=0)
        assert sorted(versions_of(here)) == ["a", "b"]
        await pull(puller)
        assert sorted(versions_of(here)) == ["a"]


async def test_a_site_that_is_no_registry_is_refused(tmp_path: Path) -> None:
    site = FakeSite(lambda path, query, headers: (404, {}, {}))
    async with service(tmp_path, sender=site) as here:
        peers = here.application.peers
        with pytest.raises(FetchFailed, match="not a registry"):
            await peers.add(ADMIN, PeerRequest(url=URL))
        assert len(site.requests) <= 10
        assert peers.list() == ()
