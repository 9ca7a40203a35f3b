"""An outsider learns nothing about a thousand private agents from any face (THREATS V1, V2, P8).

Two services have the same past, keys and clock; one of them then gets a thousand private agents. Whatever an outsider asks
both is answered with the same bytes, and takes as long.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.service import Bench, profile, service
from waypost.model.principal import Principal
from waypost.registry.changes import Seen

PRIVATE = 1000
TAGS = ("translation", "invoice", "weather", "legal", "travel")
WORDS = ("falcon", "invoice", "weather report", "translate a contract", "book a journey", "helper")
SAMPLES = 1000
SIGNIFICANT = 0.001


def visible() -> list[dict[str, Any]]:
    chance = random.Random(5)
    return [
        profile(
            f"seen-{number:02d}",
            name=f"Helper {number}",
            description=f"Helps with {chance.choice(TAGS)} and a {chance.choice(WORDS)}.",
            tags=chance.sample(TAGS, 2),
            constraints={"region": chance.choice(("eu", "us"))},
            version="1.0",
        )
        for number in range(30)
    ]


def private() -> list[dict[str, Any]]:
    """Near to everything that is visible, and to what is asked."""
    chance = random.Random(7)
    return [
        profile(
            f"hidden-{number}",
            name=f"Helper {number % 40}",
            description=f"A falcon that helps with {chance.choice(TAGS)} and a {chance.choice(WORDS)}.",
            tags=[*chance.sample(TAGS, 2), "hush", chance.choice(TAGS)[:-1]],
            constraints={"region": chance.choice(("eu", "us", "asia"))},
            version="1.0",
        )
        for number in range(PRIVATE)
    ]


async def register(bench: Bench, subject: str, documents: list[dict[str, Any]], **headers: str) -> None:
    lines = "\n".join(json.dumps(document) for document in documents).encode()
    answer = await bench.as_(subject).post("/api/v1/agents:batch", content=lines, headers=headers)
    assert "error" not in answer.text, answer.text[:300]


@asynccontextmanager
async def twins(folder: Path) -> AsyncIterator[tuple[Bench, Bench]]:
    """Without and with the private agents."""
    async with service(folder / "without", store="sqlite", anonymous_read=True) as bench:
        await register(bench, "owner", visible())
        await bench.as_("owner").post("/api/v1/agents", json=profile("gone"))
        await bench.as_("owner").delete("/api/v1/agents/gone")
    shutil.copytree(folder / "without", folder / "with", ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    async with AsyncExitStack() as stack:
        pair = [
            await stack.enter_async_context(service(folder / name, store="sqlite", anonymous_read=True))
            for name in ("without", "with")
        ]
        await register(pair[1], "alice", private(), **{"Waypost-Visibility": "private"})
        await pair[1].as_("alice").post("/api/v1/agents/hidden-0:renew")
        await pair[1].as_("alice").delete("/api/v1/agents/hidden-1")
        for bench in pair:
            await bench.registry.searchable()
        yield pair[0], pair[1]


PATHS = (
    "/", "/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent-card", "/v1/card",
    "/.well-known/agent-card.json?agent=hidden-5", "/.well-known/agent-card?agent=hidden-5",
    "/.well-known/ai-catalog.json", "/schemas/profile.json", "/readyz",
    "/api/v1/agents", "/api/v1/agents?limit=7", "/api/v1/agents?tag=hush", "/api/v1/agents?tag=translatio",
    "/api/v1/agents?owner=alice", "/api/v1/agents?status=active", "/api/v1/agents/hidden-5", "/api/v1/agents/hidden-1",
    "/api/v1/agents/hidden-5:history", "/api/v1/agents/hidden-5:diff", "/api/v1/agents/hidden-5:verify",
    "/api/v1/agents/hidden-5?as=a2a", "/api/v1/agents:export", "/api/v1/agents:export?as=profile",
    "/api/v1/facets", "/api/v1/facets?tag=hus", "/api/v1/stats", "/api/v1/operations", "/api/v1/audit", "/api/v1/keys",
    "/api/v1/allow", "/metrics", "/openapi.json",
    "/profile/v1", "/profile/v1/agents", "/profile/v1/agents?limit=3", "/profile/v1/agents/hidden-5",
    "/.well-known/agentframework/v1/agents", "/.well-known/agentframework/v1/agents?page=2&per_page=7",
    "/.well-known/agentframework/v1/agents?q=falcon", "/.well-known/agentframework/v1/agents?tag=hush",
    "/.well-known/agentframework/v1/agents/hidden-5", "/.agent-framework/v1/agents", "/v1/agents",
    "/agents", "/agents?limit=4", "/agents?capability=hush", "/agents?signed=true", "/agents/hidden-5", "/agents/revocations",
)  # fmt: skip
QUESTIONS: tuple[dict[str, Any], ...] = (
    *({"query": word, "include_evidence": True, "limit": 20} for word in WORDS),
    *({"query": word, "required_tags": [tag]} for word in WORDS for tag in (*TAGS, "hush", "translatio")),
    {"query": "falcon", "facets": ["tag", "protocol", "status", "owner"]},
    {"query": "helper", "constraints": {"region": "asia"}},
    {"query": "helper", "preferred_tags": ["hush"], "excluded_tags": ["legal"], "min_score": 0.1},
    {"query": "helper", "client_context": {"domain": "hush", "region": "asia"}},
    {"query": "helper", "detail": "full"},
)


async def everything(client: httpx.AsyncClient) -> dict[str, Any]:
    """Every answer, with its headers, but for what is new each time."""
    found: dict[str, Any] = {}
    for path in PATHS:
        found[path] = comparable(await client.get(path, headers={"X-Request-Id": "r"}))
    for number, asked in enumerate(QUESTIONS):
        answer = await client.post("/profile/v1/discover", json=asked, headers={"X-Request-Id": "r"})
        found[f"discover {number} {asked}"] = comparable(answer)
    for params in (
        {"discovery_tags": ["hush"]},
        {"agent_id": "hidden-5"},
        {"discovery_query": {"text_search": "falcon"}},
    ):
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": params}
        found[f"rtfs {params}"] = comparable(await client.post("/rtfs", json=call, headers={"X-Request-Id": "r"}))
    found["walk"] = await walk(client)
    return found


_MOMENT = re.compile(r'"(generated_at|request_id|query_id|took_ms|elapsed_ms|latency_ms|timestamp)":("[^"]*"|[\d.]+)')


def comparable(answer: httpx.Response) -> tuple[int, list[tuple[str, str]], str]:
    return answer.status_code, sorted(answer.headers.items()), _MOMENT.sub(r'"\1":"…"', answer.text)


async def walk(client: httpx.AsyncClient) -> list[str]:
    """The pages of a list, cursors and all."""
    pages, cursor = [], None
    while True:
        params = {"limit": "7"} | ({"cursor": cursor} if cursor else {})
        answer = await client.get("/api/v1/agents", params=params)
        pages.append(answer.text)
        cursor = answer.json().get("next_cursor")
        if cursor is None:
            return pages


@pytest.mark.parametrize("outsider", ["bob", None])
async def test_no_byte_of_any_answer_tells_of_a_thousand_private_agents(tmp_path: Path, outsider: str | None) -> None:
    async with twins(tmp_path) as pair:
        clients = [bench.as_(outsider) if outsider else bench.anonymous() for bench in pair]
        without, with_them = [await everything(client) for client in clients]
        for asked, expected in without.items():
            assert with_them[asked] == expected, asked
        assert len((await pair[1].as_("alice").get("/api/v1/agents?limit=200")).json()["agents"]) == 200


async def test_no_event_tells_of_them(tmp_path: Path) -> None:
    async with twins(tmp_path) as pair:
        told = []
        for bench in pair:
            events: list[tuple[str, str, str, float]] = []
            stream = await bench.registry.watch(Principal(subject="bob"), "0", renewals=True)
            await bench.as_("owner").post("/api/v1/agents", json=profile("last"))
            async with asyncio.timeout(20):
                async for item in stream:
                    assert isinstance(item, Seen)
                    events.append((item.type, item.event.id, item.event.shown or item.event.etag, item.event.at))
                    if item.event.id == "last":
                        break
            told.append((events, len(item.cursor)))
        assert told[0] == told[1]


# --- Time ------------------------------------------------------------------------------------------


async def discover(client: httpx.AsyncClient, number: int) -> None:
    """Each question is new: an answer from memory would tell nothing."""
    asked = f"{WORDS[number % len(WORDS)]} {TAGS[number % len(TAGS)]} {number}"
    await client.post("/profile/v1/discover", json={"query": asked})


async def a_page(client: httpx.AsyncClient, number: int) -> None:
    await client.get("/api/v1/agents", params={"limit": 5 + number % 5})


async def not_found(client: httpx.AsyncClient, number: int) -> None:
    await client.get(f"/api/v1/agents/hidden-{2 + number % (PRIVATE - 2)}")


Ask = Callable[[httpx.AsyncClient, int], Awaitable[None]]


async def differences(pair: tuple[Bench, Bench], ask: Ask) -> tuple[np.ndarray, float]:
    """How much longer each question took with the private agents, in processor time, and how long one takes."""
    clients = [bench.as_("bob") for bench in pair]
    for number in range(20):
        for client in clients:
            await ask(client, SAMPLES + number)
    chance = random.Random(3)
    spent = np.zeros((SAMPLES, 2))
    gc.collect()
    gc.disable()
    try:
        for number in range(SAMPLES):
            for which in chance.sample((0, 1), 2):  # side by side, so that whatever else runs disturbs both
                began = time.process_time_ns()
                await ask(clients[which], number)
                spent[number, which] = time.process_time_ns() - began
    finally:
        gc.enable()
    return spent[:, 1] - spent[:, 0], float(np.median(spent[:, 0]))


def probability(found: np.ndarray) -> float:
    """How probable so large a difference is where there is none: signs are dealt out anew (a permutation test)."""
    dice = np.random.default_rng(1)
    measured = abs(np.median(found))
    signs = dice.integers(0, 2, size=(4000, len(found)), dtype=np.int8) * 2 - 1
    return float((1 + np.sum(np.abs(np.median(signs * found, axis=1)) >= measured)) / (len(signs) + 1))


@pytest.mark.parametrize("ask", [discover, a_page, not_found])
async def test_no_answer_takes_longer_for_them(tmp_path: Path, ask: Ask) -> None:
    """A difference that is there shows each time and in the same direction; one that is not may show once by chance, or
    because one of the two services lies better in memory. So the two are made anew before anything is believed."""
    directions = []
    for attempt in range(3):
        async with twins(tmp_path / str(attempt)) as pair:
            found, usual = await differences(pair, ask)
        shift = float(np.median(found))
        if probability(found) >= SIGNIFICANT and abs(shift) < 0.05 * usual:
            return
        directions.append(shift > 0)
    assert len(set(directions)) == 2, f"{ask.__name__} tells of private agents by its time"
