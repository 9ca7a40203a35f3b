"""Hidden records affect no hit, score, order or warning of other audiences."""

from __future__ import annotations

import random

import pytest

from support.agents import PUBLIC, WORDS, agent, ask, ids, opened, some_agent
from waypost.model.query import Query, Ranking
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker

BOB = frozenset({"public", "internal", "private:bob"})


def shown(count: int = 200) -> list[Registration]:
    dice = random.Random(1)
    return [
        *(some_agent(f"public-{number}", dice) for number in range(count)),
        *(some_agent(f"internal-{number}", dice, visibility="internal") for number in range(count // 4)),
        *(some_agent(f"bobs-{number}", dice, visibility="private", owner="bob") for number in range(count // 10)),
    ]


def hidden(count: int = 1000) -> list[Registration]:
    dice = random.Random(2)
    return [some_agent(f"hidden-{number}", dice, visibility="private", owner="eve") for number in range(count)]


def questions() -> list[Query]:
    dice = random.Random(3)
    return [
        Query(
            text=" ".join(dice.sample(WORDS, dice.randint(0, 5))),
            required_tags=tuple(dice.sample(WORDS, dice.choice((0, 0, 0, 1)))),
            preferred_tags=tuple(dice.sample(WORDS, dice.choice((0, 0, 1, 2)))),
            excluded_tags=tuple(dice.sample(WORDS, dice.choice((0, 0, 1)))),
            limit=dice.choice((3, 10, 50)),
        )
        for _ in range(150)
    ]


def answers(ranker: HybridRanker, audience: frozenset[str]) -> list[Ranking]:
    return [ranker.rank(query, audience, alive=lambda _: True, now=0.0) for query in questions()]


@pytest.mark.parametrize("audience", [PUBLIC, BOB, frozenset({"private:bob"})], ids=["anonymous", "bob", "only-bob"])
@pytest.mark.parametrize("maintained", [False, True], ids=["fresh", "committed"])
def test_a_thousand_hidden_records_change_no_answer(audience: frozenset[str], maintained: bool) -> None:
    without = opened(*shown(), maintained=maintained)
    with_hidden = opened(*hidden(500), *shown(), *hidden(), maintained=maintained)
    assert answers(with_hidden, audience) == answers(without, audience)


def test_hidden_records_that_are_not_committed_yet_change_no_answer_either() -> None:
    ranker = opened(*shown(), maintained=True)
    before = answers(ranker, BOB)
    for registration in hidden():
        ranker.index.put(registration)
    assert answers(ranker, BOB) == before


def test_each_audience_finds_its_own() -> None:
    for maintained in (False, True):
        ranker = opened(
            agent("p", "Weather"),
            agent("i", "Weather", visibility="internal"),
            agent("a", "Weather", visibility="private", owner="alice", invitees=("bob",)),
            agent("e", "Weather", visibility="private", owner="eve"),
            maintained=maintained,
        )
        assert ids(ask(ranker, "weather", PUBLIC)) == ["p"]
        assert sorted(ids(ask(ranker, "weather", BOB))) == ["a", "i", "p"]
        assert sorted(ids(ask(ranker, "weather", None))) == ["a", "e", "i", "p"]
        assert ask(ranker, "weather", frozenset()) == ()
        assert ids(ask(ranker, "", frozenset({"private:eve"}), protocols=("https",))) == ["e"]


def test_a_record_that_becomes_private_is_hidden_at_once_and_for_good() -> None:
    ranker = opened(agent("a", "Weather"), maintained=True)
    ranker.index.put(agent("a", "Weather", visibility="private", owner="alice"))
    for _ in range(2):
        assert ask(ranker, "weather", BOB) == ()
        assert ids(ask(ranker, "weather", frozenset({"private:alice"}))) == ["a"]
        ranker.index.maintain(2)
    ranker.index.put(agent("a", "Weather"))
    for _ in range(2):
        assert ids(ask(ranker, "weather", None)) == ["a"]
        ranker.index.maintain(3)
    assert ids(ask(ranker, "weather", PUBLIC)) == ["a"]
