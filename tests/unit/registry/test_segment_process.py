"""Segments that are built in a process of their own."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from support.agents import agent, some_agent
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.registry.jobs.segment_process import SegmentProcess
from waypost.search.index.document import prepare_documents
from waypost.search.index.segment import build_segment
from waypost.search.index.write_buffer import BufferedChange
from waypost.search.ranker import HybridRanker

PUBLIC = frozenset({"public"})


@pytest.fixture
def process() -> Iterator[SegmentProcess]:
    made = SegmentProcess()
    yield made
    made.close()


def some_agents(count: int) -> list[Registration]:
    dice = random.Random(3)
    return [some_agent(f"a{number}", dice) for number in range(count)]


def changes_of(agents: list[Registration]) -> list[BufferedChange]:
    return [BufferedChange.of(each) for each in agents]


def test_a_segment_is_the_same_as_one_that_is_built_here(process: SegmentProcess) -> None:
    agents = some_agents(100)
    built = process.build(changes_of([*agents, agent("hidden", "Harps", visibility="private")]))
    assert built is not None
    public, private = built
    expected = build_segment(prepare_documents(agents)).arrays
    assert public.arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(public.arrays[name], array), name
        assert public.arrays[name].dtype == array.dtype
    assert private.count == 1


def test_a_bulk_load_is_found_after_the_process_built_it(process: SegmentProcess) -> None:
    ranker = HybridRanker(builder=process)
    ranker.index.open()
    for each in (*some_agents(1500), agent("meant", "Xylophones")):
        ranker.index.put(each)
    ranker.index.maintain(1)
    hits = ranker.rank(Query(text="xylophone"), PUBLIC, alive=lambda _: True, now=0.0).hits
    assert [hit.id for hit in hits] == ["meant"]
    assert process.is_running
    ranker.close()
    assert not process.is_running


def test_every_agent_of_a_bulk_load_is_analysed_in_the_process(
    process: SegmentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = HybridRanker(builder=process)
    ranker.index.open()
    for each in some_agents(1100):
        ranker.index.put(each)
    monkeypatch.setattr("waypost.search.index.index.prepare_documents", pytest.fail)
    ranker.index.maintain(1)
    assert ranker.index.unsaved == 0


def test_a_bulk_load_goes_on_when_the_process_is_killed(process: SegmentProcess) -> None:
    assert process.build(changes_of(some_agents(3))) is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    ranker = HybridRanker(builder=process)
    ranker.index.open()
    for each in (*some_agents(1100), agent("meant", "Xylophones")):
        ranker.index.put(each)
    ranker.index.maintain(1)
    assert ranker.index.unsaved == 0
    hits = ranker.rank(Query(text="xylophone"), PUBLIC, alive=lambda _: True, now=0.0).hits
    assert [hit.id for hit in hits] == ["meant"]
    assert process.build(changes_of(some_agents(3))) is not None, "it is started again"


def test_nothing_is_started_before_a_bulk_load(process: SegmentProcess) -> None:
    ranker = HybridRanker(builder=process)
    ranker.index.open()
    for each in some_agents(200):
        ranker.index.put(each)
    ranker.index.maintain(1)
    assert not process.is_running
