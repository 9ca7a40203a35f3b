"""The index on disk and the delta before it: nothing is lost, nothing is seen twice, nothing waits for a commit."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path

import pytest

from support.agents import PUBLIC, WORDS, agent, ask, ids, some_agent
from waypost.errors import StoreUnavailable
from waypost.model.query import Query
from waypost.search.ranker import HybridRanker


def opened_at(folder: Path) -> tuple[HybridRanker, int]:
    ranker = HybridRanker(folder)
    return ranker, ranker.open()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved index of a hundred agents at revision 7."""
    ranker, revision = opened_at(tmp_path / "index")
    assert revision == 0
    dice = random.Random(5)
    for number in range(100):
        ranker.put(some_agent(f"a{number}", dice))
    ranker.put(agent("private", "Zebra", visibility="private"))
    ranker.maintain(7)
    ranker.close()
    return tmp_path / "index"


def test_what_was_maintained_is_there_after_a_restart(folder: Path) -> None:
    ranker, revision = opened_at(folder)
    assert revision == 7
    assert ranker.pending == 0
    assert len(ask(ranker, "weather forecast rain", limit=100)) > 5
    assert ids(ask(ranker, "zebra", None)) == ["private"]


def test_a_change_counts_at_the_next_question() -> None:
    ranker, _ = HybridRanker(), None
    ranker.open()
    ranker.put(agent("a", "Weather"))
    assert ids(ask(ranker, "weather")) == ["a"]
    ranker.maintain(1)
    ranker.put(agent("a", "Invoices"))
    assert ask(ranker, "weather") == ()
    assert ids(ask(ranker, "invoices")) == ["a"]
    ranker.remove("a")
    assert ask(ranker, "invoices") == ()
    ranker.maintain(2)
    assert ask(ranker, "invoices weather") == ()
    ranker.remove("a")
    ranker.remove("never-here")
    ranker.maintain(3)
    assert ranker.pending == 0


def test_only_the_last_of_many_changes_counts() -> None:
    ranker = HybridRanker()
    ranker.open()
    for word in ("weather", "invoice", "music"):
        ranker.put(agent("a", word))
        assert ids(ask(ranker, "weather invoice music")) == ["a"]
        assert ids(ask(ranker, word)) == ["a"]
    assert ask(ranker, "weather") == ()
    ranker.maintain(1)
    assert ask(ranker, "weather") == ()
    assert ids(ask(ranker, "music")) == ["a"]


def test_changes_told_again_after_a_crash_are_not_doubled(folder: Path) -> None:
    """The index was committed, the note of the revision was not: the log is told again from the older revision."""
    older = (folder / "state.json").read_bytes()
    ranker, _ = opened_at(folder)
    ranker.put(agent("new", "Xylophone"))
    ranker.put(agent("private", "Zebra", visibility="internal"))
    ranker.remove("a0")
    ranker.maintain(10)
    ranker.close()
    (folder / "state.json").write_bytes(older)
    ranker, revision = opened_at(folder)
    assert revision == 7
    ranker.put(agent("new", "Xylophone"))
    ranker.put(agent("private", "Zebra", visibility="internal"))
    ranker.remove("a0")
    for _ in range(2):
        assert ids(ask(ranker, "xylophone", limit=50)) == ["new"]
        assert ids(ask(ranker, "zebra", None)) == ["private"]
        assert "a0" not in ids(ask(ranker, " ".join(WORDS), limit=100))
        ranker.maintain(10)
    ranker.close()
    assert opened_at(folder)[1] == 10


def test_a_process_killed_without_close_loses_only_what_was_not_maintained(folder: Path, tmp_path: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.put(agent("committed", "Xylophone"))
    ranker.maintain(8)
    ranker.put(agent("not-yet", "Xylophone"))
    shutil.copytree(folder, tmp_path / "as-it-was")  # what a kill would have left behind
    ranker.close()
    survivor, revision = opened_at(tmp_path / "as-it-was")
    assert revision == 8
    assert ids(ask(survivor, "xylophone")) == ["committed"]


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "public").iterdir() if path.suffix not in (".lock", ".json"))


@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_a_damaged_index_is_given_up_and_built_anew(folder: Path, part: int, damage: str) -> None:
    path = files_of(folder)[part]
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 3] ^= 0xFF
        path.write_bytes(content)
    ranker, revision = opened_at(folder)
    assert revision == 0
    assert ask(ranker, "weather") == ()
    ranker.put(agent("a", "Weather"))
    ranker.maintain(1)
    ranker.close()
    assert opened_at(folder)[1] == 1


@pytest.mark.parametrize(
    "state",
    [b"", b"{", b"[]", b'{"format":{"schema":0,"analysis":1,"engine":"x"},"revision":7}', b'{"revision":7}'],
)
def test_a_state_that_is_damaged_or_of_another_version_is_given_up(folder: Path, state: bytes) -> None:
    (folder / "state.json").write_bytes(state)
    ranker, revision = opened_at(folder)
    assert revision == 0
    assert ask(ranker, "weather") == ()


def test_a_missing_tier_is_given_up(folder: Path) -> None:
    shutil.rmtree(folder / "internal")
    assert opened_at(folder)[1] == 0


def test_a_file_in_the_place_of_the_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("not an index")
    ranker, revision = opened_at(tmp_path / "index")
    assert revision == 0
    ranker.put(agent("a", "Weather"))
    ranker.maintain(1)
    assert ids(ask(ranker, "weather")) == ["a"]


def test_clear_forgets_everything(folder: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.put(agent("new", "Weather"))
    ranker.clear()
    assert ranker.pending == 0
    assert ask(ranker, "weather", None) == ()
    ranker.close()
    assert opened_at(folder)[1] == 0


def test_when_saving_fails_answers_stay_complete_and_the_next_time_saves_all(folder: Path, tmp_path: Path) -> None:
    holder, _ = opened_at(folder)
    holder.put(agent("first", "Xylophone"))
    holder.maintain(8)  # holds the writer's lock from here on
    ranker, _ = opened_at(folder)
    ranker.put(agent("second", "Xylophone"))
    with pytest.raises(StoreUnavailable) as caught:
        ranker.maintain(9)
    assert caught.value.hint
    assert ids(ask(ranker, "xylophone")) == ["first", "second"]
    assert ranker.pending == 1
    holder.close()
    ranker.maintain(9)
    assert ranker.pending == 0
    assert ids(ask(ranker, "xylophone")) == ["first", "second"]


def test_a_question_in_a_bulk_load_says_what_it_could_not_look_at() -> None:
    ranker = HybridRanker()
    ranker.open()
    dice = random.Random(6)
    for number in range(2500):
        ranker.put(some_agent(f"a{number}", dice))
    ranker.put(agent("newest", "Xylophone"))
    ranking = ranker.rank(Query(text="xylophone"), PUBLIC, alive=lambda _: True, now=0.0)
    assert ids(ranking.hits) == ["newest"]
    assert ranking.warnings == ("501 agents registered a moment ago are not searched yet.",)
    ranking = ranker.rank(Query(text="xylophone"), PUBLIC, alive=lambda _: True, now=0.0)
    assert ranking.warnings == ()


def test_questions_changes_and_maintenance_do_not_disturb_each_other(tmp_path: Path) -> None:
    """One thread writes and asks for what it wrote, another asks, a third maintains."""
    ranker, _ = opened_at(tmp_path / "index")
    dice = random.Random(8)
    done = threading.Event()
    faults: list[str] = []

    def maintain() -> None:
        revision = 0
        while not done.is_set():
            revision += 1
            ranker.maintain(revision)

    def keep_asking() -> None:
        asking = random.Random(9)
        while not done.is_set():
            hits = ask(ranker, " ".join(asking.sample(WORDS, 4)), limit=50)
            if len(set(ids(hits))) != len(hits):
                faults.append("an id came twice")

    threads = [threading.Thread(target=maintain), threading.Thread(target=keep_asking)]
    for thread in threads:
        thread.start()
    try:
        for number in range(600):
            agent_id = f"a{dice.randrange(50)}"
            if number % 7 == 0:
                ranker.remove(agent_id)
                if agent_id in ids(ask(ranker, f"mark{agent_id}", limit=100)):
                    faults.append(f"{agent_id} was removed and found")
                continue
            ranker.put(agent(agent_id, f"mark{agent_id} word{number}", " ".join(dice.sample(WORDS, 8))))
            if ids(ask(ranker, f"word{number}")) != [agent_id]:
                faults.append(f"{agent_id} was written and not found")
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert faults == []
