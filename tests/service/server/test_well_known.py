"""Well-known documents: the service as an agent, hosted agents by `Host`, cards by name, the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.records import CODECS
from support.schemas import catalog_schema
from support.service import Bench, profile, service

ALICE: dict[str, Any] = {
    "protocol": "ADP/1.1",
    "identity": {
        "id": "agent:alice.example.com",
        "domain": "alice.example.com",
        "name": "Alice's Agent",
        "publicKey": {
            "algorithm": "ed25519",
            "fingerprint": "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw",
            "full": (
                "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
                "-----END PUBLIC KEY-----\n"
            ),
        },
    },
    "endpoints": {
        "wellKnown": "https://alice.example.com/.well-known/agent.json",
        "chat": "wss://alice.example.com/agent/chat",
    },
    "capabilities": [{"id": "chat", "name": "Conversational Chat", "description": "Talks about the weather."}],
    "com.example.extra": [1, 2],
}


async def at(client: httpx2.AsyncClient, path: str, host: str) -> httpx2.Response:
    return await client.get(path, headers={"Host": host})


async def test_the_service_describes_itself_in_every_document(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        anyone = bench.anonymous()
        adp = await anyone.get("/.well-known/agent.json")
        assert adp.headers["content-type"] == "application/vnd.adp+json"
        jsonschema.validate(adp.json(), CODECS["adp"].schema())
        assert adp.json()["identity"]["publicKey"]["fingerprint"].startswith("ed25519:")
        discover = adp.json()["capabilities"][0]
        assert (discover["id"], discover["name"], discover["interfaces"]) == (
            "discover",
            "Discover agents",
            ["api", "chat"],
        )
        card = await anyone.get("/.well-known/agent-card.json")
        jsonschema.validate(card.json(), CODECS["a2a"].schema())
        assert card.json()["name"] == "Waypost"
        assert [skill["id"] for skill in card.json()["skills"]] == ["discover"]
        key = adp.json()["identity"]["publicKey"]["fingerprint"]
        assert key in card.text
        catalog = await anyone.get("/.well-known/ai-catalog.json")
        assert catalog.headers["content-type"] == "application/ai-catalog+json"
        jsonschema.validate(catalog.json(), catalog_schema())
        entry, registry = catalog.json()["entries"]
        assert registry["url"].endswith("/ard/")
        assert entry["displayName"] == "Waypost"
        assert (entry["capabilities"], entry["metadata"]["org.agentdiscovery.key"]) == (["discover"], key)
        assert (await anyone.get(entry["url"])).json() == card.json()


async def test_an_adp_document_of_an_admin_is_served_under_its_domain_at_once(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        assert (await bench.admin().post("/api/v1/agents", json=ALICE)).status_code == 201
        anyone = bench.anonymous()
        for host in ("alice.example.com", "ALICE.example.com:8440", "alice.example.com."):
            assert (await at(anyone, "/.well-known/agent.json", host)).json() == ALICE
        assert (await at(anyone, "/.well-known/agent-card.json", "alice.example.com")).json()["name"] == "Alice's Agent"
        assert (await at(anyone, "/.well-known/agent-card", "alice.example.com")).json()["name"] == "Alice's Agent"
        entries = (await at(anyone, "/.well-known/ai-catalog.json", "alice.example.com")).json()["entries"]
        assert [entry["displayName"] for entry in entries] == ["Alice's Agent"]
        await bench.admin().post("/api/v1/agents", json=profile("other", name="Somebody else"))
        first_page = await at(anyone, "/", "alice.example.com")
        assert "Alice&#39;s Agent" in first_page.text
        assert "Somebody else" not in first_page.text
        assert (await at(anyone, "/.well-known/agent.json", "other.example.com")).json()["identity"][
            "name"
        ] == "Waypost"


async def test_no_other_subject_can_claim_a_host(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        assert (await bench.as_("mallory").post("/api/v1/agents", json=ALICE)).status_code == 201
        found = await at(bench.anonymous(), "/.well-known/agent.json", "alice.example.com")
        assert found.json()["identity"]["name"] == "Waypost"


async def test_a_hosted_agent_that_is_withdrawn_or_private_is_no_longer_served(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin, anyone = bench.admin(), bench.anonymous()
        await admin.post("/api/v1/agents", json=ALICE, headers={"Waypost-Visibility": "private"})
        assert (await at(anyone, "/.well-known/agent.json", "alice.example.com")).status_code == 404
        await admin.post("/api/v1/agents", json=ALICE, headers={"Waypost-Visibility": "public"})
        assert (await at(anyone, "/.well-known/agent.json", "alice.example.com")).json() == ALICE
        await admin.delete("/api/v1/agents/agent:alice.example.com")
        found = await at(anyone, "/.well-known/agent.json", "alice.example.com")
        assert found.json()["identity"]["name"] == "Waypost"


async def test_a_hosted_agent_is_served_after_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await bench.admin().post("/api/v1/agents", json=ALICE)
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        assert (await at(bench.anonymous(), "/.well-known/agent.json", "alice.example.com")).json() == ALICE


async def test_a_card_is_chosen_by_name(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("https://x.example/a", name="X"))
        anyone = bench.anonymous()
        for path in ("/.well-known/agent-card.json", "/.well-known/agent-card", "/v1/card"):
            found = await anyone.get(path, params={"agent": "https://x.example/a"})
            assert (found.status_code, found.json()["name"]) == (200, "X")
            assert (await anyone.get(path, params={"agent": "nobody"})).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/.well-known/ai-catalog.json",
        "/.well-known/oauth-protected-resource",
    ],
)
async def test_documents_honour_conditional_requests(tmp_path: Path, path: str) -> None:
    async with service(tmp_path) as bench:
        anyone = bench.anonymous()
        first = await anyone.get(path)
        again = await anyone.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await anyone.head(path)).headers["etag"] == first.headers["etag"]
        dated = await anyone.get(path, headers={"If-Modified-Since": first.headers["last-modified"]})
        assert (dated.status_code, dated.content) == (304, b"")


async def test_the_catalog_follows_the_public_agents(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:

        async def names(bench: Bench) -> list[str]:
            answer = (await bench.anonymous().get("/.well-known/ai-catalog.json")).json()
            jsonschema.validate(answer, catalog_schema())
            return [
                entry["displayName"]
                for entry in answer["entries"]
                if not entry["type"].startswith("application/ai-registry")
            ]

        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("a", name="Shown"), params={"ttl_seconds": "60"})
        await admin.post("/api/v1/agents", json=profile("b", name="Asleep", status="suspended"))
        assert await names(bench) == ["Waypost", "Shown"]
        bench.clock.advance(60)
        assert await names(bench) == ["Waypost"]


@pytest.mark.parametrize("path", ["/api/v1/agents", "/api/v1/agents/x", "/profile/v1/discover", "/healthz"])
async def test_options_names_the_methods(tmp_path: Path, path: str) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.anonymous().options(path)
        assert answer.status_code == 204
        assert "OPTIONS" in answer.headers["allow"]
        assert (await bench.anonymous().options("/nowhere")).status_code == 404


async def test_an_admin_hosts_any_agent_under_a_domain_and_ends_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin, anyone = bench.admin(), bench.anonymous()
        await admin.post("/api/v1/agents", json=profile("a", name="Hosted"))
        answer = await admin.post("/api/v1/agents/a:host", json={"domain": "Desk.Example.COM."})
        assert (answer.status_code, answer.json()["outcome"]) == (200, "updated")
        assert (await at(anyone, "/.well-known/agent-card.json", "desk.example.com")).json()["name"] == "Hosted"
        assert (await admin.post("/api/v1/agents/a:host", json={"domain": None})).status_code == 200
        assert (await at(anyone, "/.well-known/agent-card.json", "desk.example.com")).json()["name"] == "Waypost"


@pytest.mark.parametrize("domain", ["", "-x.example", "a b", "x" * 64 + ".example", 5, "127.0.0.1:80", "a..b"])
async def test_an_invalid_domain_is_refused(tmp_path: Path, domain: object) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a"))
        answer = await bench.admin().post("/api/v1/agents/a:host", json={"domain": domain})
        assert (answer.status_code, answer.json()["path"]) == (400, "$.domain")
        assert (await bench.as_("alice").post("/api/v1/agents/a:host", json={"domain": "x.example"})).status_code == 403
