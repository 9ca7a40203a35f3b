"""Asking peers at query time: one scale, warnings, breakers, nothing of the caller. Peers are registries in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import FetchFailed
from waypost.federation.ask import Asker
from waypost.federation.peers import PeerRequest
from waypost.model.principal import ANONYMOUS, Principal
from waypost.model.query import Query
from waypost.registry.ports import FetchPurpose, FetchResponse

ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))


class Network:
    """Sends requests to registries in this process, by host."""

    def __init__(self) -> None:
        self.benches: dict[str, Bench] = {}
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []
        self.hanging: set[str] = set()
        self.answers: dict[str, bytes] = {}

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
        host = urlsplit(url).hostname or ""
        self.requests.append((url, body, dict(headers)))
        if host in self.hanging:
            await asyncio.sleep(3600)
        if host in self.answers:
            return FetchResponse(url=url, status=200, headers={}, body=self.answers[host])
        if host not in self.benches:
            raise FetchFailed("Cannot connect to the other server.", details={"reason": "refused"})
        path = "/" + url.split("/", 3)[3]
        response = await self.benches[host].anonymous().request(method, path, content=body, headers=dict(headers))
        return FetchResponse(url=url, status=response.status_code, headers={}, body=response.content)


class Registries:
    def __init__(self, network: Network, benches: Sequence[Bench], asker: Asker) -> None:
        self.network = network
        self.here, *self.others = benches
        self.asker = asker

    async def add_peer(self, name: str) -> None:
        request = PeerRequest(url=f"http://{name}.example", name=name, kind="waypost", pull=False, ask=True)
        await self.here.application.peers.add(ADMIN, request)
        self.network.requests.clear()

    async def add_dead_peer(self, name: str) -> None:
        """One that went away after it was added."""
        self.network.benches[f"{name}.example"] = self.others[0]
        await self.add_peer(name)
        del self.network.benches[f"{name}.example"]

    async def put(self, bench: Bench, agent_id: str, *, visibility: str = "public", **members: Any) -> None:
        headers = {"Waypost-Visibility": visibility}
        response = await bench.as_("alice").post("/api/v1/agents", json=profile(agent_id, **members), headers=headers)
        assert response.is_success, response.text

    async def find(self, text: str, **members: Any) -> dict[str, Any]:
        body = {"query": text, "federation": "auto", **members}
        response = await self.here.anonymous().post("/profile/v1/discover", json=body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


@asynccontextmanager
async def registries(tmp_path: Path, count: int = 1, *, adds_peers: bool = True) -> AsyncIterator[Registries]:
    """`here`, which may ask `r1`, `r2`, …"""
    network = Network()
    async with AsyncExitStack() as stack:
        names = ["here", *(f"r{number + 1}" for number in range(count))]
        benches = [
            await stack.enter_async_context(
                service(tmp_path / name, anonymous_read=True, base_url=f"http://{name}.example", sender=network)
            )
            for name in names
        ]
        network.benches = {f"{name}.example": bench for name, bench in zip(names, benches, strict=True)}
        both = Registries(network, benches, benches[0].application.peers.asker)
        for name in names[1:] if adds_peers else ():
            await both.add_peer(name)
        yield both


def ids(found: dict[str, Any]) -> list[str]:
    return [candidate["id"] for candidate in found["candidates"]]


async def test_agents_of_peers_are_found_on_one_scale(tmp_path: Path) -> None:
    """A copy of a local agent, word for word, gets the score of the local one."""
    async with registries(tmp_path) as both:
        await both.put(both.here, "urn:ex:local", name="Ledger", description="Balances ledgers of small firms.")
        await both.put(both.others[0], "urn:ex:same", name="Ledger", description="Balances ledgers of small firms.")
        await both.put(both.others[0], "urn:ex:other", name="Shells", description="Classifies seashells.")
        found = await both.find("balance ledgers", include_evidence=True)
        local, same = (
            next(c for c in found["candidates"] if c["id"] == f"urn:ex:{name}") for name in ("local", "same")
        )
        assert local["score"] == pytest.approx(same["score"], abs=0.02)
        assert same["score_components"]
        assert same["match"] == local["match"]
        assert same["federation"]["origin_service"] == "http://r1.example"
        assert same["federation"]["peer"] == "r1"
        assert "federation" not in local
        assert "warnings" not in found


async def test_nothing_is_asked_unless_the_search_says_so(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:ex:a", description="Balances ledgers.")
        for members in ({}, {"federation": "none"}, {"federation": None}):
            response = await both.here.anonymous().post("/profile/v1/discover", json={"query": "ledgers", **members})
            assert response.json()["candidates"] == []
        assert both.network.requests == []


async def test_nothing_is_asked_of_peers_without_leave(tmp_path: Path) -> None:
    async with registries(tmp_path, adds_peers=False) as both:
        request = PeerRequest(url="http://r1.example", name="r1", pull=False)
        await both.here.application.peers.add(ADMIN, request)
        both.network.requests.clear()
        await both.find("ledgers")
        assert both.network.requests == []


async def test_only_the_question_leaves(tmp_path: Path) -> None:
    """FED-17: no token, subject, address, request id, constraint or context of the caller."""
    async with registries(tmp_path) as both:
        body = {
            "query": "translate an invoice",
            "required_tags": ["finance"],
            "constraints": {"region": "canary-region"},
            "client_context": {"domain": "canary.example", "locale": "de"},
            "min_score": 0.1,
            "federation": "auto",
            "limit": 5,
        }
        headers = {"X-Request-Id": "canary-request", "X-Forwarded-For": "192.0.2.77", "User-Agent": "canary-agent"}
        response = await both.here.as_("canary-subject").post("/profile/v1/discover", json=body, headers=headers)
        assert response.status_code == 200
        ((url, sent, sent_headers),) = both.network.requests
        assert url == "http://r1.example/profile/v1/discover"
        assert json.loads(sent) == {
            "query": "translate an invoice", "required_tags": ["finance"], "limit": 5, "detail": "full",
        }  # fmt: skip
        assert set(sent_headers) == {"Content-Type", "ARD-Federation-Path"}
        everything = f"{url}{sent!r}{sent_headers}"
        assert not any(word in everything for word in ("canary", "192.0.2.77", "Bearer"))


async def test_filters_and_constraints_hold_for_agents_of_peers(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        there = both.others[0]
        await both.put(there, "urn:ex:eu", description="Balances ledgers.", constraints={"regions": ["eu"]})
        await both.put(there, "urn:ex:us", description="Balances ledgers.", constraints={"regions": ["us"]})
        await both.put(there, "urn:ex:tagged", description="Balances ledgers.", tags=["finance"])
        found = await both.find("ledgers", constraints={"region": "eu"})
        assert ids(found) in (["urn:ex:eu"], [])  # a peer may show no constraints to strangers
        assert ids(await both.find("ledgers", required_tags=["finance"])) == ["urn:ex:tagged"]
        assert "urn:ex:tagged" not in ids(await both.find("ledgers", excluded_tags=["finance"]))


async def test_a_local_agent_is_not_replaced_by_the_one_of_a_peer(tmp_path: Path) -> None:
    async with registries(tmp_path, 2) as both:
        await both.put(both.here, "urn:ex:a", name="Ours", description="Balances ledgers.")
        await both.put(both.others[0], "urn:ex:a", name="Theirs", description="Balances ledgers, ledgers, ledgers.")
        await both.put(both.others[0], "urn:ex:b", name="B1", description="Balances ledgers.")
        await both.put(both.others[1], "urn:ex:b", name="B2", description="Balances ledgers.")
        found = await both.find("balance ledgers")
        assert sorted(ids(found)) == ["urn:ex:a", "urn:ex:b"]
        assert next(c["name"] for c in found["candidates"] if c["id"] == "urn:ex:a") == "Ours"


async def test_a_hidden_local_agent_changes_nothing(tmp_path: Path) -> None:
    """The answer is the same as without it, or it would reveal the hidden agent."""
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:ex:a", name="Theirs", description="Balances ledgers.")
        before = (await both.find("balance ledgers"))["candidates"][0]
        await both.put(both.here, "urn:ex:a", visibility="private", name="Hidden", description="Secret ledgers.")
        after = (await both.find("balance ledgers"))["candidates"][0]
        for candidate in (before, after):
            del candidate["freshness"], candidate["federation"]["received_at"]
        assert after == before


async def test_private_agents_of_a_peer_are_not_found(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        for visibility in ("private", "internal"):
            await both.put(
                both.others[0], f"urn:ex:{visibility}", visibility=visibility, description="Balances ledgers."
            )
        assert ids(await both.find("balance ledgers")) == []


async def test_a_peer_makes_nothing_verified_by_its_word(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        both.network.answers["r1.example"] = json.dumps(
            {
                "candidates": [
                    {
                        **profile("urn:ex:a", description="Balances ledgers."),
                        "trust": {"level": "verified"},
                        "score": 1.0,
                    }
                ]
            }
        ).encode()
        (candidate,) = (await both.find("balance ledgers"))["candidates"]
        assert candidate["trust"]["level"] == "self_asserted"
        assert candidate["score"] < 1


async def test_a_revoked_agent_is_not_shown(tmp_path: Path) -> None:
    """FED-20: revocations of this registry cover agents of others at once."""
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:uuid:3f1f5a1e-9c1e-4f5b-8a58-0d6f5c1b2a77", description="Balances ledgers.")
        assert len(ids(await both.find("balance ledgers"))) == 1
        revoked = {"agent_id": "urn:uuid:3f1f5a1e-9c1e-4f5b-8a58-0d6f5c1b2a77", "reason": "stolen"}
        response = await both.here.admin().post("/api/v1/keys:revoke", json=revoked)
        assert response.is_success, response.text
        assert ids(await both.find("balance ledgers")) == []


async def test_peers_that_fail_are_named_and_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ASK_SECONDS", 0.2)
    async with registries(tmp_path, 2) as both:
        await both.put(both.others[0], "urn:ex:a", description="Balances ledgers.")
        await both.add_dead_peer("gone")
        both.network.hanging.add("r2.example")
        for _ in range(limits.ASK_FAILURES):
            found = await both.find("balance ledgers")
            assert ids(found) == ["urn:ex:a"]
            assert sorted(found["warnings"]) == ["gone could not be asked.", "r2 did not answer within 0.2 s."]
        both.network.requests.clear()
        found = await both.find("balance ledgers")
        assert [urlsplit(url).hostname for url, _, _ in both.network.requests] == ["r1.example"]
        assert sorted(found["warnings"]) == [
            "gone failed a moment ago and was not asked.",
            "r2 failed a moment ago and was not asked.",
        ]
        views = {p["name"]: p for p in (await both.here.admin().get("/api/v1/peers")).json()["peers"]}
        assert views["r2"]["breaker"] == "open"
        assert views["r2"]["ask_error"] == "It did not answer in time."
        assert views["r1"].get("breaker", "closed") == "closed"
        await both.asker.stop()
        notes = dict(await both.here.registry.notes("peer-ask:"))
        assert json.loads(notes["peer-ask:r2"])["failures"] == limits.ASK_FAILURES  # survives a restart
        both.here.clock.advance(limits.PEER_BACKOFF_MAX_SECONDS)
        both.network.hanging.clear()
        found = await both.find("balance ledgers")
        assert found["warnings"] == ["gone could not be asked."]
        views = {p["name"]: p for p in (await both.here.admin().get("/api/v1/peers")).json()["peers"]}
        assert views["r2"].get("breaker", "closed") == "closed"


async def test_at_most_eight_peers_are_asked(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        for number in range(10):
            await both.add_dead_peer(f"x{number}")
        found = await both.find("ledgers")
        assert len(both.network.requests) == limits.ASK_PEERS
        assert f"3 registries were not asked: at most {limits.ASK_PEERS} are." in found["warnings"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"candidates": 7}', b"\xff", b'{"candidates": [1, {"id": 5}, null]}']
)
async def test_a_peer_that_answers_nonsense_costs_nothing(tmp_path: Path, body: bytes) -> None:
    async with registries(tmp_path) as both:
        await both.put(both.here, "urn:ex:a", description="Balances ledgers.")
        both.network.answers["r1.example"] = body
        assert ids(await both.find("balance ledgers")) == ["urn:ex:a"]


async def test_a_caller_in_a_hurry_is_answered_sooner(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        both.network.hanging.add("r1.example")
        response = await both.here.anonymous().post(
            "/profile/v1/discover",
            json={"query": "ledgers", "federation": "auto"},
            headers={"Prefer": "respond-async, wait=0.05"},
        )
        assert response.json()["warnings"][0] == "r1 did not answer within 0.05 s."


@pytest.mark.req("ARD-33")
async def test_the_modes_of_ard(tmp_path: Path) -> None:
    """auto: peers are asked and merged; referrals: registries to try; none: the own index."""
    async with registries(tmp_path) as both:
        await both.put(both.here, "urn:ex:a", description="Balances ledgers.")
        await both.put(both.others[0], "urn:ex:b", description="Balances ledgers of firms.")

        async def search(**members: Any) -> dict[str, Any]:
            body = {"query": {"text": "balance ledgers"}, **members}
            response = await both.here.anonymous().post("/ard/search", json=body)
            assert response.status_code == 200, response.text
            found: dict[str, Any] = response.json()
            return found

        merged = await search(federation="auto")
        assert {each["source"] for each in merged["results"]} == {"http://here.example/ard", "http://r1.example/ard"}
        assert [each["score"] for each in merged["results"]] == sorted(
            (each["score"] for each in merged["results"]), reverse=True
        )
        assert await search() == merged  # the default of ARD
        assert "referrals" not in merged
        both.network.requests.clear()
        own = await search(federation="none")
        referred = await search(federation="referrals")
        assert [each["source"] for each in own["results"]] == ["http://here.example/ard"]
        assert referred["results"] == own["results"]
        assert [each["url"] for each in referred["referrals"]] == ["http://r1.example/ard"]
        assert both.network.requests == []


@pytest.mark.req("ARD-33")
async def test_ard_searches_pass_the_filter_on_and_end_in_rings(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:ex:b", description="Balances ledgers.", tags=["finance"])
        await both.put(both.others[0], "urn:ex:c", description="Balances ledgers.")
        body = {"query": {"text": "balance ledgers", "filter": {"tags": ["finance"]}}, "pageSize": 5}
        response = await both.here.anonymous().post("/ard/search", json=body)
        assert len(response.json()["results"]) == 1
        ((url, sent, headers),) = both.network.requests
        own = await both.here.registry.service_id()
        assert (url, headers["ARD-Federation-Path"]) == ("http://r1.example/ard/search", own)
        assert json.loads(sent) == {
            "query": {"text": "balance ledgers", "filter": {"tags": ["finance"]}},
            "federation": "none",
            "pageSize": limits.ASK_CANDIDATES,
        }
        both.network.requests.clear()
        for path in (own, f"urn:x, {own}", "urn:a, urn:b, urn:c"):
            response = await both.here.anonymous().post("/ard/search", json=body, headers={"ARD-Federation-Path": path})
            assert response.json()["results"] == []
        assert both.network.requests == []


async def test_an_ard_search_counts_its_warnings(tmp_path: Path) -> None:
    async with registries(tmp_path, adds_peers=False) as both:
        await both.add_dead_peer("gone")
        response = await both.here.anonymous().post("/ard/search", json={"query": {"text": "ledgers"}})
        assert response.headers["ard-federation-warnings"] == "1"
        assert set(response.json()) == {"results"}


async def test_pages_of_a_merged_search_repeat_nothing(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        for number in range(6):
            await both.put(both.here, f"urn:ex:l{number}", description=f"Balances ledgers {'of firms ' * number}.")
            await both.put(
                both.others[0], f"urn:ex:f{number}", description=f"Balances ledgers {'for shops ' * number}."
            )
        seen: list[str] = []
        token: str | None = None
        for _ in range(10):
            body = {"query": {"text": "balance ledgers"}, "pageSize": 4, **({"pageToken": token} if token else {})}
            page = (await both.here.anonymous().post("/ard/search", json=body)).json()
            seen += [each["identifier"] for each in page["results"]]
            token = page.get("pageToken")
            if token is None:
                break
        assert len(seen) == len(set(seen))
        assert len(seen) >= 10


async def test_one_asker_judges_by_what_the_caller_sees(tmp_path: Path) -> None:
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:ex:a", description="Balances ledgers.")
        await both.put(both.here, "urn:ex:a", visibility="internal", description="Ours.")
        query = Query(text="ledgers", federation="auto")
        reader = Principal(subject="bob", scopes=frozenset(("discover:read",)))
        assert len((await both.asker.ask_query(query, ANONYMOUS)).registrations) == 1
        assert (await both.asker.ask_query(query, reader)).registrations == ()


async def test_the_mcp_tool_asks_as_ard_does(tmp_path: Path) -> None:
    """FED-10: `ard_search` has the modes of ARD."""
    async with registries(tmp_path) as both:
        await both.put(both.others[0], "urn:ex:b", description="Balances ledgers.")

        async def call(**arguments: Any) -> list[dict[str, Any]]:
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ard_search", "arguments": {"query": {"text": "balance ledgers"}, **arguments}},
            }
            headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
            response = await both.here.anonymous().post("/mcp", json=body, headers=headers)
            assert response.status_code == 200, response.text
            found: list[dict[str, Any]] = response.json()["result"]["structuredContent"]["results"]
            return found

        assert [each["source"] for each in await call()] == ["http://r1.example/ard"]
        assert await call(federation="none") == []
