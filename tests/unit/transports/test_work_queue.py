"""The work queue: order and fairness."""

from __future__ import annotations

import asyncio
import itertools

from support.transports import eventually
from waypost import limits
from waypost.transports.packet_filter import WorkQueue


async def test_work_is_done_in_its_order_and_others_come_in_between() -> None:
    now = itertools.count(0, limits.PACKET_WORK_SLICE_SECONDS / 2)  # two pieces of work are a turn
    turns, done = WorkQueue(now.__next__), list[int]()
    for number in range(20):
        turns.add("a", done.append, number)
    await asyncio.sleep(0)
    assert done == [0, 1]
    await eventually(lambda: len(done) == 20)
    assert done == list(range(20))
    assert len(turns) == 0


async def test_queued_work_of_one_source_can_be_discarded() -> None:
    turns, done = WorkQueue(), list[str]()
    for number in range(10):
        turns.add(number % 2, done.append, f"of {number % 2}")
    assert turns.discard(lambda source: source == 0) == 5
    await eventually(lambda: len(done) == 5)
    assert set(done) == {"of 1"}


async def test_the_queue_is_bounded_and_ends_on_close() -> None:
    turns, done = WorkQueue(), list[int]()
    for number in range(limits.PACKET_QUEUE):
        assert turns.has_room()
        turns.add("a", done.append, number)
    assert not turns.has_room()
    turns.close()
    assert turns.has_room()
    await asyncio.sleep(0.02)
    assert done == []
