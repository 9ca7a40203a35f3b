"""Short ids: GET /api/v1/agents/{id} accepts the end of an id, or the name of an agent, if it means one visible agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import pytest_asyncio

from support.service import Bench, profile, service
from waypost.server.web.agent_cards import agent_path

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = {
    "https://agents.example.net/id/invoice-translator": "Invoice Translator",
    "urn:air:example.net:team:paper-scout": "Paper Scout",
    "https://one.example.net/a2a/rpc": "First Reviewer",
    "https://two.example.net/a2a/rpc": "Second Reviewer",
    "https://three.example.net/team/Wächter": "Wächter",
    "plain-agent": "Twin",
    "https://four.example.net/twin": "Another",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with service(tmp_path_factory.mktemp("short"), anonymous_read=True) as bench:
        for agent_id, name in AGENTS.items():
            await register(bench.as_("alice"), profile(agent_id, name=name))
        yield bench


async def register(client: httpx2.AsyncClient, document: dict[str, Any], **headers: str) -> None:
    answer = await client.post("/api/v1/agents", json=document, headers=headers)
    assert answer.status_code == 201, answer.text


async def read(client: httpx2.AsyncClient, name: str) -> httpx2.Response:
    return await client.get(f"/api/v1/agents/{quote(name, safe='')}")


@pytest.mark.parametrize(
    ("name", "agent_id"),
    [
        ("invoice-translator", "https://agents.example.net/id/invoice-translator"),
        ("INVOICE-translator", "https://agents.example.net/id/invoice-translator"),
        ("invoice translator", "https://agents.example.net/id/invoice-translator"),
        ("id/invoice-translator", "https://agents.example.net/id/invoice-translator"),
        ("paper-scout", "urn:air:example.net:team:paper-scout"),
        ("team:paper-scout", "urn:air:example.net:team:paper-scout"),
        ("two.example.net/a2a/rpc", "https://two.example.net/a2a/rpc"),
        ("first reviewer", "https://one.example.net/a2a/rpc"),
        ("wächter", "https://three.example.net/team/Wächter"),
    ],
)
async def test_a_short_name_means_the_one_agent_that_has_it(bench: Bench, name: str, agent_id: str) -> None:
    answer = await read(bench.anonymous(), name)
    assert (answer.status_code, answer.json()["id"]) == (200, agent_id)
    assert answer.headers["etag"] == (await read(bench.anonymous(), agent_id)).headers["etag"]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("rpc", ["https://one.example.net/a2a/rpc", "https://two.example.net/a2a/rpc"]),
        ("a2a/rpc", ["https://one.example.net/a2a/rpc", "https://two.example.net/a2a/rpc"]),
        ("twin", ["https://four.example.net/twin", "plain-agent"]),  # the end of one id, the name of another agent
    ],
)
async def test_a_name_of_several_agents_is_answered_with_their_ids(bench: Bench, name: str, ids: list[str]) -> None:
    answer = await read(bench.anonymous(), name)
    assert (answer.status_code, answer.json()["code"], answer.json()["suggestions"]) == (404, "not_found", ids)
    assert all(agent_id in answer.json()["hint"] for agent_id in ids)


async def test_at_most_five_ids_are_listed(bench: Bench) -> None:
    for number in range(7):
        await register(bench.as_("carol"), profile(f"https://n{number}.example.net/crowd", name="Crowd"))
    answer = (await read(bench.anonymous(), "crowd")).json()
    assert answer["suggestions"] == [f"https://n{number}.example.net/crowd" for number in range(5)]
    assert answer["message"] == "More than 5 agents are called 'crowd'."


@pytest.mark.parametrize("name", ["invoce-translater", "invoice", "translator", "Invoice Translater"])
async def test_an_unknown_name_is_answered_with_near_ids(bench: Bench, name: str) -> None:
    answer = await read(bench.anonymous(), name)
    assert answer.status_code == 404
    assert answer.json()["suggestions"][0] == "https://agents.example.net/id/invoice-translator"
    assert "invoice-translator" in answer.json()["hint"]


async def test_a_name_like_no_other_gets_no_suggestion(bench: Bench) -> None:
    answer = (await read(bench.anonymous(), "qqqq-xyz")).json()
    assert "suggestions" not in answer


async def test_hidden_agents_are_neither_meant_nor_suggested_nor_counted(bench: Bench) -> None:
    alice, bob = bench.as_("alice"), bench.as_("bob")
    hidden = {"Waypost-Visibility": "private"}
    await register(alice, profile("https://x.example.net/secret-keeper", name="Hush"), **hidden)
    await register(alice, profile("https://x.example.net/paper-scout", name="Hush"), **hidden)
    for name in ("secret-keeper", "secret-keepr", "Hush", "https://x.example.net/secret-keeper"):
        for client in (bob, bench.anonymous()):
            answer = await read(client, name)
            assert answer.status_code == 404
            assert "x.example.net" not in str(answer.json().get("suggestions"))
    assert (await read(bob, "paper-scout")).json()["id"] == "urn:air:example.net:team:paper-scout"
    assert (await read(alice, "paper-scout")).status_code == 404
    assert (await read(alice, "secret-keeper")).json()["id"] == "https://x.example.net/secret-keeper"
    assert (await read(bench.admin(), "secret-keeper")).status_code == 200


async def test_a_withdrawn_or_expired_agent_has_no_short_name(bench: Bench) -> None:
    alice = bench.as_("alice")
    await register(alice, profile("https://y.example.net/short-lived", name="Gone"))
    assert (
        await alice.delete(f"/api/v1/agents/{quote('https://y.example.net/short-lived', safe='')}")
    ).status_code == 204
    answer = await alice.post(
        "/api/v1/agents?ttl_seconds=10", json=profile("https://y.example.net/brief", name="Brief")
    )
    assert answer.status_code == 201
    assert (await read(alice, "brief")).status_code == 200
    bench.clock.advance(11)
    for name in ("short-lived", "gone", "brief"):
        answer = await read(alice, name)
        assert answer.status_code == 404
        assert "y.example.net" not in answer.text


async def test_a_write_takes_ids_only(bench: Bench) -> None:
    """A program never changes an agent that it did not name."""
    assert (await bench.as_("alice").delete("/api/v1/agents/invoice-translator")).status_code == 404
    assert (await read(bench.anonymous(), "invoice-translator")).status_code == 200


async def test_short_names_are_found_after_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as first:
        await register(first.as_("alice"), profile("https://z.example.net/keeper", name="Keeper Of Things"))
    async with service(tmp_path, store="sqlite") as second:
        for name in ("keeper", "keeper of things"):
            assert (await read(second.as_("alice"), name)).json()["id"] == "https://z.example.net/keeper"


async def test_the_page_of_a_short_name_is_that_of_its_agent(bench: Bench, tmp_path: Path) -> None:
    answer = await bench.anonymous().get("/a/invoice-translator", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == agent_path("https://agents.example.net/id/invoice-translator")
    near = await bench.anonymous().get("/a/invoice-translatr", follow_redirects=False)
    assert near.status_code == 404
    assert "https://agents.example.net/id/invoice-translator" in near.text
    async with service(tmp_path) as closed:
        await register(closed.as_("alice"), profile("urn:x:helper"))
        unknown = await closed.anonymous().get("/a/helper", follow_redirects=False)
        assert unknown.status_code == 404
        assert "urn:x:helper" not in unknown.text
