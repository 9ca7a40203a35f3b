"""Vectors in the index: computed at once or later, of the newest text, by the current embedder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import agent, ask, ids
from support.word_embedder import BagOfWords, quick_space, slow_space
from waypost.model.query import Query, Ranking
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker
from waypost.search.vectors import SpaceRole, Vectors, VectorSpace
from waypost.search.vectors.vector_block import VectorBlock

RAIN = agent("a", "Rain", "Rain rain.")
MUSIC = agent("b", "Music", "Music music.", examples=["Invoice"])


def opened(*spaces: VectorSpace, folder: Path | None = None) -> HybridRanker:
    ranker = HybridRanker(folder, spaces)
    ranker.index.open()
    return ranker


def fill(ranker: HybridRanker, *registrations: Registration, revision: int = 1) -> None:
    for registration in registrations:
        ranker.index.put(registration)
    ranker.index.maintain(revision)


def embed_all(ranker: HybridRanker, *registrations: Registration, at_once: int = 1) -> None:
    held = {registration.id: registration for registration in registrations}
    while lacking := ranker.index.lacking(at_once):
        ranker.index.embed([held[agent_id] for agent_id in lacking])


def run_query(ranker: HybridRanker, text: str) -> Ranking:
    return ranker.rank(Query(text=text), None, alive=lambda _: True, now=0.0)


def test_quick_vectors_are_there_at_the_next_question() -> None:
    ranker = opened(quick_space(BagOfWords()))
    ranker.index.put(RAIN)
    ranker.index.put(MUSIC)
    assert ids(ask(ranker, "regen"))[0] == "a"
    assert ids(ask(ranker, "musik"))[0] == "b"
    ranker.index.maintain(1)
    assert ranker.index.lacking(10) == []
    assert ranker.index.pending == 0


def test_slow_vectors_come_later_and_are_counted_until_then() -> None:
    ranker = opened(slow_space(BagOfWords()))
    ranker.index.put(RAIN)
    ranker.index.put(MUSIC)
    assert ids(ask(ranker, "rain")) == ["a"]  # its words answer at once
    assert ask(ranker, "regen") == ()
    ranker.index.maintain(1)
    assert sorted(ranker.index.lacking(10)) == ["a", "b"]
    assert len(ranker.index.lacking(1)) == 1
    counted = [ranker.index.pending]
    for registration in (RAIN, MUSIC):
        ranker.index.lacking(10)
        ranker.index.embed([registration])
        ranker.index.maintain(1)
        counted.append(ranker.index.pending)
    assert counted == [2, 1, 0]
    assert ranker.index.lacking(10) == []
    assert ids(ask(ranker, "regen"))[0] == "a"
    assert ids(ask(ranker, "factura"))[0] == "b"  # an example of its own


def test_missing_vectors_of_hidden_agents_do_not_change_where_candidates_are_looked_for() -> None:
    bob, space = frozenset({"public", "private:bob"}), slow_space(BagOfWords())
    ranker = opened(space)
    mine = agent("mine", "Rain", visibility="private", owner="bob")
    fill(ranker, mine, agent("hers", "Music", visibility="private", owner="eve"))
    ranker.index.lacking(2)
    ranker.index.embed([mine])
    (reader,), _ = ranker.index.look(bob)
    assert not reader.is_covered(space.name)
    assert reader.is_covered(space.name, reader.visible(bob)[0])


def test_an_agent_is_embedded_once_in_each_space_that_lacks_it() -> None:
    quick, slow = BagOfWords("quick"), BagOfWords("slow")
    ranker = opened(slow_space(slow), quick_space(quick))
    fill(ranker, RAIN, MUSIC)
    ask(ranker, "something")
    embed_all(ranker, RAIN, MUSIC, at_once=2)
    ranker.index.maintain(2)
    for _ in range(2):
        fill(ranker, agent("c", "Legal"), revision=3)
        embed_all(ranker, agent("c", "Legal"))
    assert sum("Rain" in text for text in slow.encoded) == 1
    assert ids(ask(ranker, "regen"))[0] == "a"


def test_a_change_during_embedding_keeps_the_newer_text() -> None:
    embedder = BagOfWords()
    ranker = opened(slow_space(embedder))
    fill(ranker, RAIN, MUSIC)
    newer = agent("a", "Invoice", "Invoice.", examples=["Invoice"])

    def change() -> None:
        ranker.index.put(newer)

    ranker.index.lacking(10)
    embedder.during = change
    ranker.index.embed([RAIN, MUSIC])
    for _ in range(2):
        assert "a" not in ids(ask(ranker, "regen"))[:1]
        assert ids(ask(ranker, "invoice"))[0] == "a"
        ranker.index.maintain(2)
        embed_all(ranker, newer, MUSIC)
    assert ids(ask(ranker, "rechnung"))[0] == "a"
    assert ids(ask(ranker, "musik"))[0] == "b"


def test_vectors_of_an_older_text_are_not_stored_for_the_newer_one() -> None:
    """The older text was read from the store; the newer one was saved before its vectors were asked for."""
    ranker = opened(slow_space(BagOfWords()))
    fill(ranker, RAIN)
    assert ranker.index.lacking(10) == ["a"]
    newer = agent("a", "Invoice", "Invoice.", examples=["Invoice"])
    fill(ranker, newer, revision=2)
    ranker.index.embed([RAIN])
    assert ranker.index.lacking(10) == ["a"]
    ranker.index.embed([newer])
    assert ids(ask(ranker, "rechnung")) == ["a"]
    assert ask(ranker, "regen") == ()


def test_an_agent_withdrawn_during_embedding_stays_removed() -> None:
    embedder = BagOfWords()
    ranker = opened(slow_space(embedder))
    fill(ranker, RAIN, MUSIC)
    ranker.index.lacking(10)
    embedder.during = lambda: ranker.index.remove("a")
    ranker.index.embed([RAIN, MUSIC])
    for _ in range(2):
        assert "a" not in ids(ask(ranker, "regen rain"))
        ranker.index.maintain(2)
    assert ranker.index.lacking(10) == []


def test_vectors_survive_a_restart_and_every_merge(tmp_path: Path) -> None:
    ranker = opened(slow_space(BagOfWords()), folder=tmp_path)
    fill(ranker, RAIN, MUSIC)
    embed_all(ranker, RAIN, MUSIC)
    ranker.index.maintain(2)
    for number in range(20):
        extra = agent(f"x{number}", f"Extra {number}")
        fill(ranker, extra, revision=3 + number)
        embed_all(ranker, extra)
    ranker.index.maintain(100)
    ranker.close()
    embedder = BagOfWords()
    ranker = opened(slow_space(embedder), folder=tmp_path)
    assert ranker.index.pending == 0
    assert ids(ask(ranker, "regen"))[0] == "a"
    assert ids(ask(ranker, "factura"))[0] == "b"
    assert embedder.encoded == ["regen", "factura"]


def test_a_new_embedder_recomputes_all_vectors(tmp_path: Path) -> None:
    ranker = opened(slow_space(BagOfWords("one")), folder=tmp_path)
    fill(ranker, RAIN, MUSIC)
    embed_all(ranker, RAIN, MUSIC)
    ranker.index.maintain(2)
    ranker.close()
    ranker = opened(slow_space(BagOfWords("two")), folder=tmp_path)
    assert ids(ask(ranker, "rain")) == ["a"]
    assert sorted(ranker.index.lacking(10)) == ["a", "b"]
    embed_all(ranker, RAIN, MUSIC)
    ranker.index.maintain(3)
    assert ids(ask(ranker, "regen"))[0] == "a"
    ranker.close()
    ranker = opened(slow_space(BagOfWords("two")), folder=tmp_path)
    assert ranker.index.lacking(10) == []
    assert len(list(tmp_path.glob("*.vectors"))) <= 2


def test_vectors_of_an_embedder_that_is_off_are_not_missed(tmp_path: Path) -> None:
    ranker = opened(slow_space(BagOfWords()), folder=tmp_path)
    fill(ranker, RAIN)
    embed_all(ranker, RAIN)
    ranker.index.maintain(2)
    ranker.close()
    ranker = opened(folder=tmp_path)
    assert ranker.index.pending == 0
    assert ids(ask(ranker, "rain")) == ["a"]


def test_a_warning_says_whether_one_model_is_not_loaded_or_all() -> None:
    first, second = BagOfWords(is_ready=False), BagOfWords("bag-2", is_ready=False)
    english = slow_space(second)._replace(role=SpaceRole.ENGLISH)
    ranker = opened(slow_space(first), english)
    fill(ranker, RAIN, MUSIC)
    assert "words and tags only" in run_query(ranker, "rain").warnings[0]
    first.is_ready = True
    (warning,) = run_query(ranker, "rain").warnings
    assert "words and tags only" not in warning
    assert "may still change" in warning
    second.is_ready = True
    assert run_query(ranker, "rain").warnings == ()


@pytest.mark.parametrize("space", [slow_space, quick_space])
def test_until_the_embedder_is_ready_words_answer_with_a_warning_and_vectors_follow(
    space: Callable[[BagOfWords], VectorSpace],
) -> None:
    embedder = BagOfWords(is_ready=False)
    ranker = opened(space(embedder))
    fill(ranker, RAIN, MUSIC)
    before = run_query(ranker, "rain")
    assert ids(before.hits) == ["a"]
    assert len(before.warnings) == 1
    assert ranker.index.lacking(10) == []
    assert ranker.index.pending == 2  # they are to come
    embedder.is_ready = True
    assert run_query(ranker, "rain").warnings == ()
    embed_all(ranker, RAIN, MUSIC)
    ranker.index.maintain(2)
    assert ranker.index.pending == 0
    assert ids(ask(ranker, "regen"))[0] == "a"


def sizes(ranker: HybridRanker) -> list[int]:
    """Of the blocks of vectors that a question reads."""
    return [block.size for live in ranker.index.look(None)[0] for blocks in live.blocks.values() for block, _ in blocks]


def test_partial_vector_blocks_are_merged_when_idle(tmp_path: Path) -> None:
    ranker = opened(slow_space(BagOfWords()), folder=tmp_path / "index")
    agents = [agent(f"a{number:02d}", "Rain", f"Rain rain {number}.") for number in range(21)]
    fill(ranker, *agents)
    held = {registration.id: registration for registration in agents}
    for count in (16, 4, 1):
        ranker.index.embed([held[agent_id] for agent_id in ranker.index.lacking(count)])
        ranker.index.maintain(2, lambda: True)
    assert sizes(ranker) == [16, 4, 1]
    before = ask(ranker, "regen")
    ranker.index.maintain(3)
    assert sizes(ranker) == [21]
    assert ask(ranker, "regen") == before
    again = opened(slow_space(BagOfWords()), folder=tmp_path / "index")
    assert len([*(tmp_path / "index").glob("*.vectors")]) == 1
    assert ask(again, "regen") == before


class CountingEmbedder(BagOfWords):
    """Records how many texts it encodes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(len(texts))
        return super().encode(texts)


@pytest.mark.parametrize("visibility", ["public", "internal", "private"])
def test_agents_are_encoded_one_by_one(visibility: str) -> None:
    """What else is in a batch shows in the last digits of a vector, so hidden agents would."""
    embedder = CountingEmbedder()
    ranker = opened(slow_space(embedder))
    agents = [agent(name, name, "Rain rain.", visibility=visibility) for name in ("a", "b", "c")]
    fill(ranker, *agents)
    embed_all(ranker, *agents, at_once=3)
    assert embedder.batches == [1, 1, 1]
    assert ranker.index.lacking(3) == []


def test_a_query_is_answered_while_vectors_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = opened(slow_space(BagOfWords()))
    fill(ranker, RAIN, MUSIC)
    found: list[str] = []
    build = VectorBlock.build

    def build_during_query(*arguments: Any) -> VectorBlock:
        query = threading.Thread(target=lambda: found.extend(ids(ask(ranker, "rain"))), daemon=True)
        query.start()
        query.join(10)
        return build(*arguments)

    monkeypatch.setattr(VectorBlock, "build", build_during_query)
    ranker.index.embed([{"a": RAIN, "b": MUSIC}[agent_id] for agent_id in ranker.index.lacking(2)])
    assert found == ["a"]
    assert ids(ask(ranker, "regen"))[0] == "a"


# --- Vectors of other nodes -----------------------------------------------------------------------


def test_vectors_of_another_node_give_the_same_scores_without_an_embedder_at_work() -> None:
    maker, taker = BagOfWords(), BagOfWords()
    here, there = opened(slow_space(maker)), opened(slow_space(taker))
    for ranker in (here, there):
        fill(ranker, RAIN, MUSIC)
        assert sorted(ranker.index.lacking(10)) == ["a", "b"]
    packed = here.index.embed([RAIN, MUSIC])
    assert there.index.take_vectors([RAIN, MUSIC], packed) == {"a", "b"}
    assert taker.encoded == []
    assert there.index.lacking(10) == []
    for text in ("regen", "factura", "music"):
        assert run_query(there, text).hits == run_query(here, text).hits != ()


def test_vectors_of_other_texts_or_other_models_are_not_taken() -> None:
    here, there = opened(slow_space(BagOfWords())), opened(slow_space(BagOfWords()))
    newer = agent("a", "Rain", "Snow.")
    fill(here, RAIN)
    fill(there, newer)
    here.index.lacking(10)
    there.index.lacking(10)
    packed = here.index.embed([RAIN])
    assert there.index.take_vectors([newer], packed) == set()
    assert there.index.take_vectors([newer], {"a": b"damaged"}) == set()
    assert there.index.take_vectors([newer], {"a": packed["a"][:-1]}) == set()
    assert there.index.lacking(10) == ["a"]
    other = opened(slow_space(BagOfWords("another-model")))
    fill(other, RAIN)
    other.index.lacking(10)
    assert other.index.take_vectors([RAIN], packed) == set()
    assert other.index.lacking(10) == ["a"]


def test_many_agents_without_vectors_can_be_asked_for_from_any_place_on() -> None:
    ranker = opened(slow_space(BagOfWords()))
    fill(ranker, *(agent(f"a{number}") for number in range(10)))
    first, later = ranker.index.lacking(4), ranker.index.lacking(4, 4)
    assert len({*first, *later}) == 8
    assert 0 < len(ranker.index.lacking(4, 8)) < 4  # up to the last one
    assert ranker.index.lacking(4, 14) == later


def test_agents_of_an_older_segment_are_embedded_while_newer_ones_wait() -> None:
    ranker = opened(slow_space(BagOfWords()))
    for number in range(40):
        ranker.index.put(agent(f"a{number}"))
    ranker.index.maintain(1)
    ranker.index.put(RAIN)
    ranker.index.maintain(2, lambda: True)
    assert len(ranker.index.look(None)[0]) == 2
    found = ranker.index.lacking(8)
    assert found[0] == "a"
    assert len(found) == 8
