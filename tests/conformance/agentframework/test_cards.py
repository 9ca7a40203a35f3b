"""Cards: one agent for an origin (agentframework.md §10)."""

from __future__ import annotations

from typing import Any

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, FAQ, Opener, application, client_of, links_of, service
from waypost.server.api.agent_framework.middleware import Discovery

CARD = "/.well-known/agent-card"
A2A_CARD = "/.well-known/agent-card.json"
A2A: dict[str, Any] = {
    "name": "Card Agent",
    "description": "Has an A2A card.",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "https://card.example/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "talk", "name": "Talk", "description": "Talks.", "tags": ["talk"]}],
}


@pytest.mark.req("AF-60", "AF-61")
async def test_the_only_agent_of_an_origin_has_its_card_at_both_addresses(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        card = await served.client.get(CARD, headers=ALICE)
        legacy = await served.client.get("/v1/card", headers=ALICE)
        fresh = await served.client.get("/v1/card", headers={"If-None-Match": card.headers["etag"], **ALICE})
        custom = await served.client.get(CARD, headers={"Accept": "application/agent-metadata+json"})
    assert card.status_code == 200
    assert card.json() == ANNOTATOR
    assert legacy.content == card.content
    assert legacy.headers["content-location"] == CARD
    assert fresh.status_code == 304
    assert custom.headers["content-type"] == "application/agent-metadata+json;version=1"


@pytest.mark.req("AF-61")
async def test_the_card_is_complete_except_for_the_owners_address(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        card = (await served.client.get(CARD)).json()
    assert card == {**ANNOTATOR, "owner": {"name": "Vision Team"}}


@pytest.mark.req("AF-61")
async def test_several_agents_without_a_default_are_a_404_that_leads_to_the_list(opened: Opener) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        none = await served.client.get(CARD)
        named = await served.client.get(f"{CARD}?agent=faq-search", headers=ALICE)
        unknown = await served.client.get(f"{CARD}?agent=nobody")
        twice = await served.client.get(f"{CARD}?agent=a&agent=b")
    assert none.status_code == 404
    assert none.json()["links"] == {"agents": AGENTS}
    assert named.json()["id"] == "faq-search"
    assert unknown.status_code == 404
    assert (twice.status_code, twice.json()["invalid_params"][0]["name"]) == (400, "agent")


@pytest.mark.req("AF-61")
async def test_one_of_several_may_be_the_default() -> None:
    async with application([ANNOTATOR, FAQ], default_agent="faq-search") as served:
        assert (await served.client.get(CARD)).json()["id"] == "faq-search"


@pytest.mark.req("AF-60")
async def test_cards_may_be_turned_off() -> None:
    async with application([ANNOTATOR], cards=False) as served:
        for path in (CARD, "/v1/card", A2A_CARD):
            assert (await served.client.get(path)).status_code == 404


@pytest.mark.req("AF-62")
async def test_the_two_cards_are_linked_and_distinguished() -> None:
    async with client_of(Discovery(agents=[A2A])) as client:
        ours = await client.get(CARD)
        theirs = await client.get(A2A_CARD)
        fresh = await client.get(A2A_CARD, headers={"If-None-Match": theirs.headers["etag"]})
    assert links_of(ours)["alternate"] == A2A_CARD
    assert 'type="application/a2a-agent-card+json"' in ours.headers["link"]
    assert {"id", "endpoints"} <= set(ours.json())
    assert not {"supportedInterfaces", "skills"} & set(ours.json())
    assert theirs.json() == A2A
    assert fresh.status_code == 304


@pytest.mark.req("AF-62")
async def test_one_of_several_a2a_cards_is_selected_by_name() -> None:
    async with client_of(Discovery(agents=[A2A, ANNOTATOR])) as client:
        listed = (await client.get(AGENTS)).json()["agents"]
        agent = next(agent["id"] for agent in listed if agent["name"] == "Card Agent")
        alternate = links_of(await client.get(f"{CARD}?agent={agent}"))["alternate"]
        assert alternate == f"{A2A_CARD}?agent={agent}"
        assert (await client.get(alternate)).json() == A2A
        assert (await client.get(f"{A2A_CARD}?agent=image-annotator")).status_code == 404
        assert (await client.get(A2A_CARD)).status_code == 404


@pytest.mark.req("AF-60", "AF-51")
async def test_a_named_card_is_as_whole_as_the_operator_wants() -> None:
    async with service([ANNOTATOR, FAQ]) as served:
        assert (await served.client.get(f"{CARD}?agent=faq-search")).json()["metadata"] == {"redacted": True}
    async with service([ANNOTATOR, FAQ], full_cards=True) as served:
        card = (await served.client.get(f"{CARD}?agent=faq-search")).json()
    assert card["endpoints"] == FAQ["endpoints"]


@pytest.mark.req("AF-62")
async def test_an_agent_without_an_a2a_card_promises_none() -> None:
    async with client_of(Discovery(agents=[ANNOTATOR])) as client:
        assert "alternate" not in links_of(await client.get(CARD))
        assert (await client.get(A2A_CARD)).status_code == 404
