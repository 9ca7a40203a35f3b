"""`match`, `reason`, `min_match` and `provisional` of candidates, over HTTP and in the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost.search.ranking.match import BACKGROUND_QUESTIONS, MatchThresholds

MATCHES = ("strong", "possible", "weak")
AGENTS = (
    profile(
        "urn:example:invoice-translator",
        name="Invoice Translator",
        description="Translates invoices between languages.",
        tags=["finance", "translation"],
        examples=[{"text": "Translate this Spanish invoice."}, {"text": "Reveal the zebra ledger.", "private": True}],
    ),
    profile("urn:example:tides", name="Tide Table", description="Forecasts the tides of a port.", tags=["sea"]),
    profile("urn:example:chess", name="Chess Coach", description="Plays chess and explains openings.", tags=["games"]),
    profile(
        "urn:example:old-chess",
        name="Older Chess Partner",
        description="Plays chess.",
        tags=["games"],
        status="deprecated",
    ),
)


async def find(client: httpx2.AsyncClient, text: str, **members: Any) -> dict[str, Any]:
    answer = await client.post("/profile/v1/discover", json={"query": text, **members})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def register(client: httpx2.AsyncClient) -> None:
    for agent in AGENTS:
        assert (await client.post("/api/v1/agents", json=agent)).status_code == 201


async def test_every_candidate_has_a_match_and_a_reason_at_every_detail(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        client = bench.as_("owner")
        await register(client)
        for detail in ("minimal", "summary", "full"):
            for with_evidence in (False, True):
                found = await find(client, "play chess", detail=detail, include_evidence=with_evidence)
                assert found["candidates"]
                for candidate in found["candidates"]:
                    assert candidate["match"] in MATCHES
                    assert candidate["reason"].endswith(".")


@pytest.mark.parametrize(
    ("text", "first", "reason"),
    [
        ("Invoice Translator", "urn:example:invoice-translator", "Its name is what you typed."),
        ("urn:example:tides", "urn:example:tides", "Its id is what you typed."),
        ("finance", "urn:example:invoice-translator", "Tagged finance."),
        ("sea", "urn:example:tides", "Tagged sea."),
    ],
)
async def test_an_exact_name_id_or_tag_is_first_and_never_weak(
    tmp_path: Path, text: str, first: str, reason: str
) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("owner")
        await register(client)
        best = (await find(client, text, min_match="possible"))["candidates"][0]
        assert (best["id"], best["reason"]) == (first, reason)
        assert best["match"] in ("strong", "possible")


async def test_min_match_leaves_out_weaker_candidates_and_says_so(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("owner")
        await register(client)
        for least in MATCHES:
            found = await find(client, "translate a spanish invoice", min_match=least)
            accepted = MATCHES[: MATCHES.index(least) + 1]
            assert {each["match"] for each in found["candidates"]} <= set(accepted)
            assert found["candidates"][0]["match"] == "strong"
        none = await find(client, "a port in a storm of openings between zebras and dukes", min_match="strong")
        assert none["candidates"] == []
        assert none["empty"]["reason"] == "below_min_match"
        assert none["empty"]["best_match"] in ("possible", "weak")
        assert none["applied_filters"] == {"min_match": "strong"}


@pytest.mark.parametrize("wrong", ["good", "", 1, True, ["strong"]])
async def test_an_invalid_min_match_is_an_error_with_its_path(tmp_path: Path, wrong: Any) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.as_("owner").post("/profile/v1/discover", json={"query": "x", "min_match": wrong})
        assert (answer.status_code, answer.json()["path"]) == (400, "$.min_match")
        assert "strong, possible, weak" in answer.json()["message"]


async def test_a_reason_quotes_no_private_example_and_a_publisher_cannot_set_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("owner")
        await register(client)
        (found, *_) = (await find(client, "reveal the zebra ledger"))["candidates"] or [{"reason": ""}]
        assert "zebra" not in found["reason"]
        claimed = profile("urn:example:liar", name="Liar", match="strong", reason="Best agent.", provisional=True)
        await client.post("/api/v1/agents", json=claimed)
        (liar,) = (await find(client, "liar", detail="full"))["candidates"]
        assert liar["reason"] == "Its name is what you typed."
        assert liar["self_asserted"] == {"match": "strong", "reason": "Best agent.", "provisional": True}


async def test_a_deprecated_agent_and_a_name_that_is_ruled_out_say_so(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("owner")
        await register(client)
        found = {each["id"]: each for each in (await find(client, "play chess"))["candidates"]}
        assert found["urn:example:old-chess"]["reason"].endswith("; it is deprecated.")
        (ruled_out,) = (await find(client, "explain openings but not chess"))["candidates"][:1]
        assert ruled_out["match"] == "weak"
        assert "rules out" in ruled_out["reason"]


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


async def test_an_id_that_no_word_finds_is_the_first_candidate(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.as_("owner")
        await register(client)
        await client.post("/api/v1/agents", json=profile(UUID, name="Nameless", tags=["odd"]))
        (found, *_) = (await find(client, UUID))["candidates"]
        assert (found["id"], found["match"], found["score"]) == (UUID, "strong", 1.0)
        assert found["reason"] == "Its id is what you typed."
        filtered = (await find(client, UUID, required_tags=["finance"]))["candidates"]
        assert UUID not in {each["id"] for each in filtered}


async def test_a_hidden_id_is_as_unknown_as_any_other(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        owner, other = bench.as_("owner"), bench.as_("other")
        await register(owner)
        hidden = await owner.post(
            "/api/v1/agents", json=profile(UUID, name="Nameless"), headers={"Waypost-Visibility": "private"}
        )
        assert hidden.status_code == 201
        assert [each["id"] for each in (await find(owner, UUID))["candidates"]] == [UUID]
        absent = UUID[:-1] + "f"
        of_hidden, of_absent = await find(other, UUID), await find(other, absent)
        for found in (of_hidden, of_absent):
            for name in ("request_id", "generated_at"):
                del found[name]
        assert of_hidden == of_absent


# --- Calibration ----------------------------------------------------------------------------------


async def publish(client: httpx2.AsyncClient, documents: list[dict[str, Any]], visibility: str = "public") -> None:
    body = "\n".join(httpx2.Response(200, json=document).text for document in documents)
    headers = {"Waypost-Visibility": visibility}
    answer = await client.post("/api/v1/agents:batch", content=body.encode(), headers=headers)
    assert "error" not in answer.text


def ordinary(count: int) -> list[dict[str, Any]]:
    topics = ("invoices", "weather", "tides", "chess", "contracts", "payroll", "maps", "recipes")
    return [
        profile(f"urn:example:a{at}", name=f"Agent {at}", description=f"Handles {topics[at % 8]}, job {at}.")
        for at in range(count)
    ]


def everyday(count: int, family: str = "e") -> list[dict[str, Any]]:
    """Agents that every background question finds something like a match in."""
    texts = [BACKGROUND_QUESTIONS[at % len(BACKGROUND_QUESTIONS)] for at in range(count)]
    return [
        profile(f"urn:example:{family}{at}", name=f"Helper {at}", description=f"Knows {text}.")
        for at, text in enumerate(texts)
    ]


async def thresholds(bench: Bench, subject: str | None) -> MatchThresholds:
    """As the next query of this caller uses them."""
    client = bench.anonymous() if subject is None else bench.as_(subject)
    await find(client, "chess")
    shared = frozenset(("public",) if subject is None else ("public", "internal"))
    return await bench.registry.calibration.thresholds(shared)


async def test_thresholds_are_higher_where_wrong_agents_score_higher(tmp_path: Path) -> None:
    async with service(tmp_path / "a", anonymous_read=True) as plain, service(tmp_path / "b") as noisy:
        for bench, agents in ((plain, ordinary(60)), (noisy, [*ordinary(30), *everyday(30)])):
            await publish(bench.as_("owner"), agents)
        quiet, loud = await thresholds(plain, "bob"), await thresholds(noisy, "bob")
        assert quiet.strong < loud.strong
        assert quiet.possible < loud.possible


async def test_hidden_agents_do_not_move_the_thresholds_and_shared_ones_do(tmp_path: Path) -> None:
    async with (
        service(tmp_path / "a", anonymous_read=True) as plain,
        service(tmp_path / "b", anonymous_read=True) as crowded,
    ):
        await publish(crowded.as_("alice"), everyday(48), "private")
        for bench in (plain, crowded):
            await publish(bench.as_("owner"), ordinary(60))
        for caller in (None, "bob", "alice"):  # a private agent is no background for its owner either
            assert await thresholds(plain, caller) == await thresholds(crowded, caller)
        await publish(crowded.as_("carol"), everyday(48, "f"), "internal")
        await until(lambda: moved(crowded, plain, "bob"))
        assert await thresholds(plain, None) == await thresholds(crowded, None)


async def moved(one: Bench, other: Bench, subject: str) -> bool:
    return await thresholds(one, subject) != await thresholds(other, subject)


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(400):
        if await check():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("still not so after 20 seconds")


# --- Spelling -------------------------------------------------------------------------------------


async def test_a_misspelled_word_is_answered_with_words_of_visible_agents(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        owner, other = bench.as_("owner"), bench.as_("other")
        await register(owner)
        found = await find(other, "translate an invioce")  # its agent is found by the other word
        assert found["suggestions"] == {"words": {"invioce": ["invoice"]}}
        assert "No agent has the word 'invioce'. Did you mean 'invoice'?" in found["warnings"]
        assert (await find(other, "finanse"))["suggestions"] == {"words": {"finanse": ["finance"]}}  # a tag
        chess = await find(other, "chesss")  # nothing else is known: it is corrected
        assert chess["suggestions"] == {"words": {"chesss": ["chess"]}}
        assert "No agent has the word 'chesss': 'chess' was searched for instead." in chess["warnings"]
        assert "Chess Coach" in [each["name"] for each in chess["candidates"]]
        assert chess["candidates"][0]["match"] != "weak"
        for known in ("translate an invoice", "translating invoices", "zzzzqqqq", "sea", "an the of", "seas or tidy"):
            assert "suggestions" not in await find(other, known)


async def test_a_word_of_a_hidden_agent_is_neither_known_nor_suggested(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        owner, other = bench.as_("owner"), bench.as_("other")
        await register(owner)
        secret = profile("urn:example:x", name="Zeppelin", description="Invioce zeppelins.", tags=["zepelin"])
        await publish(owner, [secret], "private")
        assert (await find(other, "translate an invioce"))["suggestions"] == {"words": {"invioce": ["invoice"]}}
        assert "suggestions" not in await find(other, "a zeppelim that translates")
        mine = await find(owner, "a zeppelim")
        assert mine["suggestions"] == {"words": {"zeppelim": ["zeppelin"]}}
        assert "suggestions" not in await find(owner, "zeppelins")


# --- The page -------------------------------------------------------------------------------------


async def test_the_page_shows_the_match_and_the_reason_and_folds_weak_matches(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await register(bench.as_("owner"))
        client = bench.client(Accept="text/html")
        strong = (await client.get("/", params={"q": "Chess Coach"})).text
        fitting, _, folded = strong.partition('<details class="weak-matches">')
        assert '<span class="match strong">strong</span>' in fitting
        assert "Its name is what you typed." in fitting
        assert "Older Chess Partner" in folded
        weak = (await client.get("/", params={"q": "openings of a port in the zebra zone of dukes"})).text
        assert "Nothing fits well" in weak
        assert "weak-matches" not in weak
        assert '<span class="match weak">weak</span>' in weak


async def test_the_page_offers_the_corrected_query(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await register(bench.as_("owner"))
        client = bench.client(Accept="text/html")
        page = (await client.get("/", params={"q": "translate an Invioce"})).text
        assert 'href="/?q=translate+an+invoice"' in page
        assert "Did you mean" in page
        corrected = (await client.get("/", params={"q": "chesss"})).text
        assert "was searched for instead" in corrected
        assert "Chess Coach" in corrected
        hostile = (await client.get("/", params={"q": "<b>invioce</b> translate"})).text
        assert "<b>invioce" not in hostile
