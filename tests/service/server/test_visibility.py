"""Visibility: a hidden agent leaves no trace in any API."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost.protocols.dialects import DIALECTS

PATHS = (
    "/api/v1/agents",
    "/api/v1/agents/secret",
    "/api/v1/agents:export",
    "/api/v1/stats",
    "/api/v1/facets",
    "/api/v1/facets?tag=hush",
    "/api/v1/agents?tag=hushh",
    "/api/v1/agents?owner=alice",
    "/profile/v1/agents",
    "/profile/v1/agents/secret",
    "/.well-known/agentframework/v1/agents",
    "/.well-known/agentframework/v1/agents/secret",
    "/.well-known/agentframework/v1/agents?q=falcon",
    "/.well-known/agentframework/v1/agents?tag=hush",
    "/.well-known/agent-card?agent=secret",
    "/.well-known/agent-card.json?agent=secret",
    "/.well-known/ai-catalog.json",
    "/",
)


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"query": "falcon hush"},
    {"query": "falcon", "required_tags": ["hushh"], "facets": ["tag", "protocol", "status", "owner"]},
    {"query": "shown", "preferred_tags": ["hus"], "excluded_tags": ["loudd"], "facets": ["tag"]},
    {"query": "shown", "constraints": {"region": "eu"}, "min_score": 0.9},
    {"query": "shown", "constraints": {"region": "us", "max_latency_ms": 5}},
    {"query": "short factual questions", "client_context": {"domain": "hush", "region": "eu"}},
)


async def answers(client: httpx2.AsyncClient) -> list[tuple[str, int, str, str | None, str | None]]:
    seen = []
    for path in PATHS:
        answer = await client.get(path, headers={"X-Request-Id": "r"})
        text = answer.text.replace("secret", "unknown") if answer.status_code == 404 else answer.text
        seen.append((path, answer.status_code, text, answer.headers.get("etag"), answer.headers.get("last-modified")))
    for asked in QUESTIONS:
        found = await client.post("/profile/v1/discover", json=asked, headers={"X-Request-Id": "r"})
        seen.append((f"discover {asked}", found.status_code, found.text, None, None))
    return seen


async def fill(bench: Bench) -> None:
    await bench.as_("alice").post("/api/v1/agents", json=profile("shown", name="Shown", tags=["loud"]))


@pytest.mark.parametrize(("visibility", "outsider"), [("private", "bob"), ("private", None), ("internal", None)])
async def test_a_hidden_agent_changes_no_answer(tmp_path: Path, visibility: str, outsider: str | None) -> None:
    async with service(tmp_path / "without", anonymous_read=True):
        pass  # the same keys for both, and so the same seals
    shutil.copytree(tmp_path / "without", tmp_path / "with", ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    async with (
        service(tmp_path / "without", anonymous_read=True) as without,
        service(tmp_path / "with", anonymous_read=True) as with_hidden,
    ):
        for bench in (without, with_hidden):
            await fill(bench)
        secret = profile("secret", name="Secret", description="About falcon.", tags=["hush", "loud"])
        secret |= {"constraints": {"region": "eu", "max_latency_ms": 1}}
        await with_hidden.as_("alice").post("/api/v1/agents", json=secret, headers={"Waypost-Visibility": visibility})

        def client(bench: Bench) -> httpx2.AsyncClient:
            return bench.as_(outsider) if outsider else bench.anonymous()

        expected, found = await answers(client(without)), await answers(client(with_hidden))
        for one, other in zip(expected, found, strict=True):
            assert one[:2] == other[:2]
            if one[0] != "/.well-known/ai-catalog.json":  # it names the service's own key, which differs
                assert one == other, one[0]


async def test_owner_reader_and_admin_see_the_agents_they_may_see(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        alice = bench.as_("alice")
        for name in ("public", "internal", "private"):
            await alice.post("/api/v1/agents", json=profile(name), headers={"Waypost-Visibility": name})

        async def seen(client: httpx2.AsyncClient) -> list[str]:
            return [agent["id"] for agent in (await client.get("/api/v1/agents")).json()["agents"]]

        assert await seen(alice) == ["internal", "private", "public"]
        assert await seen(bench.admin()) == ["internal", "private", "public"]
        assert await seen(bench.as_("bob")) == ["internal", "public"]
        assert await seen(bench.anonymous()) == ["public"]


async def test_visibility_is_read_from_the_header_then_the_document_then_the_settings(tmp_path: Path) -> None:
    async with service(tmp_path, default_visibility="internal", anonymous_read=True) as bench:
        alice, anonymous = bench.as_("alice"), bench.anonymous()
        await alice.post("/api/v1/agents", json=profile("by-default"))
        await alice.post("/api/v1/agents", json=profile("by-member", visibility="public"))
        await alice.post(
            "/api/v1/agents", json=profile("by-header", visibility="private"), headers={"Waypost-Visibility": "public"}
        )
        card = {
            "agent_id": "by-metadata",
            "name": "Card",
            "description": "A card.",
            "capabilities": [{"capability_id": "c", "description": "d"}],
            "communication": {"protocols": ["http"], "endpoints": [{"protocol": "http", "uri": "http://h.example/"}]},
            "discovery_tags": [],
            "metadata": {"visibility": "public"},
        }
        assert (await alice.post("/api/v1/agents", json=card)).status_code == 201
        listed = [agent["id"] for agent in (await anonymous.get("/api/v1/agents")).json()["agents"]]
        assert sorted(listed) == ["by-header", "by-member", "by-metadata"]


async def test_a_write_to_a_hidden_id_is_the_same_conflict_as_to_a_visible_one(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        await alice.post("/api/v1/agents", json=profile("seen"))
        await alice.post("/api/v1/agents", json=profile("hidden"), headers={"Waypost-Visibility": "private"})
        bodies = []
        for name in ("seen", "hidden"):
            answer = await bob.post("/api/v1/agents", json=profile(name), headers={"X-Request-Id": "r"})
            assert answer.status_code == 409
            bodies.append(answer.text)
        assert bodies[0] == bodies[1]
        assert (await bob.delete("/api/v1/agents/seen")).status_code == 403
        assert (await bob.delete("/api/v1/agents/hidden")).status_code == 404
        assert (await bob.post("/api/v1/agents/hidden:renew")).status_code == 404


async def test_reading_needs_a_token_unless_the_settings_allow_anonymous_reads(tmp_path: Path) -> None:
    always_open = (
        "/", "/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent-card", "/v1/card",
        "/.well-known/ai-catalog.json", "/schemas/profile.json", "/healthz", "/readyz",
    )  # fmt: skip
    guarded = (
        "/api/v1/agents", "/api/v1/stats", "/profile/v1/agents", "/.well-known/agentframework/v1/agents",
        "/api/v1/watch", "/openapi.json", "/docs", "/metrics",
    )  # fmt: skip
    async with service(tmp_path) as bench:
        anonymous = bench.anonymous()
        for path in always_open:
            assert (await anonymous.get(path)).status_code == 200, path
        for path in guarded:
            answer = await anonymous.get(path)
            assert answer.status_code == 401, path
            assert "bearer" in answer.headers["www-authenticate"].lower()


async def test_an_open_service_lets_everyone_write_but_not_a_page_of_another_site(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        anybody = bench.anonymous()
        assert (await anybody.post("/api/v1/agents", json=profile("a"))).status_code == 201
        foreign = await anybody.post("/api/v1/agents", json=profile("b"), headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        assert "Authentication is off" in (await anybody.get("/")).text


@pytest.mark.parametrize("credential", ["Bearer of-another-service", "Bearer a.b.c", "Basic YTpi", "nonsense"])
async def test_an_open_service_ignores_foreign_credentials(tmp_path: Path, credential: str) -> None:
    async with service(tmp_path, open=True) as bench:
        anybody = bench.client(Authorization=credential)
        assert (await anybody.post("/api/v1/agents", json=profile("a"))).status_code == 201
        assert (await anybody.get("/.well-known/agentframework/v1/agents/a")).status_code == 200
        assert (await bench.anonymous().delete("/api/v1/agents/a")).status_code == 204


async def test_the_address_of_an_owner_is_left_out_by_agent_framework_for_anonymous_callers_alone(
    tmp_path: Path,
) -> None:
    """SECURITY.md says so: what a public document says is public."""
    agent = {
        "id": "annotator",
        "name": "Image Annotator",
        "version": "1.0.0",
        "description": "Annotates images with labels.",
        "tags": ["vision"],
        "owner": {"name": "Vision Team", "email": "vision@example.com"},
        "endpoints": [{"method": "POST", "path": "/v1/message:send", "description": "Send a message"}],
    }
    framework = "/.well-known/agentframework/v1/agents"
    withheld = (f"{framework}/annotator", f"{framework}?include=owner", f"{framework}?view=full")
    shown = (
        *(f"/api/v1/agents/annotator?as={name}" for name in DIALECTS if name != "a2a"),  # it has no endpoint for a card
        "/profile/v1/agents/annotator",
        "/api/v1/agents:export",
        "/api/v1/feed?wait=0",
        "/.well-known/ai-catalog.json",
        "/a/annotator",
    )
    async with service(tmp_path, anonymous_read=True) as bench:
        assert (await bench.as_("alice").post("/api/v1/agents", json=agent)).status_code == 201
        anonymous, reader = bench.anonymous(), bench.as_("bob")
        for path in withheld:
            assert "vision@example.com" not in (await anonymous.get(path)).text, path
            assert "vision@example.com" in (await reader.get(path)).text, path
        found = (await anonymous.get(f"{framework}?q=vision@example.com")).json()
        assert found["agents"] == [], "a search does not tell, either"
        for path in shown:
            assert "vision@example.com" in (await anonymous.get(path)).text, path
