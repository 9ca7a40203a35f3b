"""Standing queries: a watcher with a query is told of agents that fit, and of no hidden ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.server_sent_events import EventStream, open_stream, read_events
from support.service import Bench, profile, service
from waypost import limits
from waypost.model.events import Event, EventType
from waypost.model.query import Match
from waypost.registry.change_log import WatchEvent
from waypost.registry.find.standing_query import StandingQuery

PATH = "/api/v1/watch"
WHALES = "count whales in satellite pictures"
FITTING = {"name": "Whale Counter", "description": "Counts whales in satellite pictures of the ocean."}
ALSO_FITTING = {
    "name": "Satellite Watcher",
    "description": "Finds and counts whales, in pictures that a satellite took.",
}
OTHER = {"name": "Bread Baker", "description": "Bakes bread at night."}
FILLERS = ("invoices", "weather", "tides", "chess", "contracts", "payroll", "maps", "recipes")


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {token}".encode())]


async def put(bench: Bench, agent_id: str, subject: str = "alice", visibility: str = "public", **members: Any) -> None:
    headers = {"Waypost-Visibility": visibility}
    answer = await bench.as_(subject).post("/api/v1/agents", json=profile(agent_id, **members), headers=headers)
    assert answer.status_code < 300, answer.text


async def fill(bench: Bench) -> None:
    """Other agents: a word that every agent has says nothing."""
    for topic in FILLERS:
        await put(bench, f"urn:x:{topic}", name=f"Agent for {topic}", description=f"Handles {topic} of all kinds.")


async def read(stream: EventStream) -> tuple[str, str, str | None]:
    event = await stream.next()
    assert event is not None
    assert event.type == event.data["type"]
    return event.type, event.data["id"], event.data.get("match")


async def test_only_agents_that_fit_are_reported_with_their_match(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench)
        app, token = bench.application.http_app, bench.token("bob")
        async with open_stream(app, PATH, bearer(token), query=WHALES) as stream:
            await put(bench, "urn:x:bread", **OTHER)
            await put(bench, "urn:x:whales", **FITTING)
            assert await read(stream) == ("registered", "urn:x:whales", "strong")
            await put(bench, "urn:x:bread", **ALSO_FITTING)  # now it fits
            assert await read(stream) == ("updated", "urn:x:bread", "strong")
            await put(bench, "urn:x:never", **OTHER)
            for name in ("urn:x:never", "urn:x:whales"):
                assert (await bench.as_("alice").delete(f"/api/v1/agents/{name}")).status_code == 204
            assert await read(stream) == ("withdrawn", "urn:x:whales", "strong")


async def test_min_match_chooses_what_is_reported(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench)
        app, token = bench.application.http_app, bench.token("bob")
        async with (
            open_stream(app, PATH, bearer(token), query=WHALES, min_match="weak") as every,
            open_stream(app, PATH, bearer(token), query=WHALES, min_match="strong") as best,
            open_stream(app, PATH, bearer(token), query="Bread Baker", include="agent") as named,
        ):
            await put(bench, "urn:x:pictures", name="Frames", description="Frames pictures, mirrors, maps and mosaics.")
            await put(bench, "urn:x:bread", **OTHER)
            await put(bench, "urn:x:whales", **FITTING)
            assert await read(every) == ("registered", "urn:x:pictures", "weak")
            assert await read(every) == ("registered", "urn:x:whales", "strong")
            assert await read(best) == ("registered", "urn:x:whales", "strong")
            event = await named.next()
            assert event is not None
            assert (event.data["match"], event.data["agent"]["name"]) == ("strong", "Bread Baker")


async def test_a_standing_query_resumes_after_its_cursor(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await fill(bench)
        app, token = bench.application.http_app, bench.token("bob")
        for at in range(3):
            await put(bench, f"urn:x:bread{at}", **OTHER)
            await put(bench, f"urn:x:whales{at}", **FITTING)
        first, second = await read_events(app, PATH, token, 2, **{"from": "0", "query": WHALES})
        (third,) = await read_events(app, PATH, token, 1, **{"from": second.cursor, "query": WHALES})
        assert [each.data["id"] for each in (first, second, third)] == [f"urn:x:whales{at}" for at in range(3)]


async def test_a_hidden_agent_is_not_reported(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await fill(bench)
        app = bench.application.http_app
        async with (
            open_stream(app, PATH, bearer(bench.token("bob")), query=WHALES) as bob,
            open_stream(app, PATH, [], query=WHALES) as stranger,
            open_stream(app, PATH, bearer(bench.token("alice")), query=WHALES) as owner,
        ):
            await put(bench, "urn:x:private", visibility="private", **FITTING)
            await put(bench, "urn:x:internal", visibility="internal", **FITTING)
            await put(bench, "urn:x:public", **FITTING)
            assert [(await read(owner))[1] for _ in range(3)] == ["urn:x:private", "urn:x:internal", "urn:x:public"]
            assert [(await read(bob))[1] for _ in range(2)] == ["urn:x:internal", "urn:x:public"]
            assert (await read(stranger))[1] == "urn:x:public"


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"query": " "}, "query"),
        ({"query": "x" * (limits.QUERY_CHARS + 1)}, "query"),
        ({"query": "x", "min_match": "good"}, "min_match"),
        ({"min_match": "weak"}, "min_match"),
    ],
)
async def test_an_invalid_standing_query_is_refused(tmp_path: Path, params: dict[str, str], path: str) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.as_("bob").get(PATH, params=params)
        assert (answer.status_code, answer.json()["path"]) == (400, path)


async def test_the_standing_queries_of_one_subject_are_limited(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        opened = [
            open_stream(bench.application.http_app, PATH, bearer(bench.token("bob")), query=WHALES)
            for _ in range(limits.STANDING_QUERIES_PER_SUBJECT)
        ]
        for each in opened:
            await each.__aenter__()
        try:
            refused = await bench.as_("bob").get(PATH, params={"query": WHALES})
            assert (refused.status_code, "standing queries" in refused.json()["message"]) == (429, True)
        finally:
            for each in opened:
                await each.__aexit__(None, None, None)


# --- The filter alone -----------------------------------------------------------------------------


def event(agent_id: str, kind: EventType = "registered", revision: int = 1) -> WatchEvent:
    made = Event(revision=revision, type=kind, id=agent_id, at=0.0, etag="", owner="alice", visibility="public")
    return WatchEvent(f"c{revision}", kind, made)


class Matcher:
    """Every agent fits; counts the searches."""

    def __init__(self) -> None:
        self.searches: list[list[str]] = []
        self.unembedded = 0

    async def match(self, ids: Any) -> dict[str, Match]:
        self.searches.append(list(ids))
        return dict.fromkeys(ids, "possible")

    def lacks_vectors(self, ids: Any) -> bool:
        self.unembedded -= 1
        return self.unembedded >= 0


async def test_a_batch_of_events_is_one_search() -> None:
    matcher = Matcher()
    query = StandingQuery(matcher.match, matcher.lacks_vectors)
    found = await query.select([event("a"), event("b"), event("a", "updated", 2)], is_behind=True)
    assert matcher.searches == [["a", "b"]]
    assert [(each.event.id, each.match) for each in found] == [("a", "possible"), ("b", "possible"), ("a", "possible")]


async def test_a_reader_that_has_caught_up_waits_for_vectors() -> None:
    matcher = Matcher()
    matcher.unembedded = 3
    await StandingQuery(matcher.match, matcher.lacks_vectors).select([event("a")], is_behind=False)
    assert matcher.unembedded < 0
    matcher.unembedded = 3
    await StandingQuery(matcher.match, matcher.lacks_vectors).select([event("a")], is_behind=True)
    assert matcher.unembedded == 3


async def test_reported_agents_are_bounded() -> None:
    matcher = Matcher()
    query = StandingQuery(matcher.match, matcher.lacks_vectors, max_reported=2)
    await query.select([event("a"), event("b"), event("c")], is_behind=True)
    gone = await query.select([event(name, "withdrawn") for name in ("a", "b", "c")], is_behind=True)
    assert [each.event.id for each in gone] == ["b", "c"]
