"""The search index and its folder: nothing is lost or duplicated, and damaged files are not used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import PUBLIC, WORDS, agent, ask, ids, some_agent
from support.word_embedder import BagOfWords, slow_space
from waypost.errors import StoreUnavailable
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker

KINDS = (".rows", ".vectors", ".dead")


def opened_at(folder: Path, *embedders: BagOfWords) -> tuple[HybridRanker, int]:
    ranker = HybridRanker(folder, map(slow_space, embedders))
    return ranker, ranker.index.open()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved index at revision 7: a hundred agents with vectors, one of them private, and one that is gone."""
    ranker, revision = opened_at(tmp_path / "index", BagOfWords())
    assert revision == 0
    dice = random.Random(5)
    registrations = {f"a{number}": some_agent(f"a{number}", dice) for number in range(100)}
    registrations["private"] = agent("private", "Zebra", visibility="private")
    for registration in registrations.values():
        ranker.index.put(registration)
    ranker.index.maintain(5)
    while lacking := ranker.index.lacking(40):
        ranker.index.embed([registrations[agent_id] for agent_id in lacking])
    ranker.index.maintain(6)
    ranker.index.remove("a99")
    ranker.index.maintain(7)
    ranker.close()
    assert {path.suffix for path in (tmp_path / "index").iterdir()} == {*KINDS, ".json"}
    return tmp_path / "index"


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Replace the folder by a file for a while. Mapped files stay readable."""
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.write_bytes(b"")
    try:
        yield
    finally:
        folder.unlink()
        elsewhere.rename(folder)


# --- Saved and opened -----------------------------------------------------------------------------


def test_a_maintained_index_is_there_after_a_restart(folder: Path) -> None:
    ranker, revision = opened_at(folder, BagOfWords())
    assert revision == 7
    assert ranker.index.pending == 0
    assert len(ask(ranker, "weather forecast rain", limit=100)) > 5
    assert ids(ask(ranker, "zebra", None))[0] == "private"
    assert "a99" not in ids(ask(ranker, " ".join(WORDS), None, limit=100))


def test_index_files_are_memory_mapped(folder: Path) -> None:
    ranker, _ = opened_at(folder, BagOfWords())
    mapped = Path("/proc/self/maps").read_text()
    assert all(str(path) in mapped for path in folder.iterdir() if path.suffix in (".rows", ".vectors"))
    assert ask(ranker, "weather")


def test_files_that_the_manifest_does_not_name_are_removed(folder: Path) -> None:
    (folder / "0123.rows").write_bytes(b"left by a crash")
    (folder / "4567.vectors.new").write_bytes(b"cut short")
    ranker, _ = opened_at(folder, BagOfWords())
    ranker.index.put(agent("new", "Xylophone"))
    ranker.index.maintain(8)
    assert not (folder / "0123.rows").exists()
    assert not (folder / "4567.vectors.new").exists()
    named = (folder / "index.json").read_text()
    assert all(path.name in named for path in folder.iterdir() if path.suffix != ".json")


def test_the_number_of_segments_stays_small_after_many_saves(tmp_path: Path) -> None:
    ranker, _ = opened_at(tmp_path / "index")
    dice = random.Random(3)
    for number in range(150):
        ranker.index.put(some_agent(f"a{number}", dice))
        ranker.index.maintain(number + 1)
    assert len(list((tmp_path / "index").glob("*.rows"))) < 10
    assert len(ask(ranker, " ".join(WORDS), limit=100)) == 100


def test_when_all_have_died_nothing_is_left(folder: Path) -> None:
    ranker, _ = opened_at(folder, BagOfWords())
    for agent_id in (*(f"a{number}" for number in range(100)), "private"):
        ranker.index.remove(agent_id)
    ranker.index.maintain(8)
    assert ask(ranker, " ".join(WORDS), None) == ()
    assert list(folder.glob("*.rows")) == []
    ranker.close()
    assert opened_at(folder, BagOfWords())[1] == 8


# --- Changes --------------------------------------------------------------------------------------


def test_a_change_counts_at_the_next_question() -> None:
    ranker = HybridRanker()
    ranker.index.open()
    ranker.index.put(agent("a", "Weather"))
    assert ids(ask(ranker, "weather")) == ["a"]
    ranker.index.maintain(1)
    ranker.index.put(agent("a", "Invoices"))
    assert ask(ranker, "weather") == ()
    assert ids(ask(ranker, "invoices")) == ["a"]
    ranker.index.remove("a")
    assert ask(ranker, "invoices") == ()
    ranker.index.maintain(2)
    assert ask(ranker, "invoices weather") == ()
    ranker.index.remove("a")
    ranker.index.remove("never-here")
    ranker.index.maintain(3)
    assert ranker.index.pending == 0


def test_only_the_last_of_many_changes_counts() -> None:
    ranker = HybridRanker()
    ranker.index.open()
    for word in ("weather", "invoice", "music"):
        ranker.index.put(agent("a", word))
        assert ids(ask(ranker, "weather invoice music")) == ["a"]
        assert ids(ask(ranker, word)) == ["a"]
    assert ask(ranker, "weather") == ()
    ranker.index.maintain(1)
    assert ask(ranker, "weather") == ()
    assert ids(ask(ranker, "music")) == ["a"]


def test_changes_replayed_after_a_crash_are_not_duplicated(folder: Path) -> None:
    """The log is replayed from the saved revision, and some of it is in the index already."""
    ranker, revision = opened_at(folder)
    assert revision == 7
    for _ in range(3):
        ranker.index.put(agent("new", "Xylophone"))
        ranker.index.put(agent("private", "Zebra", visibility="internal"))
        ranker.index.remove("a0")
        assert ids(ask(ranker, "xylophone", limit=50)) == ["new"]
        assert ids(ask(ranker, "zebra", None)) == ["private"]
        assert "a0" not in ids(ask(ranker, " ".join(WORDS), limit=100))
        ranker.index.maintain(10)
    ranker.close()
    assert opened_at(folder)[1] == 10


def test_a_process_killed_without_close_loses_only_what_was_not_maintained(folder: Path, tmp_path: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.index.put(agent("committed", "Xylophone"))
    ranker.index.maintain(8)
    ranker.index.put(agent("not-yet", "Xylophone"))
    assert len(ask(ranker, "xylophone")) == 2
    shutil.copytree(folder, tmp_path / "as-it-was")  # the state that a kill would leave
    survivor, revision = opened_at(tmp_path / "as-it-was")
    assert revision == 8
    assert ids(ask(survivor, "xylophone")) == ["committed"]


def bulk_loaded() -> HybridRanker:
    """A thousand public and as many private agents in the write buffer, and one with a word of its own among them."""
    ranker = HybridRanker()
    ranker.index.open()
    dice = random.Random(6)
    for number in range(1000):
        if number == 300:
            ranker.index.put(agent("meant", "Xylophones for happy people", tags=("brass bands",)))
        ranker.index.put(some_agent(f"a{number}", dice))
        ranker.index.put(some_agent(f"hidden{number}", dice, visibility="private"))
    return ranker


@pytest.mark.parametrize("text", ["xylophone", "happiness of xylophones", "Which weather is it, xylophone?"])
def test_a_search_during_a_bulk_load_finds_every_agent_by_its_words(text: str) -> None:
    ranker, query = bulk_loaded(), Query(text=text)
    assert ranker.index.is_behind(PUBLIC)
    ranker.index.prepare_for(PUBLIC, query)
    ranking = ranker.rank(query, PUBLIC, alive=lambda _: True, now=0.0)
    assert "meant" in ids(ranking.hits)
    (warning,) = ranking.warnings
    assert 1001 - 64 <= int(warning.split()[0]) <= 1000
    assert ranker.index.pending == 2001


def test_a_search_by_tag_during_a_bulk_load_finds_the_tagged_agent() -> None:
    ranker, query = bulk_loaded(), Query(text="", required_tags=("Brass bands",))
    ranker.index.prepare_for(PUBLIC, query)
    assert ids(ranker.rank(query, PUBLIC, alive=lambda _: True, now=0.0).hits) == ["meant"]


def test_a_search_during_a_bulk_load_reads_no_hidden_agents() -> None:
    """Otherwise its time would tell how many there are."""
    ranker = HybridRanker()
    ranker.index.open()
    dice = random.Random(6)
    for number in range(1000):
        ranker.index.put(some_agent(f"hidden{number}", dice, visibility="private"))
    assert not ranker.index.is_behind(PUBLIC)
    ranker.index.prepare_for(PUBLIC, Query(text="weather"))
    assert ranker.index._readers == []


# --- What cannot be trusted -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "longer", "empty"])
def test_a_damaged_index_is_discarded_and_rebuilt(folder: Path, kind: str, damage: str) -> None:
    path = next(path for path in folder.iterdir() if path.suffix == kind)
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 3] ^= 0xFF
        path.write_bytes(content)
    else:
        path.write_bytes(content + bytes(64) if damage == "longer" else b"")
    ranker, revision = opened_at(folder, BagOfWords())
    assert revision == 0
    assert ask(ranker, "weather", None) == ()
    ranker.index.put(agent("a", "Weather"))
    ranker.index.maintain(1)
    ranker.close()
    ranker, revision = opened_at(folder, BagOfWords())
    assert revision == 1
    assert ids(ask(ranker, "weather")) == ["a"]


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"\xff\xfe", b'{"revision":7}', b'{"format":5,"revision":7}'])
def test_a_manifest_that_is_damaged_is_given_up(folder: Path, manifest: bytes) -> None:
    (folder / "index.json").write_bytes(manifest)
    ranker, revision = opened_at(folder)
    assert revision == 0
    assert ask(ranker, "weather") == ()


def test_a_manifest_with_another_revision_is_given_up(folder: Path) -> None:
    """Changes after the wrong revision would never be replayed."""
    path = folder / "index.json"
    content = path.read_bytes()
    revision = json.loads(content.split(b"\n")[0])["revision"]
    path.write_bytes(content.replace(b'"revision":%d' % revision, b'"revision":%d' % (revision + 1)))
    assert opened_at(folder)[1] == 0


def test_an_index_of_another_version_is_given_up(folder: Path) -> None:
    manifest = json.loads((folder / "index.json").read_bytes().split(b"\n")[0])
    content = json.dumps({**manifest, "format": "segments 0"}).encode()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    (folder / "index.json").write_bytes(content + f"\n{digest}\n".encode())
    ranker, revision = opened_at(folder)
    assert revision == 0
    assert ask(ranker, "weather") == ()


def test_an_index_without_manifest_is_given_up(folder: Path) -> None:
    (folder / "index.json").unlink()
    assert opened_at(folder)[1] == 0
    assert list(folder.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("not an index")
    ranker, revision = opened_at(tmp_path / "index")
    assert revision == 0
    ranker.index.put(agent("a", "Weather"))
    ranker.index.maintain(1)
    assert ids(ask(ranker, "weather")) == ["a"]
    ranker.close()
    assert opened_at(tmp_path / "index")[1] == 1


def test_clear_forgets_everything(folder: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.index.put(agent("new", "Weather"))
    ranker.index.clear()
    assert ranker.index.pending == 0
    assert ask(ranker, "weather", None) == ()
    ranker.close()
    assert opened_at(folder)[1] == 0


# --- When it cannot be saved ----------------------------------------------------------------------


def test_when_saving_fails_answers_stay_complete_and_the_next_time_saves_all(folder: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.index.put(agent("first", "Xylophone"))
    ranker.index.put(agent("private", "Yak"))
    ranker.index.remove("a0")
    for _ in range(2):
        with unwritable(folder), pytest.raises(StoreUnavailable) as caught:
            ranker.index.maintain(9)
        assert caught.value.hint
        assert ranker.index.pending > 0
        assert ids(ask(ranker, "xylophone")) == ["first"]
        assert ids(ask(ranker, "yak")) == ["private"]
        assert ask(ranker, "zebra", None) == ()
    ranker.index.put(agent("second", "Xylophone"))
    ranker.index.maintain(10)
    assert ranker.index.pending == 0
    ranker.close()
    ranker, revision = opened_at(folder)
    assert revision == 10
    assert sorted(ids(ask(ranker, "xylophone"))) == ["first", "second"]
    assert ask(ranker, "zebra", None) == ()
    assert "a0" not in ids(ask(ranker, " ".join(WORDS), limit=100))


def test_a_removal_that_could_not_be_saved_is_saved_the_next_time(folder: Path) -> None:
    ranker, _ = opened_at(folder)
    ranker.index.remove("private")
    with unwritable(folder), pytest.raises(StoreUnavailable):
        ranker.index.maintain(8)
    ranker.index.maintain(9)
    ranker.close()
    ranker, revision = opened_at(folder)
    assert revision == 9
    assert ask(ranker, "zebra", None) == ()


def test_a_manifest_that_cannot_be_replaced_is_replaced_the_next_time(folder: Path) -> None:
    (folder / "index.json.new").mkdir()
    ranker, _ = opened_at(folder)
    ranker.index.put(agent("new", "Xylophone"))
    with pytest.raises(StoreUnavailable):
        ranker.index.maintain(8)
    assert ids(ask(ranker, "xylophone")) == ["new"]
    assert opened_at(folder)[1] == 7
    (folder / "index.json.new").rmdir()
    ranker.index.maintain(8)
    ranker.close()
    ranker, revision = opened_at(folder)
    assert revision == 8
    assert ids(ask(ranker, "xylophone")) == ["new"]


# --- Giving way -----------------------------------------------------------------------------------


def test_writes_and_queries_continue_while_compaction_yields(tmp_path: Path) -> None:
    ranker, _ = opened_at(tmp_path / "index")
    for number in range(40):
        ranker.index.put(agent(f"a{number}", f"mark{number}"))
    seen: list[list[str]] = []

    def give_way() -> bool:
        """Called during compaction: a caller that needed the lock here would deadlock."""
        number = len(seen)
        ranker.index.put(agent(f"b{number}", f"zebra{number}"))
        seen.append(ids(ask(ranker, f"zebra{number}")) + ids(ask(ranker, "mark39")))
        return True

    ranker.index.maintain(1, give_way)
    assert len(seen) > 2
    assert seen == [[f"b{number}", "a39"] for number in range(len(seen))]
    assert [ids(ask(ranker, f"mark{number}")) for number in range(40)] == [[f"a{number}"] for number in range(40)]


def test_a_change_during_maintenance_is_visible_at_once(tmp_path: Path) -> None:
    ranker, _ = opened_at(tmp_path / "index")
    for number in range(40):
        ranker.index.put(agent(f"a{number}", f"before{number}"))
    changed: list[int] = []

    def give_way() -> bool:
        if not changed:
            ranker.index.put(agent("a39", "after39"))
            ranker.index.remove("a38")
            changed.append(39)
        return False

    ranker.index.maintain(1, give_way)
    assert ids(ask(ranker, "before39")) == []
    assert ids(ask(ranker, "before38")) == []
    assert ids(ask(ranker, "after39")) == ["a39"]


def test_all_that_came_before_a_fold_is_saved_by_it_however_much_comes_meanwhile(tmp_path: Path) -> None:
    ranker, _ = opened_at(tmp_path / "index")
    for number in range(20):
        ranker.index.put(agent(f"old{number}", f"mark{number}"))

    def give_way() -> bool:
        for number in range(700):
            ranker.index.put(agent(f"new{number}", "Flood"))
        return True

    ranker.index.maintain(20, give_way)
    again, revision = opened_at(tmp_path / "index")
    assert revision == 20
    assert [ids(ask(again, f"mark{number}")) for number in range(20)] == [[f"old{number}"] for number in range(20)]


# --- Threads --------------------------------------------------------------------------------------


def test_questions_changes_maintenance_and_vectors_do_not_disturb_each_other(tmp_path: Path) -> None:
    """One thread writes and asks for what it wrote, another asks, a third maintains, a fourth makes vectors."""
    ranker, _ = opened_at(tmp_path / "index", BagOfWords())
    held: dict[str, Registration] = {}
    dice = random.Random(8)
    done = threading.Event()
    faults: list[str] = []

    def maintain() -> None:
        revision = 0
        while not done.is_set():
            revision += 1
            ranker.index.maintain(revision)

    def embed() -> None:
        while not done.is_set():
            if lacking := ranker.index.lacking(8):
                ranker.index.embed([held[agent_id] for agent_id in lacking])

    def keep_asking() -> None:
        asking = random.Random(9)
        while not done.is_set():
            hits = ask(ranker, " ".join(asking.sample(WORDS, 4)), limit=50)
            if len(set(ids(hits))) != len(hits):
                faults.append("an id came twice")

    threads = [threading.Thread(target=work) for work in (maintain, embed, keep_asking)]
    for thread in threads:
        thread.start()
    try:
        for number in range(400):
            agent_id = f"a{dice.randrange(50)}"
            if number % 7 == 0:
                ranker.index.remove(agent_id)
                if agent_id in ids(ask(ranker, f"mark{agent_id}", limit=100)):
                    faults.append(f"{agent_id} was removed and found")
                continue
            held[agent_id] = agent(agent_id, f"mark{agent_id} word{number}", " ".join(dice.sample(WORDS, 8)))
            ranker.index.put(held[agent_id])
            if ids(ask(ranker, f"word{number}"))[:1] != [agent_id]:
                faults.append(f"{agent_id} was written and not found")
    finally:
        done.set()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert faults == []
    ranker.index.maintain(1000)
    while lacking := ranker.index.lacking(50):
        ranker.index.embed([held[agent_id] for agent_id in lacking])
    ranker.index.maintain(1001)
    assert ranker.index.pending == 0


def test_a_rebuild_step_does_not_rewrite_larger_segments(tmp_path: Path) -> None:
    ranker, _ = opened_at(tmp_path / "index")
    dice = random.Random(9)
    written: list[set[str]] = []
    for step, count in enumerate((80, 10, 10, 10)):
        for number in range(count):
            ranker.index.put(some_agent(f"a{step}-{number}", dice))
        ranker.index.maintain(0)
        written.append({path.name for path in (tmp_path / "index").glob("*.rows")})
    assert written[0] < written[1]
    assert all(written[0] < names for names in written[1:])
    ranker.index.put(some_agent("last", dice))
    ranker.index.maintain(111)  # the rebuild is done: now all of it is one
    names = {path.name for path in (tmp_path / "index").glob("*.rows")}
    assert len(names) == 1
    assert names.isdisjoint(written[0])


def test_segments_of_a_bulk_load_are_merged_when_idle(tmp_path: Path) -> None:
    ranker = HybridRanker(tmp_path / "index")
    ranker.index.open()
    dice = random.Random(6)
    for number, count in enumerate((80, 20, 1)):
        for at in range(count):
            ranker.index.put(some_agent(f"a{number}-{at}", dice))
        ranker.index.maintain(number + 1, lambda: True)
    assert sizes(ranker) == [80, 20, 1]
    assert ranker.index.is_fragmented()
    ranker.index.maintain(4)
    assert sizes(ranker) == [101]
    assert not ranker.index.is_fragmented()


def sizes(ranker: HybridRanker) -> list[int]:
    return [live.segment.count for live in ranker.index.look(PUBLIC)[0]]


def test_an_index_at_rest_becomes_one_though_little_is_new(tmp_path: Path) -> None:
    ranker = HybridRanker(tmp_path / "index")
    ranker.index.open()
    dice = random.Random(6)
    for number, count in enumerate((60, 1)):
        for at in range(count):
            ranker.index.put(some_agent(f"a{number}-{at}", dice))
        ranker.index.maintain(number + 1)
    assert sizes(ranker) == [60, 1]
    assert not ranker.index.is_fragmented()
    assert ranker.index.is_fragmented(at_rest=True)
    ranker.index.maintain(3, lambda: True, at_rest=True)  # there are writes again
    assert sizes(ranker) == [60, 1]
    ranker.index.maintain(3, at_rest=True)
    assert sizes(ranker) == [61]
    assert not ranker.index.is_fragmented(at_rest=True)
