"""Repeated queries are answered from the cache, but never with outdated results."""

from __future__ import annotations

from support.agents import PUBLIC, agent, ids, opened
from waypost.model.query import Query, Ranking
from waypost.search.ranker import HybridRanker

WEATHER = Query(text="weather")


class LivenessFilter:
    """Who lives, as a catalog tells it: by a method."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.asked = 0

    def is_alive(self, agent_id: str) -> bool:
        self.asked += 1
        return agent_id not in self.dead


def ask(ranker: HybridRanker, house: LivenessFilter, query: Query = WEATHER, now: float = 0.0) -> Ranking:
    return ranker.rank(query, PUBLIC, alive=house.is_alive, now=now)


def test_the_same_question_gets_the_same_answer_object() -> None:
    ranker, house = opened(agent("a", "Weather")), LivenessFilter()
    assert ask(ranker, house) is ask(ranker, house)


def test_a_change_is_seen_by_the_next_question() -> None:
    ranker, house = opened(agent("a", "Weather")), LivenessFilter()
    assert ids(ask(ranker, house).hits) == ["a"]
    ranker.index.put(agent("b", "Weather weather"))
    assert sorted(ids(ask(ranker, house).hits)) == ["a", "b"]
    ranker.index.remove("a")
    assert ids(ask(ranker, house).hits) == ["b"]


def test_a_cached_result_omits_agents_that_ended() -> None:
    ranker, house = opened(agent("a", "Weather"), agent("b", "Weather")), LivenessFilter()
    assert len(ask(ranker, house).hits) == 2
    house.dead.add("a")
    assert ids(ask(ranker, house).hits) == ["b"]


def test_another_audience_filter_limit_or_hour_is_another_question() -> None:
    ranker, house = (
        opened(agent("a", "Weather", tags=["x"]), agent("p", "Weather", visibility="internal")),
        LivenessFilter(),
    )
    first = ask(ranker, house)
    inside = ranker.rank(WEATHER, frozenset({"public", "internal"}), alive=house.is_alive, now=0.0)
    assert sorted(ids(inside.hits)) == ["a", "p"]
    for other in (Query(text="weather", limit=3), Query(text="weather", excluded_tags=("x",)), Query(text="Weather?")):
        assert ask(ranker, house, other) is not first
    assert ask(ranker, house, now=3600.0) is not first
    assert ask(ranker, house) is first


def test_a_hidden_change_does_not_invalidate_the_results_of_others() -> None:
    ranker, house = opened(agent("a", "Weather"), maintained=True), LivenessFilter()
    first = ask(ranker, house)
    ranker.index.put(agent("p", "Weather", visibility="private", owner="eve"))
    ranker.index.put(agent("i", "Weather", visibility="internal"))
    assert ask(ranker, house) is first
    ranker.index.remove("p")
    ranker.index.remove("i")
    assert ask(ranker, house) is first
    ranker.index.put(agent("a", "Weather", visibility="private", owner="eve"))
    assert ids(ask(ranker, house).hits) == []


def test_results_with_an_alive_function_that_is_no_method_are_not_cached() -> None:
    ranker = opened(agent("a", "Weather"), agent("b", "Weather"))
    for only in ("a", "b"):
        found = ranker.rank(WEATHER, PUBLIC, alive=lambda each, only=only: each == only, now=0.0)  # type: ignore[misc]
        assert ids(found.hits) == [only]


def test_the_result_cache_is_bounded() -> None:
    ranker, house = opened(agent("a", "Weather")), LivenessFilter()
    for number in range(1100):
        ask(ranker, house, Query(text=f"weather {number}"))
    assert len(ranker._cache) == 1024
