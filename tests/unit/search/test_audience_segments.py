"""Hidden agents are in segments that other audiences never open, so that timing reveals nothing (THREATS V2)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.agents import PUBLIC, WORDS, agent, ask, ids, some_agent
from waypost.model.registration import Registration
from waypost.search.index.segment import Segment, SegmentReader
from waypost.search.ranker import HybridRanker

OUTSIDER = frozenset({"public", "internal", "private:bob"})
OWNER = frozenset({"public", "internal", "private:eve"})
TIERS = ("public", "internal", "private")


class Opened(Exception):
    """An array was read that was to stay closed."""


class Sealed(np.ndarray[Any, Any]):
    """An array whose length is known, and nothing else: who reads any of it, fails. Compiled code, which takes memory as it
    is, gets none: there is but one item, over and over, and it refuses an array that is not of one piece."""

    def _opened(self, *_: object, **__: object) -> Any:
        raise Opened

    __getitem__ = __iter__ = __array_ufunc__ = __array_function__ = _opened
    take = searchsorted = tolist = tobytes = astype = copy = nonzero = _opened


def sealed(live: SegmentReader) -> None:
    live.segment = Segment({name: _without_memory(array) for name, array in live.segment.arrays.items()})


def _without_memory(array: np.ndarray[Any, Any]) -> Sealed:
    return np.broadcast_to(np.zeros((), dtype=array.dtype), array.shape).view(Sealed)


def mixed(count: int, start: int = 0, seed: int = 1) -> list[Registration]:
    """Of all tiers, one after the other; the private ones all say and carry a word of their own."""
    dice = random.Random(seed)
    made = []
    for number in range(start, start + count):
        tier = TIERS[number % len(TIERS)]
        if tier == "private":
            made.append(agent(f"a{number}", "hush", "A hush.", tags=("hush", *WORDS), visibility=tier, owner="eve"))
        else:
            made.append(some_agent(f"a{number}", dice, visibility=tier))
    return made


def ranker_of(registrations: list[Registration], folder: Path | None = None) -> HybridRanker:
    ranker = HybridRanker(folder)
    ranker.index.open()
    for number, registration in enumerate(registrations, 1):
        ranker.index.put(registration)
        if not number % 60:  # a query indexes so many changes itself
            segments(ranker, None)
    return ranker


def segments(ranker: HybridRanker, audience: frozenset[str] | None) -> list[SegmentReader]:
    return ranker.index.look(audience)[0]


def tiers(lives: list[SegmentReader]) -> list[set[str]]:
    return [{TIERS[tier] for tier in live.segment.tier.tolist()} for live in lives]


QUESTIONS: tuple[dict[str, Any], ...] = (
    *({"text": word} for word in ("hush", f"hush {WORDS[0]}", WORDS[0], f"{WORDS[3]}, then {WORDS[9]}", "zebra")),
    *({"text": "weather", name: ("hush",)} for name in ("required_tags", "preferred_tags", "excluded_tags")),
    {"text": "hush", "required_tags": ("hush",), "preferred_tags": ("hush", "rain"), "excluded_tags": ("city",)},
    {"text": "", "preferred_tags": ("hush",)},
    {"text": "", "protocols": ("https",), "limit": 200},
    {"text": "hush " + " ".join(WORDS[:20]), "include_evidence": True, "limit": 50},
    {"text": "hush " + " ".join(WORDS[20:40]), "diversity": False},
)


@pytest.mark.parametrize("is_saved", [False, True], ids=["in-memory", "on-the-shelf"])
def test_a_search_reads_no_row_that_only_others_may_see(tmp_path: Path, is_saved: bool) -> None:
    ranker = ranker_of(mixed(240), tmp_path / "index")
    ranker.index.maintain(1) if is_saved else segments(ranker, None)
    shown = ranker_of([each for each in mixed(240) if each.visibility != "private"])
    for audience in (OUTSIDER, OWNER):
        ask(ranker, "who sees what is found out by the first question", audience)
    for live in segments(ranker, None):
        if tiers([live]) == [{"private"}]:
            sealed(live)
    for question in QUESTIONS:
        assert ask(ranker, audience=OUTSIDER, **question) == ask(shown, audience=OUTSIDER, **question), question
    with pytest.raises((Opened, ValueError)):
        ask(ranker, "hush", OWNER)


def test_every_segment_is_of_one_tier_however_it_came_to_be(tmp_path: Path) -> None:
    ranker = ranker_of(mixed(90), tmp_path / "index")
    assert [len(each) for each in tiers(segments(ranker, None))] == [1, 1, 1]  # made by a question
    ranker.index.maintain(1)
    for number, registration in enumerate(mixed(90, start=1, seed=2)):  # each moves to the next tier
        ranker.index.put(registration)
        if not number % 7:
            ask(ranker, "weather", None)
    ranker.index.maintain(2)
    assert sorted(map(sorted, tiers(segments(ranker, None)))) == [["internal"], ["private"], ["public"]]
    again = ranker_of([], tmp_path / "index")
    assert sorted(map(sorted, tiers(segments(again, None)))) == [["internal"], ["private"], ["public"]]
    assert tiers(segments(again, PUBLIC)) == [{"public"}]
    assert ids(ask(again, "hush", OWNER, limit=200)) == ids(ask(ranker, "hush", OWNER, limit=200)) != []


def test_a_segment_is_opened_when_something_in_it_may_be_seen_and_no_longer_than_that() -> None:
    ranker = ranker_of(mixed(90))
    for _ in range(2):
        assert {"private"} not in tiers(segments(ranker, OUTSIDER))
        ranker.index.put(agent("bobs", "hush", visibility="private", owner="bob"))
        assert ids(ask(ranker, "hush", OUTSIDER)) == ["bobs"]
        ranker.index.maintain(1)
        assert {"private"} in tiers(segments(ranker, OUTSIDER))
        ranker.index.remove("bobs")
        assert ask(ranker, "hush", OUTSIDER) == ()
