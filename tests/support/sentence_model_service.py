"""A service with the default sentence model. The decoded model is shared, so that only the first test decodes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from bench.sets import ndjson

from support.service import Bench
from waypost.model.registration import Registration

WITH_MODEL: dict[str, Any] = {"store": "sqlite", "embedder": "use"}


def share_models(data: Path, models: Path) -> Path:
    """A data folder that shares the models of the test run."""
    data.mkdir(parents=True, exist_ok=True)
    (data / "models").symlink_to(models, target_is_directory=True)
    return data


async def fill(client: httpx2.AsyncClient, agents: list[Registration], visibility: str = "public") -> None:
    headers = {"Waypost-Visibility": visibility}
    answer = await client.post("/api/v1/agents:batch", content=ndjson(agents), headers=headers)
    assert answer.status_code == 200
    assert '"outcome"' in answer.text
    assert "error" not in answer.text


async def pending(bench: Bench) -> int:
    told: int = (await bench.admin().get("/api/v1/stats")).json()["indexing_pending"]
    return told


async def settled(bench: Bench) -> list[int]:
    """Wait until the model is loaded and every vector is computed; return the values of `indexing_pending` meanwhile."""
    models = bench.application.models
    await asyncio.to_thread(models.load)
    counts = [await pending(bench)]
    async with asyncio.timeout(300):  # two thousand texts, on a machine that is busy
        while not all(space.embedder.is_ready for space in models.choice.spaces):
            await asyncio.sleep(0.02)
        while counts[-1]:
            await asyncio.sleep(0.02)
            counts.append(await pending(bench))
    return counts
