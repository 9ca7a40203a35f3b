"""Search by the default sentence model among a public set: properties that hold for any weights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from bench.quality import attacks
from bench.sets import Question, agent_id, public_set, registration, rows, translated_questions

from support.agents import PUBLIC, ask, ids
from support.shared import require_shared
from waypost.model.query import Query, Ranking
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker
from waypost.search.vectors import VectorSpace

require_shared("data/retrieval")
METATOOL = public_set("metatool")
CLONES = 200
TARGETS = 3
LAST = 20  # places that are looked at


@pytest.fixture(scope="module")
def market(spaces: tuple[VectorSpace, ...]) -> HybridRanker:
    """The 199 agents of the set, and twelve that describe themselves in other languages."""
    ranker = HybridRanker(None, spaces)
    ranker.index.open()
    for each in (*METATOOL.agents, *(registration("foreign", row) for row in rows("languages.corpus.jsonl"))):
        ranker.index.put(each)
    ranker.index.maintain(1)
    assert ranker.index.pending == 0
    return ranker


def test_an_agent_is_found_by_meaning_alone(spaces: tuple[VectorSpace, ...]) -> None:
    """A low score without a common word is a weak match, not noise: in a small catalogue it is often the right agent."""
    ranker = HybridRanker(None, spaces)
    ranker.index.open()
    for at, said in enumerate(("Wind, waves and tides.", "Books airline tickets.", "Explains income tax.")):
        ranker.index.put(registration("small", {"id": str(at), "name": f"Desk {at}", "description": said, "tags": []}))
    ranker.index.maintain(1)
    assert ids(ask(ranker, "is it safe to sail out today"))[0] == agent_id("small", "0")
    assert ids(ask(ranker, "can we go sailing"))[0] == agent_id("small", "0")


def share_found(ranker: HybridRanker, wanted: list[tuple[str, set[str]]], top: int) -> float:
    return sum(bool(relevant & set(ids(ask(ranker, text, limit=top)))) for text, relevant in wanted) / len(wanted)


def test_a_question_in_capitals_is_the_same_question(market: HybridRanker) -> None:
    asked = [question.text for question in METATOOL.questions[::20]]
    for text in asked:
        assert ask(market, text.upper()) == ask(market, text.lower())


# --- Languages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["zh", "es", "de", "ja"])
def test_a_question_in_another_language_finds_the_english_agent(market: HybridRanker, language: str) -> None:
    wanted = [(question.text, set(question.relevant)) for question in translated_questions(language)]
    assert share_found(market, wanted, top=5) >= 0.75


def english_and_spanish(spaces: tuple[VectorSpace, ...], *, with_spanish: bool) -> HybridRanker:
    described = [
        (
            "flight",
            "Flight Finder",
            "Searches cheap flights and books airline tickets.",
            "Book a plane ticket for next Friday",
        ),
        (
            "legal",
            "Contract Reviewer",
            "Reads contracts and finds risky clauses.",
            "Find indemnity clauses in this lease",
        ),
        ("pisos", "Buscador de pisos", "Busca pisos y casas en alquiler en España.", "Busco un piso barato en Sevilla"),
    ]
    ranker = HybridRanker(None, spaces)
    ranker.index.open()
    for key, name, description, example in described if with_spanish else described[:2]:
        row = {"id": key, "name": name, "description": description, "tags": [], "examples": [example]}
        ranker.index.put(registration("made", row))
    ranker.index.maintain(1)
    return ranker


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("buscar un vuelo barato a Tokio", "flight"), ("revisar un contrato", "legal"), ("billete de avión", "flight")],
)
def test_an_agent_in_the_language_of_a_short_question_takes_nothing_from_english_ones(
    spaces: tuple[VectorSpace, ...], text: str, wanted: str
) -> None:
    """The Spanish agent makes "un", "de" and "barato" words that the registry knows."""
    alone, beside = (
        ask(english_and_spanish(spaces, with_spanish=with_spanish), text)[0] for with_spanish in (False, True)
    )
    assert alone.id == beside.id == agent_id("made", wanted)
    assert beside.score >= alone.score > 0.3


@pytest.mark.parametrize("language", ["zh", "es", "de", "ja"])
def test_an_english_question_finds_the_agent_in_another_language(market: HybridRanker, language: str) -> None:
    wanted = [
        (text, {agent_id("foreign", row["id"])})
        for row in rows("languages.corpus.jsonl")
        if row["language"] == language
        for text in row["asked"]
    ]
    assert share_found(market, wanted, top=5) >= 0.9


# --- Floods ---------------------------------------------------------------------------------------


def targets() -> list[tuple[Registration, list[Question]]]:
    chosen = random.Random(5).sample(METATOOL.agents, TARGETS)
    return [(target, [each for each in METATOOL.questions if target.id in each.relevant]) for target in chosen]


def flooded(market: HybridRanker, flood: list[Registration]) -> Iterator[None]:
    for clone in flood:
        market.index.put(clone)
    market.index.maintain(2)
    yield
    for clone in flood:
        market.index.remove(clone.id)
    market.index.maintain(3)


@pytest.mark.req("PRO-57")
@pytest.mark.parametrize("make", [attacks.copies, attacks.variants], ids=["the same", "small edits"])
def test_two_hundred_clones_do_not_push_out_the_agent_that_they_copy(market: HybridRanker, make: Any) -> None:
    before, after = [], []
    for target, questions in targets():
        before += [target.id in ids(ask(market, each.text, limit=5)) for each in questions]
        for _ in flooded(market, make(target, CLONES)):
            after += [target.id in ids(ask(market, each.text, limit=5)) for each in questions]
    assert sum(after) >= 0.95 * sum(before)


@pytest.mark.req("PRO-57")
def test_two_hundred_clones_of_a_rival_do_not_push_out_the_target(market: HybridRanker) -> None:
    by_id = {each.id: each for each in METATOOL.agents}
    before, after = [], []
    for target, questions in targets():
        beside = [hit.id for each in questions for hit in ask(market, each.text, limit=3) if hit.id != target.id]
        rival = by_id[max(sorted(set(beside)), key=beside.count)]
        before += [target.id in ids(ask(market, each.text, limit=5)) for each in questions]
        for _ in flooded(market, attacks.variants(rival, CLONES)):
            after += [target.id in ids(ask(market, each.text, limit=5)) for each in questions]
    assert sum(after) >= 0.95 * sum(before)


@pytest.mark.req("PRO-57")
def test_tags_that_many_ask_for_bring_no_agent_a_better_place(market: HybridRanker) -> None:
    """R1: in fifty questions, among the twenty best, against the same agent without them."""
    asked = random.Random(9).sample(METATOOL.questions, 50)
    tags = attacks.popular_words(METATOOL.questions, 31)
    compared = 0
    for target, _ in targets():
        (plain,) = attacks.copies(target, 1)
        honest, stuffed = (
            [place for _ in flooded(market, [each]) for place in places_of(market, each.id, asked)]
            for each in (plain, attacks.with_tags(plain, tags))
        )
        assert [each.text for each, one, other in zip(asked, honest, stuffed, strict=True) if other < one] == []
        compared += sum(place < LAST for place in honest)
    assert compared >= 5


def places_of(market: HybridRanker, agent_id: str, asked: list[Question]) -> list[int]:
    found = [ids(ask(market, each.text, limit=LAST)) for each in asked]
    return [places.index(agent_id) if agent_id in places else LAST for places in found]


# --- Hidden agents --------------------------------------------------------------------------------


def crowd(count: int) -> list[Registration]:
    """Private agents that are near to the others in every word."""
    dice = random.Random(13)
    made = []
    for number in range(count):
        model = dice.choice(METATOOL.agents).record
        text = " ".join(dice.sample(model.description.split(), min(6, len(model.description.split()))))
        row = {"id": f"hidden-{number}", "name": model.name, "description": text, "tags": list(model.tags)}
        made.append(registration("hidden", row))
    return [_private(each) for each in made]


def _private(each: Registration) -> Registration:
    members = {name: getattr(each, name) for name in each.__struct_fields__}
    return Registration(**members | {"visibility": "private", "owner": "eve"})


def answers(ranker: HybridRanker, questions: list[str]) -> list[Ranking]:
    every = [Query(text=text, include_evidence=True) for text in questions]
    every += [Query(text=text, required_tags=("data",), limit=5) for text in questions[:5]]
    every += [Query(text=text, diversity=False, limit=40) for text in questions[:5]]
    return [ranker.rank(query, PUBLIC, alive=lambda _: True, now=0.0) for query in every]


def test_a_thousand_hidden_agents_change_no_figure_whenever_they_are_folded(spaces: tuple[VectorSpace, ...]) -> None:
    """Two indices with the same visible agents, one with a hidden crowd, folded at different moments."""
    shown = METATOOL.agents[:60]
    questions = [each.text for each in METATOOL.questions[::40]]
    without, crowded = HybridRanker(None, spaces), HybridRanker(None, spaces)
    for ranker in (without, crowded):
        ranker.index.open()
    hidden = crowd(1000)
    for number, each in enumerate(shown):
        without.index.put(each)
        if number % 20 == 0:
            without.index.maintain(number)
    for number, each in enumerate(shown):
        for one in hidden[number * 16 : number * 16 + 16]:
            crowded.index.put(one)
        crowded.index.put(each)
        if number % 17 == 5:
            crowded.index.maintain(number)
    expected = answers(without, questions)
    assert any(ranking.hits for ranking in expected)
    assert answers(crowded, questions) == expected
    for one in hidden[960:]:
        crowded.index.put(one)
    assert answers(crowded, questions) == expected  # while some wait
    crowded.index.maintain(100)
    assert answers(crowded, questions) == expected
    for one in hidden[:500]:
        crowded.index.remove(one.id)
    assert answers(crowded, questions) == expected
    without.index.maintain(101)
    crowded.index.maintain(102)
    assert answers(crowded, questions) == expected
    assert answers(without, questions) == expected
