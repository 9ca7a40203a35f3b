"""Many similar hidden agents change no byte of an outsider's results (THREATS V1)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx2

from support.sentence_model_service import WITH_MODEL, settled, share_models
from support.service import Bench, profile, service
from waypost.search.ranking.match import BACKGROUND_QUESTIONS

TAGS = ("translation", "translator", "invoice", "finance", "weather", "legal", "health", "travel")
VISIBLE = 24
HIDDEN = 150


def visible() -> list[dict[str, Any]]:
    chance = random.Random(11)
    return [
        profile(
            f"seen-{number}",
            name=f"Helper {number}",
            description=f"Helps with {chance.choice(TAGS)} and {chance.choice(TAGS)}, job {number}.",
            tags=chance.sample(TAGS, 2),
            constraints={"region": chance.choice(("eu", "us")), "latency_ms_p95": chance.randrange(10, 900)},
        )
        for number in range(VISIBLE)
    ]


def hidden(count: int = HIDDEN) -> list[dict[str, Any]]:
    """Their tags are closer to the misspelt ones than visible tags, and more frequent."""
    near = [tag[:-1] for tag in TAGS] + [f"{tag}s" for tag in TAGS] + ["transaltion", "invioce", "wether"]
    chance = random.Random(13)
    return [
        profile(
            f"hidden-{number}",
            name="Helper",
            description=f"Helps with {' '.join(TAGS)}. Knows {BACKGROUND_QUESTIONS[number % len(BACKGROUND_QUESTIONS)]}.",
            tags=chance.sample(near, 4) + chance.sample(TAGS, 2),
            constraints={"region": "eu", "latency_ms_p95": 1, "cost": "free", "languages": ["de"]},
            auth={"required": False},
        )
        for number in range(count)
    ]


def questions() -> list[dict[str, Any]]:
    every = ["tag", "protocol", "status", "owner"]
    asked: list[dict[str, Any]] = []
    for word in ("transaltion", "invioce", "wether", "helath", "trav", "nothing"):
        asked.append({"query": "help", "required_tags": [word], "facets": every})
        asked.append({"query": f"{word} job", "preferred_tags": [word], "excluded_tags": ["legl"], "facets": every})
    for constraints in (
        {"region": "eu"},
        {"max_latency_ms": 50},
        {"cost": 1, "region": "us"},
        {"language": "de"},
        {"auth": "none"},
        {"max_results_age_seconds": 10},
    ):
        asked.append({"query": "weather", "constraints": constraints, "include_evidence": True, "facets": ["tag"]})
    asked.append({"query": "finance", "min_score": 0.99})
    for least in ("strong", "possible", "weak"):
        for text in ("help with weather and travel", "a job in finance", "who translates", BACKGROUND_QUESTIONS[0]):
            asked.append({"query": text, "min_match": least})
    asked.append({"query": "legal travel", "client_context": {"region": "eu", "domain": "legal", "locale": "de"}})
    return asked


async def fill(bench: Bench, documents: list[dict[str, Any]], visibility: str) -> None:
    body = "\n".join(httpx2.Response(200, json=document).text for document in documents).encode()
    headers = {"Waypost-Visibility": visibility}
    answer = await bench.as_("alice").post("/api/v1/agents:batch", content=body, headers=headers)
    assert "error" not in answer.text


async def answers(client: httpx2.AsyncClient) -> list[str]:
    headers = {"X-Request-Id": "r"}
    told = [(await client.post("/profile/v1/discover", json=each, headers=headers)).text for each in questions()]
    for path in ("/api/v1/facets", "/api/v1/facets?tag=transaltion", "/api/v1/agents?tag=invioce"):
        told.append((await client.get(path, headers=headers)).text)
    return told


async def test_a_crowd_of_hidden_agents_moves_no_byte_of_an_answer(tmp_path: Path) -> None:
    async with service(tmp_path / "without") as without, service(tmp_path / "with") as crowded:
        await fill(crowded, hidden(), "private")
        for bench in (without, crowded):
            await fill(bench, visible(), "public")
        expected, found = await answers(without.as_("bob")), await answers(crowded.as_("bob"))
        for asked, one, other in zip([*questions(), "", "", ""], expected, found, strict=True):
            assert one == other, asked
        assert any('"suggestions"' in text for text in expected)
        assert (await answers(crowded.as_("alice"))) != expected


async def test_a_thousand_hidden_agents_do_not_change_scores_of_the_sentence_model(
    tmp_path: Path, models: Path
) -> None:
    """The hidden ones come before, between and after the others, so that the two services fold and embed at other times."""
    plain, crowd = share_models(tmp_path / "without", models), share_models(tmp_path / "with", models)
    options = WITH_MODEL | {"agents_per_owner": 0}
    async with service(plain, **options) as without, service(crowd, **options) as crowded:
        many = hidden(1000)
        await fill(crowded, many[:400], "private")
        await settled(crowded)
        for bench in (without, crowded):
            await fill(bench, visible()[:12], "public")
        await fill(crowded, many[400:700], "private")
        for bench in (without, crowded):
            await fill(bench, visible()[12:], "public")
        await fill(crowded, many[700:], "private")
        for bench in (without, crowded):
            await settled(bench)
        expected, found = await answers(without.as_("bob")), await answers(crowded.as_("bob"))
        for asked, one, other in zip([*questions(), "", "", ""], expected, found, strict=True):
            assert one == other, asked
