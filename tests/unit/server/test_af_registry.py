"""The Agent Framework directory over the registry: pages and searches stay correct while the registry changes."""

from __future__ import annotations

import asyncio

from support.agent_framework import AGENTS, ALICE, FAQ, numbered, service
from waypost.protocols.agent_framework.codec import to_summary

BOB = {"Authorization": "Bearer bob"}


async def names(client: object, query: str, headers: dict[str, str]) -> list[str]:
    answer = await client.get(f"{AGENTS}?{query}", headers=headers)  # type: ignore[attr-defined]
    return [agent["name"] for agent in answer.json()["agents"]]


async def test_summaries_agree_with_the_full_view() -> None:
    async with service([FAQ, *numbered(20, tags=["a", "b"], version="1.0.0")]) as served:
        brief = (await served.client.get(AGENTS, headers=ALICE)).json()["agents"]
        full = (await served.client.get(f"{AGENTS}?view=full", headers=ALICE)).json()["agents"]
    assert brief == [to_summary(agent) for agent in full]


async def test_a_change_shows_at_once_on_cached_pages() -> None:
    agents = numbered(3)
    async with service(agents) as served:
        for _ in range(2):
            assert await names(served.client, "per_page=2", ALICE) == ["Agent 0000", "Agent 0001"]
        await served.register({**agents[1], "name": "A renamed agent", "version": "2"})
        assert await names(served.client, "per_page=2", ALICE) == ["A renamed agent", "Agent 0000"]
        await served.withdraw("agent-0000")
        assert await names(served.client, "per_page=2", ALICE) == ["A renamed agent", "Agent 0002"]


async def test_a_renewed_lease_changes_no_representation() -> None:
    async with service() as served:
        await served.register(numbered(1)[0], ttl_seconds=60)
        before = [await served.client.get(path, headers=ALICE) for path in (AGENTS, f"{AGENTS}/agent-0000")]
        served.clock.at += 30
        await served.register(numbered(1)[0], ttl_seconds=60)
        served.clock.at += 40
        after = [await served.client.get(path, headers=ALICE) for path in (AGENTS, f"{AGENTS}/agent-0000")]
        assert [answer.headers["etag"] for answer in after] == [answer.headers["etag"] for answer in before]
        served.clock.at += 30
        assert (await served.client.get(AGENTS, headers=ALICE)).json() == {"agents": []}


async def test_free_text_reaches_beyond_one_portion_and_walks_in_order() -> None:
    async with service(numbered(2300)) as served:
        first = await served.client.get(f"{AGENTS}?q=number+22&per_page=200", headers=ALICE)
        found = [f"Agent {number:04d}" for number in range(2300) if f"number {number}".find("22") >= 0]
        walked = []
        for page in range(1, first.json()["total"] // 200 + 2):
            walked += await names(served.client, f"q=number+22&per_page=200&page={page}", ALICE)
    in_name = [f"Agent {number:04d}" for number in range(2300) if "22" in f"{number:04d}"]
    assert walked == sorted({*found, *in_name})


async def test_searches_at_the_same_time_agree_and_see_only_their_own() -> None:
    async with service() as served:
        await served.register(numbered(2)[0], visibility="private")
        await served.register(numbered(2)[1], visibility="internal")
        asked = [("q=agent", ALICE), ("q=agent", BOB), ("q=agent", {})] * 10
        answers = await asyncio.gather(*(names(served.client, query, headers) for query, headers in asked))
    assert answers[:3] == [["Agent 0000", "Agent 0001"], ["Agent 0001"], []]
    assert answers == answers[:3] * 10


async def test_free_text_follows_a_change_and_an_expiry() -> None:
    agent = numbered(1)[0]
    async with service([agent]) as served:
        assert await names(served.client, "q=things", ALICE) == ["Agent 0000"]
        await served.register({**agent, "description": "Something else.", "version": "2"})
        assert await names(served.client, "q=things", ALICE) == []
        assert await names(served.client, "q=something", ALICE) == ["Agent 0000"]
        await served.register({**numbered(2)[1], "description": "Something brief."}, ttl_seconds=60)
        assert await names(served.client, "q=something", ALICE) == ["Agent 0000", "Agent 0001"]
        served.clock.at += 61
        assert await names(served.client, "q=something", ALICE) == ["Agent 0000"]


async def test_an_alias_names_the_agent_too() -> None:
    async with service() as served:
        card = {"name": "Card Agent", "description": "d", "version": "1.0.0", "capabilities": {}, "skills": []}
        card |= {"supportedInterfaces": [{"url": "https://c.example/a2a", "protocolBinding": "JSONRPC"}]}
        card |= {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        await served.register(card)
        entry = next(iter(served.registry.entries.page(None, limit=1)[0]))
        for alias in entry.aliases:
            answer = await served.client.get(f"{AGENTS}/{alias.replace('%', '%25').replace('/', '%2F')}", headers=ALICE)
            assert answer.json()["metadata"]["canonical_id"] == entry.id
