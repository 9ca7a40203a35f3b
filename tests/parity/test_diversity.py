"""Copies of one agent do not fill a result, in any API, unless diversity is off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.apis import Caller, serve_apis
from support.service import profile

ASKED = "convert currencies between euro and dollar"
COPIES = 12


def copies() -> list[dict[str, Any]]:
    """One agent and copies of it with small edits."""
    said = "Converts currencies such as euro and dollar by the daily exchange rates of central banks{}."
    edits = ("", " now", " quickly", " today", " for everyone", " at once")
    return [
        profile(f"copy-{number}", name=f"Converter {number}", description=said.format(edits[number % len(edits)]))
        for number in range(COPIES)
    ]


def others() -> list[dict[str, Any]]:
    fields = ("coins", "stamps", "shares", "bonds", "gold", "fuel", "energy", "time zones", "shoe sizes", "recipes")
    return [
        profile(f"other-{at}", name=f"All about {field}", description=f"Answers what a euro buys in {field}, and why.")
        for at, field in enumerate(fields)
    ]


async def answers(caller: Caller, *, diversity: bool) -> dict[str, list[str]]:
    """The ids of the ten best, by each API."""
    asked = {"query": ASKED, "limit": 10} | ({} if diversity else {"diversity": False})
    by_http = (await caller.http.post("/profile/v1/discover", json=asked)).json()
    async with caller.client() as client:
        by_client = await client.find(ASKED, diversity=diversity)
    with caller.sync_client() as sync:
        by_sync = await asyncio.to_thread(sync.find, ASKED, diversity=diversity)
    flags = () if diversity else ("--all-similar",)
    ran = await caller.run("find", ASKED, "-o", "json", *flags)
    return {
        "HTTP": [hit["id"] for hit in by_http["candidates"]],
        "Client": [hit.id for hit in by_client.candidates],
        "SyncClient": [hit.id for hit in by_sync.candidates],
        "command": [hit["id"] for hit in ran.json["candidates"]],
    }


@pytest.mark.req("PRO-57")
async def test_at_most_two_duplicates_are_in_the_top_ten_unless_diversity_is_off(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        for number, document in enumerate([*copies(), *others()]):
            owner = apis.subject(f"owner-{number}")
            assert (await owner.http.post("/api/v1/agents", json=document)).status_code == 201
            apis.bench.clock.advance(60)
        bob = apis.subject("bob")
        spread = await answers(bob, diversity=True)
        assert all(found == spread["HTTP"] for found in spread.values()), spread
        assert len(spread["HTTP"]) == 10
        assert sum(agent_id.startswith("copy-") for agent_id in spread["HTTP"]) == 2
        assert "copy-0" in spread["HTTP"][:2]  # the one that was there first
        plain = await answers(bob, diversity=False)
        assert all(found == plain["HTTP"] for found in plain.values()), plain
        assert all(agent_id.startswith("copy-") for agent_id in plain["HTTP"])


@pytest.mark.req("PRO-26")
async def test_candidates_are_in_the_order_of_their_scores(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        for number, document in enumerate([*copies(), *others()]):
            owner = apis.subject(f"owner-{number}")
            assert (await owner.http.post("/api/v1/agents", json=document)).status_code == 201
        asked = {"query": ASKED, "limit": 50, "include_evidence": True}
        found = (await apis.subject("bob").http.post("/profile/v1/discover", json=asked)).json()["candidates"]
        assert sum(hit["id"].startswith("copy-") for hit in found) == COPIES
        assert sum(hit["id"].startswith("copy-") for hit in found[:10]) == 2
        scores = [hit["score"] for hit in found]
        assert scores == sorted(scores, reverse=True)
        for hit in found:  # the components explain the score that is shown
            assert abs(sum(hit["score_components"].values()) - hit["score"]) < 0.001


async def test_a_preference_does_not_bring_the_copies_back(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        for number, document in enumerate([*copies(), *others()]):
            owner = apis.subject(f"owner-{number}")
            stated = {"constraints": {"region": "eu"}} if document["id"].startswith("copy-") else {}
            assert (await owner.http.post("/api/v1/agents", json=document | stated)).status_code == 201
        asked = {"query": ASKED, "limit": 10, "client_context": {"region": "eu"}}
        found = (await apis.subject("bob").http.post("/profile/v1/discover", json=asked)).json()["candidates"]
        assert sum(hit["id"].startswith("copy-") for hit in found) == 2


async def test_diversity_is_a_boolean(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        asked = {"query": ASKED, "diversity": "no"}
        answer = await apis.subject("bob").http.post("/profile/v1/discover", json=asked)
        assert (answer.status_code, answer.json()["path"]) == (400, "$.diversity")
