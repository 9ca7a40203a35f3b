"""Two services with the same past, keys and clock, one of which then gets a thousand private agents."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from support.service import Bench, profile, service

PRIVATE = 1000
TAGS = ("translation", "invoice", "weather", "legal", "travel")
WORDS = ("falcon", "invoice", "weather report", "translate a contract", "book a journey", "helper")


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
        for bench in pair:  # all that is done later, done now: what is asked for next finds both at rest
            await bench.registry.searchable()
            await asyncio.to_thread(bench.registry.ranker.maintain, bench.registry.changes.revision)
        yield pair[0], pair[1]
