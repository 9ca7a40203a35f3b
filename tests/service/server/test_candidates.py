"""The candidates of a discovery response: current after every change, in the requested detail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from support.service import profile, service


async def found(client: httpx2.AsyncClient, text: str, **members: Any) -> list[dict[str, Any]]:
    """The candidates without their scores."""
    answer = await client.post("/profile/v1/discover", json={"query": text, **members})
    assert answer.status_code == 200, answer.text
    return [{name: value for name, value in each.items() if name != "score"} for each in answer.json()["candidates"]]


async def test_candidates_show_the_current_record(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        client = bench.as_("owner")
        for name in ("one", "two"):
            await client.post("/api/v1/agents", json=profile(name, description="Forecasts the weather."))
        first = await found(client, "weather forecast")
        assert await found(client, "weather, and a forecast") == first  # reasons name words as the query does
        assert sorted(each["id"] for each in first) == ["one", "two"]
        updated = profile("one", description="Forecasts the weather and the tides.", version="2.0")
        assert (await client.post("/api/v1/agents", json=updated)).status_code == 200
        shown = {each["id"]: each["description"] for each in await found(client, "the weather, a forecast")}
        assert shown == {"one": "Forecasts the weather and the tides.", "two": "Forecasts the weather."}
        await client.post("/api/v1/agents/two:renew", json={"ttl_seconds": 600})
        renewed = {each["id"]: each["freshness"] for each in await found(client, "forecast weather")}
        assert ["expires_at" in renewed[name] for name in ("one", "two")] == [False, True]
        await client.delete("/api/v1/agents/two")
        assert [each["id"] for each in await found(client, "weather")] == ["one"]


async def test_each_detail_has_its_members(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        client = bench.as_("owner")
        await client.post("/api/v1/agents", json=profile("one", description="Forecasts the weather."))
        for text in ("weather forecast", "forecast weather"):
            (brief,) = await found(client, text, detail="minimal")
            (full,) = await found(client, text, detail="full")
            (redacted,) = await found(bench.anonymous(), text, detail="full")
            assert ("description" in brief, "redacted" in full, redacted["redacted"]) == (False, False, True)
            told = (await bench.anonymous().post("/profile/v1/discover", json={"query": text, "detail": "full"})).json()
            assert told["warnings"] == ["detail=full needs a token: candidates are redacted"]
