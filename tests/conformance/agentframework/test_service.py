"""The Agent Framework API of the service: credentials, public paths, the Host rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agent_framework import AGENTS, BASE
from support.service import NOW, profile, service
from waypost.server.auth.authenticator import ADMIN
from waypost.server.http.conditional_requests import format_http_date

ODD = "https://h.example/problems/schema.json"
ENCODED = f"{AGENTS}/https%3A%2F%2Fh.example%2Fproblems%2Fschema.json"
CARD = "/.well-known/agent-card"


@pytest.mark.req("AF-40", "AF-42", "AF-50")
async def test_agents_need_a_token_with_the_right_to_read(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile(ODD))
        for path in (AGENTS, ENCODED, "/.agent-framework/v1/agents"):
            unknown = await bench.anonymous().get(path, headers={"If-None-Match": "*"})
            assert (unknown.status_code, unknown.json()["code"]) == (401, "unauthorized")
            assert unknown.headers["www-authenticate"].startswith("Bearer")
            assert unknown.headers["x-request-id"] == unknown.json()["correlation_id"]
            assert (await bench.as_("writer", "discover:write").get(path)).status_code == 403
            assert (await bench.as_("reader", "discover:read").get(path)).status_code == 200


@pytest.mark.req("AF-41", "AF-8", "AF-9", "AF-3")
async def test_paths_without_agents_are_open(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.anonymous()
        for path in (BASE, f"{BASE}/schema.json", f"{BASE}/problems/unauthorized", "/.well-known/agentframework"):
            assert (await client.get(path)).status_code == 200
        assert (await client.options(AGENTS)).status_code == 204
        assert (await client.get("/v1/agents?q=x")).headers["location"] == f"{AGENTS}?q=x"
        assert (await client.get("/.well-known/agentframework/v3/agents")).json()["supported_versions"] == ["v1"]


@pytest.mark.req("AF-33", "AF-35")
async def test_a_list_without_agents_is_dated_by_the_start(tmp_path: Path) -> None:
    lists = (AGENTS, "/profile/v1/agents", "/api/v1/agents", "/agents", "/ard/agents", "/v0.1/servers")
    async with service(tmp_path) as bench:
        reader = bench.as_("reader", "discover:read")
        bench.clock.advance(100)
        await bench.admin().post("/api/v1/agents", json=profile("hidden"), headers={"Waypost-Visibility": "private"})
        bench.clock.advance(100)
        for path in (*lists, BASE, "/.well-known/agentframework", f"{BASE}/schema.json"):
            first = await reader.get(path)
            assert first.headers["last-modified"] == format_http_date(NOW).decode(), path
            again = await reader.get(path, headers={"If-Modified-Since": first.headers["last-modified"]})
            assert (again.status_code, again.content) == (304, b""), path
        await bench.admin().post("/api/v1/agents", json=profile("shown"))
        for path in lists:
            dated = (await reader.get(path)).headers["last-modified"]
            assert dated == format_http_date(NOW + 200).decode(), path


@pytest.mark.req("AF-51")
async def test_anonymous_readers_see_public_agents_in_brief(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile())
        await admin.post("/api/v1/agents", json=profile("inside"), headers={"Waypost-Visibility": "internal"})
        listed = (await bench.anonymous().get(f"{AGENTS}?view=full")).json()["agents"]
        inside = (await bench.as_("reader", "discover:read").get(AGENTS)).json()["agents"]
    assert [agent["metadata"] for agent in listed] == [{"redacted": True}]
    assert len(inside) == 2


@pytest.mark.req("AF-60", "AF-61", "AF-62")
async def test_the_card_is_the_services_own_unless_the_host_or_a_name_selects_an_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("agent:hosted.example", name="Hosted"))
        await admin.post("/api/v1/agents", json=profile("hidden"), headers={"Waypost-Visibility": "private"})
        await bench.registry.host(ADMIN, "agent:hosted.example", "hosted.example")
        client = bench.anonymous()
        own = await client.get(CARD)
        legacy = await client.get("/v1/card")
        hosted = await client.get(CARD, headers={"Host": "hosted.example:8440"})
        other = await client.get(CARD, headers={"Host": "else.example"})
        named = await client.get(f"{CARD}?agent=agent%3Ahosted.example")
        hidden = await client.get(f"{CARD}?agent=hidden")
    assert own.json()["name"] == other.json()["name"] == "Waypost"
    assert legacy.content == own.content
    assert hosted.json()["name"] == named.json()["name"] == "Hosted"
    assert hosted.content == named.content
    assert hosted.json()["metadata"]["canonical_id"] == "agent:hosted.example"
    assert 'rel="alternate"; type="application/a2a-agent-card+json"' in own.headers["link"]
    assert hidden.status_code == 404


@pytest.mark.req("AF-20")
async def test_long_members_of_a_registered_agent_are_truncated_and_named(tmp_path: Path) -> None:
    """They are taken whole: the registry's own dialect gives them back, and search reads their beginning."""
    long = profile(
        "long",
        name="n" * 300,
        description="Translates invoices. " + "é" * 20_000,
        tags=[f"tag-{number}" for number in range(70)],
    )
    async with service(tmp_path) as bench:
        admin = bench.admin()
        assert (await admin.post("/api/v1/agents", json=long)).status_code == 201
        shown = (await admin.get(f"{AGENTS}/long")).json()
        assert shown["metadata"]["truncated"] == ["name", "description", "tags"]
        assert shown["name"] == "n" * 256
        assert len(shown["description"].encode()) <= 16 * 1024
        assert long["description"].startswith(shown["description"])
        assert shown["tags"] == long["tags"][:64]
        assert (await admin.get("/profile/v1/agents/long")).json() == long
        listed = (await admin.get(AGENTS, params={"tag": "tag-69"})).json()["agents"]
        assert [agent["id"] for agent in listed] == ["long"]
        found = await admin.post(
            "/profile/v1/discover", json={"query": "translate invoices", "required_tags": ["tag-69"]}
        )
        assert [candidate["id"] for candidate in found.json()["candidates"]] == ["long"]


@pytest.mark.req("AF-53")
async def test_no_part_of_an_open_card_has_the_owners_address(tmp_path: Path) -> None:
    agent = {
        "id": "annotator",
        "name": "Annotator",
        "version": "1.0.0",
        "owner": {"name": "Vision Team", "email": "vision@example.com"},
        "endpoints": [{"method": "POST", "path": "/v1/message:send"}],
        "metadata": {"bindings": [{"protocol": "https", "endpoint": "https://vision.example"}]},
    }
    async with service(tmp_path) as bench:
        assert (await bench.admin().post("/api/v1/agents", json=agent)).status_code == 201
        for path in (CARD, "/v1/card"):
            card = await bench.anonymous().get(path, params={"agent": "annotator"})
            assert card.json()["owner"] == {"name": "Vision Team"}
            assert "vision@example.com" not in card.text
        known = (await bench.admin().get(f"{AGENTS}/annotator")).json()
        assert known["owner"] == agent["owner"]
