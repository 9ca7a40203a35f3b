"""How candidates are found and scored (profile.md §6, §7, §14)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.onnx_folder import write_model
from support.sentence_model_service import WITH_MODEL, settled, share_models
from support.service import profile, service

ODD_JOBS = profile(
    "odd-jobs",
    name="Odd jobs",
    description="A helper with skills that have nothing to do with each other.",
    examples=[
        {"id": "organ", "text": "Tune the pipes of a church organ after the heating season."},
        {"id": "beetle", "text": "Identify the beetle that leaves round holes in an oak cupboard."},
        {"id": "ballast", "text": "Work out how much ballast a sailing dinghy needs in strong wind."},
        {"id": "menu", "text": "Design a wedding menu for a guest with a nut allergy."},
    ],
)
OTHERS = [
    profile("carpenter", name="Carpenter", description="Builds furniture and repairs chairs and tables."),
    profile("sailor", name="Harbour", description="Tells tides and free berths in harbours."),
    profile("cook", name="Recipes", description="Finds recipes for the ingredients in your fridge."),
    profile("musician", name="Playlists", description="Makes playlists of songs for a mood."),
]


async def put(client: httpx2.AsyncClient, *documents: dict[str, Any]) -> None:
    for document in documents:
        answer = await client.post("/api/v1/agents", json=document)
        assert answer.status_code == 201, answer.text


async def discover(client: httpx2.AsyncClient, query: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/profile/v1/discover", json={"query": query, "include_evidence": True, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("PRO-33", "PRO-37")
@pytest.mark.parametrize(
    ("query", "example"),
    [
        ("which insect bores holes into old oak furniture", "beetle"),
        ("how heavy should the ballast of a small sailing boat be when it blows hard", "ballast"),
        ("wedding dinner for somebody who must not eat nuts", "menu"),
        ("get the organ of our church in tune again", "organ"),
    ],
)
async def test_one_example_that_fits_is_enough_however_different_the_others_are(
    tmp_path: Path, models: Path, query: str, example: str
) -> None:
    async with service(share_models(tmp_path / "data", models), **WITH_MODEL) as bench:
        client = bench.as_("alice")
        await put(client, ODD_JOBS, *OTHERS)
        await settled(bench)
        best = (await discover(client, query))["candidates"][0]
        assert best["id"] == "odd-jobs"
        assert best["matched_examples"][0]["id"] == example
        assert best["score_components"]["example"] > 0


@pytest.mark.req("PRO-34")
async def test_a_score_is_a_mix_of_signals_each_of_which_can_raise_it(tmp_path: Path, models: Path) -> None:
    async with service(share_models(tmp_path / "data", models), **WITH_MODEL) as bench:
        client = bench.as_("alice")
        plain = {"name": "Rain", "description": "Tells where it rains today."}
        await put(
            client,
            profile("plain", **plain),
            profile("tagged", **plain, tags=["weather"]),
            profile("shown", **plain, examples=[{"text": "Do I need an umbrella in Lisbon tomorrow?"}]),
        )
        await settled(bench)
        query = "where does it rain today: do I need an umbrella in Lisbon?"
        scores = {hit["id"]: hit["score"] for hit in (await discover(client, query))["candidates"]}
        assert scores["shown"] > scores["plain"]
        found = await discover(client, query, preferred_tags=["weather"])
        wished = {hit["id"]: hit["score"] for hit in found["candidates"]}
        assert wished["tagged"] > wished["plain"]
        components = {hit["id"]: hit["score_components"] for hit in found["candidates"]}
        assert {"words", "context", "example", "tag"} <= components["shown"].keys()


@pytest.mark.req("PRO-32")
async def test_without_its_sentence_model_a_service_reports_partial_results(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.onnx").write_bytes(b"damaged")
    async with service(tmp_path / "data", embedder=f"onnx:{folder}") as bench:
        bench.application.warm_up()
        async with asyncio.timeout(30):
            while not bench.application.models.choice.failures:
                await asyncio.sleep(0.01)
        client = bench.as_("alice")
        await put(client, *OTHERS)
        found = await discover(client, "repairs chairs")
        assert [hit["id"] for hit in found["candidates"]] == ["carpenter"]
        assert any("sentence model" in warning for warning in found["warnings"])


@pytest.mark.req("PRO-29", "PRO-14")
async def test_derived_members_are_distinguished_from_published_ones(tmp_path: Path) -> None:
    """A derived description is named in the record; a tag that matches only as a synonym is in `expanded_tags`."""
    async with service(tmp_path / "data") as bench:
        client = bench.as_("alice")
        await put(client, profile("lawyer", description="Reads contracts.", tags=["legal"]))
        found = await discover(client, "contract", preferred_tags=["law"])
        candidate = found["candidates"][0]
        assert candidate["expanded_tags"] == ["legal"]
        assert "matched_tags" not in candidate or candidate["matched_tags"] == []
        bare = {
            "id": "bare",
            "name": "Okapi keeper",
            "version": "1.0.0",
            "summary": "Feeds okapis.",
            "endpoints": [{"method": "POST", "path": "/v1/ask"}],
        }
        answer = await client.post("/api/v1/agents?dialect=af&base=https://a.example", json=bare)
        assert answer.status_code == 201, answer.text
        held = (await client.get(answer.headers["location"])).json()
        assert "description" in held["org.waypost.derived"]


@pytest.mark.req("PRO-57")
async def test_stuffed_tags_and_repeated_words_bring_an_agent_no_further(tmp_path: Path) -> None:
    words = ("weather", "travel", "finance", "legal", "health", "music", "code", "recipe", "sport", "news", "maps")
    honest = profile("honest", name="Forecast", description="Forecasts the weather of a city.", tags=["weather"])
    loud = "weather forecast " * 60
    async with service(tmp_path / "data") as bench:
        client = bench.as_("alice")
        await put(
            client,
            honest,
            profile(
                "stuffed",
                name="All",
                description="Does all.",
                tags=[f"{word}-{n}" for word in words for n in "123"][:32],
            ),
            profile("loud", name="Loud", description=loud),
            profile("unseen", name="Unseen", description=f"Sells shoes. <!-- {loud} -->"),
        )
        for query in ("weather forecast", "weather forecast of my city", "weather"):
            found = await discover(client, query)
            assert found["candidates"][0]["id"] == "honest"
            assert "unseen" not in [hit["id"] for hit in found["candidates"]]
