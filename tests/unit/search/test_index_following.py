"""A reader of an index that another process writes: saved segments and later changes, without gaps or duplicates."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.agents import WORDS, agent, ask, ids, some_agent
from support.word_embedder import BagOfWords, slow_space
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker


@pytest.fixture
def writer(tmp_path: Path) -> HybridRanker:
    made = HybridRanker(tmp_path, [slow_space(BagOfWords())])
    made.index.open()
    return made


@pytest.fixture
def reader(tmp_path: Path) -> HybridRanker:
    return HybridRanker(tmp_path, [slow_space(BagOfWords())])


def apply_change(*rankers: HybridRanker, put: Registration | None = None, gone: str = "", revision: int = 0) -> None:
    for ranker in rankers:
        if put is not None:
            ranker.index.put(put)
        else:
            ranker.index.remove(gone, revision)


def test_before_the_first_save_a_reader_knows_the_changes_it_received(reader: HybridRanker) -> None:
    assert reader.index.follow() == 0
    reader.index.put(agent("a", "Weather"))
    assert ids(ask(reader, "weather")) == ["a"]
    assert reader.index.follow() == 0
    assert ids(ask(reader, "weather")) == ["a"]


def test_a_reader_sees_saved_and_later_agents_once_each(writer: HybridRanker, reader: HybridRanker) -> None:
    reader.index.follow()
    for number in range(1, 11):
        apply_change(writer, reader, put=agent(f"a{number}", "Weather", revision=number))
    writer.index.maintain(6)
    for _ in range(2):
        assert sorted(ids(ask(reader, "weather", limit=50))) == sorted(f"a{number}" for number in range(1, 11))
        assert reader.index.follow() == 6
    apply_change(writer, reader, put=agent("a3", "Invoice", revision=11))
    apply_change(writer, reader, gone="a4", revision=12)
    for saved in (6, 12):
        assert reader.index.follow() == saved
        assert ids(ask(reader, "invoice")) == ["a3"]
        left = [f"a{number}" for number in range(1, 11) if number not in (3, 4)]
        assert sorted(ids(ask(reader, "weather", limit=50))) == sorted(left)
        writer.index.maintain(12)


def test_a_reader_finds_saved_agents_that_it_was_not_notified_of(writer: HybridRanker, reader: HybridRanker) -> None:
    writer.index.put(agent("a", "Weather"))
    writer.index.maintain(1)
    assert reader.index.follow() == 1
    assert ids(ask(reader, "weather")) == ["a"]


def test_a_reader_gets_the_vectors_that_the_writer_made(writer: HybridRanker, reader: HybridRanker) -> None:
    rain = agent("a", "Rain", "Rain rain.")
    writer.index.put(rain)
    writer.index.maintain(1)
    reader.index.follow()
    assert ask(reader, "regen") == ()
    writer.index.embed([rain] if writer.index.lacking(1) else [])
    writer.index.maintain(1)
    reader.index.follow()
    assert ids(ask(reader, "regen")) == ["a"]


def test_a_reader_writes_nothing(writer: HybridRanker, reader: HybridRanker, tmp_path: Path) -> None:
    writer.index.put(agent("a", "Weather"))
    writer.index.maintain(1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    reader.index.follow()
    reader.index.put(agent("b", "Weather", revision=2))
    ask(reader, "weather")
    reader.index.follow()
    reader.index.clear()
    reader.close()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_unreadable_index_files_are_retried_at_the_next_follow(
    writer: HybridRanker, reader: HybridRanker, tmp_path: Path
) -> None:
    writer.index.put(agent("a", "Weather"))
    writer.index.maintain(1)
    assert reader.index.follow() == 1
    writer.index.put(agent("b", "Weather"))
    writer.index.maintain(2)
    reader.index.put(agent("b", "Weather", revision=2))
    kept = (tmp_path / "index.json").read_bytes()
    for damaged in (b"", b"{", kept.replace(b".rows", b".gone")):
        (tmp_path / "index.json").write_bytes(damaged)
        assert reader.index.follow() == 1
        assert sorted(ids(ask(reader, "weather"))) == ["a", "b"]
    (tmp_path / "index.json").write_bytes(kept)
    assert reader.index.follow() == 2
    assert sorted(ids(ask(reader, "weather"))) == ["a", "b"]


@pytest.mark.parametrize("seed", range(4))
def test_whenever_it_follows_a_reader_answers_as_the_writer_does(
    writer: HybridRanker, reader: HybridRanker, seed: int
) -> None:
    dice = random.Random(seed)
    reader.index.follow()
    question = " ".join(WORDS)
    for revision in range(1, 150):
        name = f"a{dice.randrange(30)}"
        if dice.random() < 0.2:
            apply_change(writer, reader, gone=name, revision=revision)
        else:
            apply_change(writer, reader, put=some_agent(name, dice, revision=revision))
        if dice.random() < 0.2:
            writer.index.maintain(revision)
        if dice.random() < 0.2:
            reader.index.follow()
        if dice.random() < 0.3:
            assert ask(reader, question, limit=50) == ask(writer, question, limit=50)
    writer.index.maintain(1000)
    assert reader.index.follow() == 1000
    assert ask(reader, question, limit=50) == ask(writer, question, limit=50)


def test_a_reader_keeps_unchanged_files_open(writer: HybridRanker, reader: HybridRanker) -> None:
    reader.index.follow()
    agents = {f"a{number}": agent(f"a{number}", "Weather", revision=number) for number in range(1, 31)}
    for each in agents.values():
        apply_change(writer, reader, put=each)
    writer.index.maintain(30)
    writer.index.embed([agents[agent_id] for agent_id in writer.index.lacking(30)])
    writer.index.maintain(30)
    assert reader.index.follow() == 30
    (before,) = reader.index.look(None)[0]
    apply_change(writer, reader, put=agent("new", "Invoice", revision=31))
    writer.index.maintain(31)
    assert reader.index.follow() == 31
    first, *others = reader.index.look(None)[0]
    assert first.segment is before.segment
    assert [block for some in first.blocks.values() for block, _ in some] == [
        block for some in before.blocks.values() for block, _ in some
    ]
    assert len(others) == 1
    assert ids(ask(reader, "invoice"))[0] == "new"
