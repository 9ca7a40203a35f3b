"""One answer has at most 4 MiB, whatever is registered: a page ends earlier, and its cursor goes on (THREATS E5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support.apis import AF_AGENTS
from support.rtfs import card
from support.service import Bench, profile, service
from waypost import Client, limits

AGENTS = 40
IDS = {f"big-{number:02}" for number in range(AGENTS)}

Page = tuple[set[str], str | None]  # the ids of a page, and the cursor of the next one


def large(agent_id: str) -> dict[str, Any]:
    """Nearly as large as a document may be."""
    return profile(
        agent_id,
        name=agent_id,
        description="Translates invoices. " * 50,
        **{"com.example.padding": "x" * (limits.DOCUMENT_BYTES - 40_000)},
    )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path, anonymous_read=True) as made:
        lines = "\n".join(json.dumps(large(agent_id)) for agent_id in sorted(IDS))
        answer = await made.admin().post("/api/v1/agents:batch", content=lines)
        assert answer.text.count('"created"') == AGENTS
        yield made


def bounded(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= limits.ANSWER_BYTES
    return answer.json()


async def read_all(read: Callable[[str | None], Awaitable[Page]]) -> tuple[list[set[str]], set[str]]:
    """All pages; no agent is in two of them."""
    pages: list[set[str]] = []
    cursor: str | None = None
    while True:
        ids, cursor = await read(cursor)
        assert ids.isdisjoint(set().union(*pages))
        pages.append(ids)
        if cursor is None:
            return pages, set().union(*pages)


@pytest.mark.parametrize(
    "path", ["/profile/v1/agents", "/api/v1/agents", "/api/v1/agents?as=adp", "/api/v1/agents?as=oasf"]
)
async def test_a_list_of_large_documents_ends_earlier_and_goes_on(bench: Bench, path: str) -> None:
    client = bench.admin()
    joined = "&" if "?" in path else "?"

    async def read(cursor: str | None) -> Page:
        query = f"{joined}limit=200" + (f"&cursor={quote(cursor)}" if cursor else "")
        page = bounded(await client.get(path + query))
        ids = {agent_id for agent_id in IDS for agent in page["agents"] if f'"{agent_id}"' in json.dumps(agent)[:2000]}
        assert len(ids) == len(page["agents"])
        return ids, page.get("next_cursor")

    pages, found = await read_all(read)
    assert len(pages) > 1
    assert found == IDS


async def test_a_search_with_whole_documents_says_that_it_was_cut(bench: Bench) -> None:
    request = {"query": "translate invoices", "limit": 100, "detail": "full"}
    answer = bounded(await bench.admin().post("/profile/v1/discover", json=request))
    shown = len(answer["candidates"])
    assert 0 < shown < AGENTS
    assert f"{shown} of {AGENTS} candidates fit into one answer" in " ".join(answer["warnings"])


async def test_the_tools_of_mcp_and_the_catalog_are_bounded(bench: Bench) -> None:
    client = bench.admin()
    call = {"name": "find_agents", "arguments": {"query": "translate invoices", "limit": 100, "include_evidence": True}}
    bounded(
        await client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call},
            headers={"Accept": "application/json, text/event-stream"},
        )
    )
    catalog = bounded(await client.get("/.well-known/ai-catalog.json"))
    assert 2 < len(catalog["entries"]) < AGENTS  # the entry of the registry says where the others are


async def test_the_lists_of_announce_and_ard_are_bounded(bench: Bench) -> None:
    client = bench.admin()
    assert len(bounded(await client.get("/agents?limit=200"))["agents"]) == AGENTS
    listed, token = [], ""
    while token is not None:
        page = bounded(
            await client.get("/ard/agents", params={"pageSize": "100", **({"pageToken": token} if token else {})})
        )
        listed += [entry["identifier"] for entry in page["items"]]
        token = page.get("pageToken")
    assert len(set(listed)) == len(listed) == AGENTS


# --- RTFS -----------------------------------------------------------------------------------------


@pytest.fixture
async def cards(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with service(tmp_path) as made:
        client = made.admin()
        for number in range(90):
            large_card = card(f"agent-{number:02}", capabilities=[_capability(index) for index in range(60)])
            answer = await client.post("/api/v1/agents", json=large_card)
            assert answer.status_code == 201, answer.text
        yield client


def _capability(index: int) -> dict[str, Any]:
    return {"capability_id": f"translate-{index}", "description": "Translates invoices. " * 45, "type": "task"}


def _discover(call_id: int, cursor: str | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"capability_id": "translate-1", "limit": 100}
    return {
        "jsonrpc": "2.0",
        "id": call_id,
        "method": "rtfs.registry.discover",
        "params": params if cursor is None else params | {"cursor": cursor},
    }


async def test_a_page_of_large_cards_ends_earlier_and_goes_on(cards: httpx2.AsyncClient) -> None:
    async def read(cursor: str | None) -> Page:
        result = bounded(await cards.post("/rtfs", json=_discover(1, cursor)))["result"]
        return {agent["agent_id"] for agent in result["agents"]}, result.get("next_cursor")

    pages, found = await read_all(read)
    assert len(pages) > 1
    assert len(found) == 90


async def test_the_calls_of_a_batch_share_one_answer(cards: httpx2.AsyncClient) -> None:
    replies = bounded(await cards.post("/rtfs", json=[_discover(number) for number in range(10)]))
    assert len(replies) == 10
    assert "result" in replies[0]
    assert "with fewer others" in json.dumps(replies[-1]["error"])


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_revocations_are_bounded_and_go_on(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as made:
        admin, reason = made.admin(), "\x01" * limits.REASON_CHARS  # six bytes each in JSON
        names = [f"sha256:{number:064x}" for number in range(2600)]
        for start in range(0, len(names), 100):
            answers = await asyncio.gather(
                *(
                    admin.post("/api/v1/keys:revoke", json={"key_id": name, "reason": reason})
                    for name in names[start : start + 100]
                )
            )
            assert {answer.status_code for answer in answers} == {200}
        await admin.post("/api/v1/keys:revoke", json={"serial": "1F"})
        reader = made.as_("reader", "discover:read")
        first = await reader.get("/agents/revocations")
        page = bounded(first)
        found = [row["key_id"] for row in page["revoked"]]
        least = limits.ANSWER_BYTES - limits.ANSWER_OVERHEAD_BYTES - 2 * limits.KIB
        assert len(first.content) > least, "as many as fit"
        assert (await reader.get("/agents/revocations", params={"cursor": "made-up"})).status_code == 400
        while "next_cursor" in page:
            page = bounded(await reader.get("/agents/revocations", params={"cursor": page["next_cursor"]}))
            found += [row["key_id"] for row in page["revoked"]]
        assert found == names
        async with Client(
            made.application.base_url,
            token=made.token("reader", "discover:read"),
            transport=httpx2.ASGITransport(made.application.http_app),
        ) as client:
            assert [row.key_id for row in await client.revocations()] == names


# --- AF -------------------------------------------------------------------------------------------


@pytest.fixture
async def wide(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Agents whose AF documents are large: 600 of them are more than one answer."""
    async with service(tmp_path) as made:
        client = made.admin()
        bindings = [
            {"protocol": "http", "endpoint": f"https://a.example/{'x' * 1900}/{number}"}
            for number in range(limits.BINDINGS)
        ]
        lines = "\n".join(
            json.dumps(profile(f"wide-{number:03}", name=f"Wide {number:03}", bindings=bindings))
            for number in range(300)
        )
        answer = await client.post("/api/v1/agents:batch", content=lines)
        assert answer.text.count('"created"') == 300, answer.text[:500]
        yield client


async def test_the_plain_list_of_agent_framework_becomes_pages(wide: httpx2.AsyncClient) -> None:
    found: list[str] = []
    url: str | None = f"{AF_AGENTS}?view=full"
    while url is not None:
        answer = await wide.get(url)
        page = bounded(answer)
        assert page["total"] == 300
        assert len(page["agents"]) <= page["per_page"]
        found += [agent["id"] for agent in page["agents"]]
        url = answer.links["next"]["url"] if "next" in answer.links else None
    assert len(found) == len(set(found)) == 300


@pytest.mark.parametrize("page", [1, 2])
async def test_a_large_page_of_agent_framework_is_divided(wide: httpx2.AsyncClient, page: int) -> None:
    answer = await wide.get(f"{AF_AGENTS}?view=full&page={page}&per_page=150")
    body = bounded(answer)
    assert body["per_page"] < 150
    assert 150 % body["per_page"] == 0
    assert (body["page"] - 1) * body["per_page"] == (page - 1) * 150


@pytest.mark.long
async def test_a_batch_of_lines_that_are_answered_at_length_is_cut(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        answer = await made.admin().post("/api/v1/agents:batch", content=b"1\n" * 400_000)
    lines = answer.text.splitlines()
    assert len(answer.content) < limits.BATCH_ANSWER_BYTES + limits.MIB
    assert len(lines) < 400_000
    assert "not read" in lines[-1]
