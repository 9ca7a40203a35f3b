"""Stored tasks and swarms are bounded, and of two concurrent changes one succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from waypost import limits
from waypost.errors import Conflict, NotFound, RateLimited
from waypost.messaging.swarms import JoinRequest, SwarmStore
from waypost.messaging.task_runner import DELIVERY_KIND
from waypost.messaging.tasks import CALLER_KIND, NewTask, TaskOutcome, TaskStore
from waypost.net.clock import ManualClock
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.registry.ports import KeyValueWrite

CLOCK = ManualClock(1_780_000_000.0)


@pytest.fixture
async def keeper() -> AsyncIterator[MemoryKeyValueStore]:
    made = MemoryKeyValueStore()
    await made.open()
    yield made
    await made.close()


def new(caller: str = "subject alice", **members: object) -> NewTask:
    return NewTask(**{"agent": "agent:a.test", "where": "kept", "name": "t", "input": 1, "caller": caller} | members)  # type: ignore[arg-type]


async def test_the_number_of_waiting_tasks_per_agent_is_limited(keeper: MemoryKeyValueStore) -> None:
    tasks = TaskStore(keeper, CLOCK.now)
    for number in range(limits.TASKS_PER_AGENT):
        await tasks.accept(new(f"subject {number // limits.TASKS_PER_CALLER}"))
    with pytest.raises(RateLimited) as refusal:
        await tasks.accept(new("subject another"))
    assert refusal.value.retry_after
    await tasks.accept(new("subject another", agent="agent:b.test"))


class SlowStore(MemoryKeyValueStore):
    """The more it is asked, the later it answers; and what it stored is seen before the one who stored it knows."""

    counts = 0

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int:
        if kind == CALLER_KIND:
            self.counts += 1
            for _ in range(self.counts):
                await asyncio.sleep(0)
        return await super().count(kind, now, prefix=prefix)

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        is_stored = await super().commit(writes, now)
        for _ in range(20):
            await asyncio.sleep(0)
        return is_stored


async def test_of_many_tasks_at_once_as_many_are_accepted_as_the_limit_allows() -> None:
    store = SlowStore()
    await store.open()
    tasks = TaskStore(store, CLOCK.now)
    many = range(limits.TASKS_PER_CALLER + 3)
    answers = await asyncio.gather(*(tasks.accept(new()) for _ in many), return_exceptions=True)
    assert sum(isinstance(each, RateLimited) for each in answers) == 3
    assert sum(not isinstance(each, BaseException) for each in answers) == limits.TASKS_PER_CALLER


async def test_the_results_of_one_caller_are_bounded_and_the_oldest_go_first(keeper: MemoryKeyValueStore) -> None:
    tasks = TaskStore(keeper, CLOCK.now)
    ids = []
    for number in range(limits.TASKS_DONE_PER_CALLER + 2):
        CLOCK.advance(0.01)
        task, _ = await tasks.accept(new())
        ids.append((await tasks.end(task.id, TaskOutcome(status="succeeded", result=b"%d" % number))).id)
    for gone in ids[:2]:
        with pytest.raises(NotFound):
            await tasks.get(gone)
    assert (await tasks.get(ids[2])).result == b"2"
    assert (await tasks.get(ids[-1])).input == b"null"


async def test_a_task_ends_once_however_many_end_it(keeper: MemoryKeyValueStore) -> None:
    tasks = TaskStore(keeper, CLOCK.now)
    task, is_new = await tasks.accept(new())
    assert is_new
    outcomes = [TaskOutcome(status="succeeded", result=b"%d" % number) for number in range(8)]
    ended = await asyncio.gather(*(tasks.end(task.id, each) for each in outcomes), return_exceptions=True)
    assert sum(isinstance(each, Conflict) for each in ended) == 7
    (won,) = [each for each in ended if not isinstance(each, BaseException)]
    assert (await tasks.get(task.id)).result == won.result


async def test_the_number_of_swarms_of_a_caller_is_limited(keeper: MemoryKeyValueStore) -> None:
    swarms = SwarmStore(keeper, CLOCK.now)

    async def join(number: int, by: str = "subject alice") -> None:
        task = f"task {number}"
        await swarms.join(JoinRequest(host="agent:h.test", task=task, agent="agent:a.test", role="participant", by=by))

    for number in range(limits.SWARMS_PER_CALLER):
        await join(number)
    with pytest.raises(RateLimited):
        await join(limits.SWARMS_PER_CALLER)
    await join(limits.SWARMS_PER_CALLER, "subject bob")


async def test_a_message_is_brought_to_each_address_once_and_to_few_on_one_server(keeper: MemoryKeyValueStore) -> None:
    """S8: many members that name one victim."""
    swarms = SwarmStore(keeper, CLOCK.now)
    for number in range(limits.SWARM_DELIVERIES_PER_HOST * 2):
        for callback in (f"https://victim.test/{number}", "https://same.test/x"):
            agent = f"agent:a{number}.{'v' if 'victim' in callback else 's'}.test"
            joining = JoinRequest(
                host="agent:h.test", task="t", agent=agent, role="participant", by="subject a", callback=callback
            )
            swarm = await swarms.join(joining)
    await swarms.broadcast(swarm.id, ("agent:a0.s.test", "subject a"), "hello", "text/plain")
    assert await keeper.count(DELIVERY_KIND, CLOCK.now()) == limits.SWARM_DELIVERIES_PER_HOST + 1
