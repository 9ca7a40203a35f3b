"""When the index is compacted: in a pause of writes, and again after a longer idle time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from support.agents import PUBLIC, some_agent
from waypost.registry.jobs.indexer import _IDLE_ROUNDS, Indexer, LiveIndex
from waypost.search.ranker import HybridRanker
from waypost.stores.memory import MemoryStore


class Events:
    """A log without events."""

    async def oldest_event(self) -> int:
        return 1

    async def events(self, after: int, limit: int) -> list[Any]:
        return []


async def kept_at(folder: Path, *loads: int) -> tuple[Indexer, HybridRanker]:
    """An index that was saved in steps of this many registrations."""
    ranker = HybridRanker(folder)
    ranker.index.open()
    dice = random.Random(4)
    for number, count in enumerate(loads):
        for at in range(count):
            ranker.index.put(some_agent(f"a{number}-{at}", dice))
        ranker.index.maintain(1, lambda: True)
    ranker.close()
    live = LiveIndex(lambda: HybridRanker(folder))
    keeper = Indexer(live, Events())  # type: ignore[arg-type]
    await keeper.catch_up(1)
    return keeper, live.ranker  # type: ignore[return-value]


def segments(ranker: HybridRanker) -> list[int]:
    return [live.segment.count for live in ranker.index.look(PUBLIC)[0]]


async def test_segments_of_a_bulk_load_are_merged_when_writes_pause(tmp_path: Path) -> None:
    keeper, ranker = await kept_at(tmp_path / "index", 40, 10)
    assert segments(ranker) == [40, 10]
    await keeper.compact_if_due(1)  # whether this is a lull, is not known yet
    assert segments(ranker) == [40, 10]
    await keeper.compact_if_due(1)
    assert segments(ranker) == [50]


async def test_little_that_is_new_is_joined_once_nothing_changes_for_a_while(tmp_path: Path) -> None:
    keeper, ranker = await kept_at(tmp_path / "index", 60, 1)
    for _ in range(_IDLE_ROUNDS):
        await keeper.compact_if_due(1)
        assert segments(ranker) == [60, 1]
    await keeper.compact_if_due(1)
    assert segments(ranker) == [61]


async def test_a_change_restarts_the_idle_period(tmp_path: Path) -> None:
    keeper, ranker = await kept_at(tmp_path / "index", 60, 1)
    for _ in range(3 * _IDLE_ROUNDS):
        await keeper.compact_if_due(1)
        await keeper.compact_if_due(2)
    assert segments(ranker) == [60, 1]


@pytest.mark.parametrize("is_saved", [True, False])
async def test_only_an_index_that_should_have_been_saved_is_missed(
    is_saved: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agents of a demo are stored before its index exists: a newcomer must not take that for a problem."""
    store = MemoryStore()
    live = LiveIndex(lambda: HybridRanker(tmp_path / "index" if is_saved else None))
    with caplog.at_level("INFO", "waypost.registry"):
        await Indexer(live, store).catch_up(1)
    assert ("no complete index files" in caplog.text) == is_saved
