"""`POST /api/v1/agents:fetch`: preview, registration, and what is never revealed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.external_server import ExternalServer, answer, external_server
from support.fake_dns_server import DnsServer, dns_server
from support.ports import free_port
from support.records import CODECS
from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import FetchFailed
from waypost.model.principal import Principal
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import SafeFetcher
from waypost.registry.importer import Importer, ImportRequest

FETCH = "/api/v1/agents:fetch"
WRITER = Principal(subject="alice", scopes=frozenset(("discover:read", "discover:write")))


@pytest.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


@pytest.fixture
async def site() -> AsyncIterator[ExternalServer]:
    async with external_server() as server:
        yield server


@pytest.fixture
async def bench(tmp_path: Path, names: DnsServer) -> AsyncIterator[Bench]:
    async with service(tmp_path, allow_cidrs=("127.0.0.1/32",), resolver=names.address) as made:
        yield made


async def fetch(client: httpx2.AsyncClient, url: str, **members: Any) -> httpx2.Response:
    return await client.post(FETCH, json={"url": url, **members})


async def test_a_document_is_shown_and_not_registered(bench: Bench, site: ExternalServer) -> None:
    document = profile("https://agents.example.net/shown")
    site.json("/agent.json", document)
    url = f"http://127.0.0.1:{site.port}/agent.json"
    alice = bench.as_("alice")
    shown = await fetch(alice, url)
    assert shown.status_code == 200, shown.text
    assert shown.headers["cache-control"] == "no-store"
    assert shown.json()["url"] == url
    (agent,) = shown.json()["agents"]
    assert agent["outcome"] == "found"
    assert (agent["dialect"], agent["id"], agent["name"]) == ("profile", document["id"], document["name"])
    assert agent["document"] == document
    assert agent["trust"]["level"] == "self_asserted"
    assert "existing" not in agent
    assert bench.registry.entries.find_named(document["id"]) is None


async def test_a_fetched_document_is_registered_with_save(bench: Bench, site: ExternalServer) -> None:
    document = profile("https://agents.example.net/saved")
    site.json("/agent.json", document)
    url = f"http://127.0.0.1:{site.port}/agent.json"
    saved = await bench.as_("alice").post(
        f"{FETCH}?ttl_seconds=600", json={"url": url, "save": True}, headers={"Waypost-Visibility": "internal"}
    )
    (agent,) = saved.json()["agents"]
    assert (agent["outcome"], agent["ttl_seconds"]) == ("created", 600)
    registration = await bench.registry.get(Principal(scopes=frozenset(("admin",))), document["id"])
    assert (registration.owner, registration.visibility) == ("alice", "internal")
    assert (registration.sources[0].via, registration.sources[0].url) == ("import", url)
    again = (await fetch(bench.as_("alice"), url)).json()["agents"][0]
    assert again["existing"]["yours"] is True
    assert (await fetch(bench.as_("bob"), url)).json()["agents"][0]["existing"]["yours"] is False
    refused = await fetch(bench.as_("bob"), url, save=True)
    assert refused.status_code == 409


async def test_a_proven_domain_shows_before_it_is_saved(bench: Bench, site: ExternalServer, names: DnsServer) -> None:
    site.json("/agent.json", profile("https://example.com/agent"))
    url = f"http://127.0.0.1:{site.port}/agent.json"
    alice = bench.as_("alice")
    claim = (await alice.post("/api/v1/domains", json={"domain": "example.com"})).json()
    names.set(claim["place"], "TXT", [f'"{claim["line"]}"'])
    assert (await alice.post("/api/v1/domains/example.com:check")).status_code == 200
    for client, level in ((alice, "verified"), (bench.as_("bob"), "self_asserted")):
        assert (await fetch(client, url)).json()["agents"][0]["trust"]["level"] == level


async def test_a_hidden_agent_is_not_revealed(bench: Bench, site: ExternalServer) -> None:
    document = profile("https://agents.example.net/hidden")
    site.json("/agent.json", document)
    url = f"http://127.0.0.1:{site.port}/agent.json"
    await bench.as_("alice").post("/api/v1/agents", json=document, headers={"Waypost-Visibility": "private"})
    assert "existing" not in (await fetch(bench.as_("bob"), url)).json()["agents"][0]


async def test_a_fetched_document_is_saved_only_as_shown(bench: Bench, site: ExternalServer) -> None:
    site.json("/agent.json", profile("https://agents.example.net/first"))
    url = f"http://127.0.0.1:{site.port}/agent.json"
    digest = (await fetch(bench.admin(), url)).json()["digest"]
    site.json("/agent.json", profile("https://agents.example.net/second"))
    changed = await fetch(bench.admin(), url, save=True, digest=digest)
    assert changed.status_code == 412
    assert len(bench.registry.entries) == 0
    fresh = (await fetch(bench.admin(), url)).json()["digest"]
    assert (await fetch(bench.admin(), url, save=True, digest=fresh)).status_code == 200


async def test_for_an_origin_its_well_known_documents_are_fetched(
    bench: Bench, site: ExternalServer, names: DnsServer
) -> None:
    names.set("agents.test", "A", ["127.0.0.1"])
    origin = f"http://agents.test:{site.port}"
    admin = bench.admin()
    nothing = await fetch(admin, origin)
    assert (nothing.status_code, nothing.json()["reason"]) == (502, "not_found")
    site.pages["/.well-known/agent-card.json"] = answer(b"<html>a page for everything</html>")
    site.json("/.well-known/agent.json", {"error": "an answer for everything"})
    site.json("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": []})
    site.json("/", profile("https://agents.example.net/root"))
    assert (await fetch(admin, origin)).json()["url"] == f"{origin}/"
    site.json("/.well-known/agent.json", CODECS["adp"].examples()[0])
    assert (await fetch(admin, f"{origin}/")).json()["url"] == f"{origin}/.well-known/agent.json"
    site.json("/.well-known/agent-card.json", CODECS["a2a"].examples()[0])
    assert (await fetch(admin, origin)).json()["agents"][0]["dialect"] == "a2a"


async def test_a_catalog_gives_several_and_one_bad_entry_stops_no_other(bench: Bench, site: ExternalServer) -> None:
    good = profile("https://agents.example.net/good")
    site.json("/agents", {"agents": [good, {"id": 7}], "next_cursor": None})
    answered = await fetch(bench.admin(), f"http://127.0.0.1:{site.port}/agents", save=True)
    first, second = answered.json()["agents"]
    assert first["outcome"] == "created"
    assert second["outcome"] == "failed"
    assert second["error"]["code"] == "invalid_request"


async def test_a_catalog_is_bounded(bench: Bench, site: ExternalServer) -> None:
    site.json("/agents", [{}] * limits.FETCH_DOCUMENTS)
    assert (await fetch(bench.admin(), f"http://127.0.0.1:{site.port}/agents")).status_code == 200
    site.json("/agents", [{}] * (limits.FETCH_DOCUMENTS + 1))
    assert (await fetch(bench.admin(), f"http://127.0.0.1:{site.port}/agents")).status_code == 413


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"SECRET=hunter2", 502, "not_a_document"),
        (b'{"password": "hunter2"}', 400, None),
        (b'{"hunter2"', 502, "not_a_document"),
        (b"[" * 5000, 502, "not_a_document"),
        (b'"hunter2', 502, "not_a_document"),
        (b'"hunter2"', 400, None),
        (b'{"name": "x", "name": "hunter2"}', 400, None),
        (b'{"id": "hunter2", "name": "hunter2", "description": 7, "bindings": []}', 400, None),
        (b"\xff\xfehunter2", 502, "not_a_document"),
        (b'{"hunter2\xff": 1}', 502, "not_a_document"),
        (b"", 502, "not_a_document"),
        (b"(hunter2 (", 400, None),
    ],
)
async def test_an_error_does_not_repeat_the_body_of_the_fetched_page(
    bench: Bench, site: ExternalServer, body: bytes, status: int, reason: str | None
) -> None:
    """S9."""
    site.pages["/x.json"] = answer(body, x_inside="hunter2")
    answered = await fetch(bench.as_("alice"), f"http://127.0.0.1:{site.port}/x.json")
    assert answered.status_code == status
    assert answered.json().get("reason") == reason
    assert "hunter2" not in answered.text


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({}, "$.url"),
        ({"url": 7}, "$.url"),
        ({"url": "http://x/", "save": "yes"}, "$.save"),
        ({"url": "gopher://x"}, "url"),
    ],
)
async def test_a_wrong_request_is_reported_with_its_path(bench: Bench, members: dict[str, Any], path: str) -> None:
    answered = await bench.admin().post(FETCH, json=members)
    assert (answered.status_code, answered.json()["path"]) == (400, path)


async def test_writers_only(bench: Bench) -> None:
    assert (await fetch(bench.anonymous(), "http://example.com/")).status_code == 401
    assert (await fetch(bench.as_("alice", "discover:read"), "http://example.com/")).status_code == 403


async def test_a_fetch_that_was_made_by_a_fetch_is_refused(bench: Bench, site: ExternalServer) -> None:
    """S10."""
    admin = bench.client(bench.admin_token, **{"X-Discovery-Hop": "1"})
    answered = await fetch(admin, f"http://127.0.0.1:{site.port}/")
    assert answered.status_code == 508
    assert site.connections == 0


async def test_the_service_does_not_fetch_from_itself(bench: Bench) -> None:
    """S10."""
    answered = await fetch(bench.admin(), f"{bench.application.base_url}/.well-known/agent.json")
    assert (answered.status_code, answered.json()["reason"]) == (422, "own")


async def test_a_denied_address_is_reported_with_the_setting_that_allows_it(bench: Bench) -> None:
    """S1."""
    for client in (bench.admin(), bench.as_("alice")):
        answered = await fetch(client, "http://10.0.0.1/agent.json")
        assert answered.status_code == 422
        assert "allow_cidrs" in answered.json()["hint"]


@pytest.fixture
def importer(bench: Bench, names: DnsServer) -> Importer:
    fetcher = SafeFetcher(AddressPolicy(["127.0.0.1/32"]), StubResolver(names.address, timeout_seconds=20.0))
    return Importer(bench.registry, fetcher, discreet_seconds=0.4)


async def test_denied_closed_and_missing_names_look_alike_without_admin(importer: Importer, names: DnsServer) -> None:
    """S1, S9: neither text nor time tells them apart."""
    closed = free_port()
    names.set("denied.test", "A", ["10.0.0.1"])
    names.set("metadata.test", "A", ["169.254.169.254"])
    names.set("closed.test", "A", ["127.0.0.1"])
    told = set()
    for name in ("denied", "metadata", "closed", "missing"):
        began = time.monotonic()
        with pytest.raises(FetchFailed) as refusal:
            await importer.find(WRITER, ImportRequest(url=f"http://{name}.test:{closed}/agent.json"))
        assert time.monotonic() - began > 0.39, "it is told at once"
        told.add((refusal.value.message, refusal.value.hint, refusal.value.path, str(refusal.value.details)))
    assert len(told) == 1
    assert "allow_cidrs" in str(told)


async def test_an_admin_learns_the_reason_at_once(bench: Bench, names: DnsServer) -> None:
    names.set("denied.test", "A", ["10.0.0.1"])
    reasons = {
        name: (await fetch(bench.admin(), f"http://{name}.test/agent.json")).json()["reason"]
        for name in ("denied", "missing")
    }
    assert reasons == {"denied": "private", "missing": "no_address"}
