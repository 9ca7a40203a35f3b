"""For any sequence of operations each task ends once, and the stored state is consistent."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.examples import examples
from waypost.errors import Conflict, NotFound
from waypost.messaging.tasks import (
    CALLER_KIND,
    DONE_TASK_KIND,
    OPEN_TASK_KIND,
    TIMER_KIND,
    NewTask,
    Task,
    TaskOutcome,
    TaskStore,
)
from waypost.net.clock import ManualClock
from waypost.registry.memory_key_value import MemoryKeyValueStore

AGENTS = ("agent:a.test", "agent:b.test")
TTL_SECONDS = 600  # all steps together take less than results are kept for
which = st.integers(0, 30)


class TaskMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock(1_780_000_000.0)
        self.key_value_store = MemoryKeyValueStore()
        self.tasks = TaskStore(self.key_value_store, self.clock.now)
        self.ids: list[str] = []
        self.ended: dict[str, Task] = {}
        self.leases: dict[str, str] = {}
        self.run(self.key_value_store.open())

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.runner.close()

    def pick(self, number: int) -> str | None:
        return self.ids[number % len(self.ids)] if self.ids else None

    def end(self, work: Any) -> None:
        """One end counts; every other one is refused."""
        try:
            task = self.run(work)
        except (Conflict, NotFound):
            return
        if task.is_done:
            assert task.id not in self.ended or task.status == "cancelled"
            self.ended.setdefault(task.id, task)

    @rule(
        agent=st.sampled_from(AGENTS),
        caller=st.sampled_from(["subject x", "agent:c.test"]),
        key=st.sampled_from([None, "k"]),
    )
    def accept(self, agent: str, caller: str, key: str | None) -> None:
        new = NewTask(
            agent=agent,
            where="kept",
            name="t",
            input=agent,
            caller=caller,
            idempotency_key=key,
            ttl_seconds=TTL_SECONDS,
        )
        try:
            task, is_new = self.run(self.tasks.accept(new))
        except Conflict:
            assert key is not None
            return
        assert is_new == (task.id not in self.ids)
        if is_new:
            self.ids.append(task.id)

    @rule(agent=st.sampled_from(AGENTS), limit=st.integers(1, 3))
    def take(self, agent: str, limit: int) -> None:
        waiting = [self.run(self.tasks.get(each)) for each in self.ids]
        free = [task for task in waiting if task.agent == agent and task.status == "accepted"]
        queue = free[0].queue if free else "nothing"
        taken = self.run(self.tasks.take(queue, limit, 60))
        assert [task.id for task in taken] == [task.id for task in sorted(free, key=lambda task: task.place)][:limit]
        for task in taken:
            self.leases[task.id] = task.lease or ""

    @rule(number=which, status=st.sampled_from(["running", "succeeded", "failed"]), right=st.booleans())
    def report(self, number: int, status: Any, right: bool) -> None:
        task_id = self.pick(number)
        if task_id is None:
            return
        lease = self.leases.get(task_id, "none") if right else "wrong"
        self.end(self.tasks.report(task_id, lease, TaskOutcome(status=status), 60))

    @rule(number=which)
    def cancel(self, number: int) -> None:
        task_id = self.pick(number)
        if task_id is not None:
            self.end(self.tasks.cancel(task_id))

    @rule(seconds=st.sampled_from([1, 61, TTL_SECONDS + 1]))
    def time_goes_on(self, seconds: int) -> None:
        self.clock.advance(seconds)
        for timer in self.run(self.tasks.due(100)):
            if timer.what == "lease":
                self.run(self.tasks.release(timer.task_id))
                task = self.run(self.tasks.get(timer.task_id))
                if task.is_done:
                    self.ended.setdefault(task.id, task)
            elif timer.what == "expire":
                self.end(self.tasks.end(timer.task_id, TaskOutcome(status="failed")))
            self.run(self.tasks.settle(timer))

    @invariant()
    def indexes_and_timers_match_the_tasks(self) -> None:
        now = self.clock.now()
        held = [self.run(self.tasks.get(each)) for each in self.ids]
        assert all(self.ended[task.id].status == task.status for task in held if task.is_done)
        assert all(task.is_done for task in held if task.id in self.ended)
        going_on = {task.id for task in held if not task.is_done}
        for kind in (OPEN_TASK_KIND, CALLER_KIND):
            found = self.run(self.key_value_store.scan(kind, now, limit=1000))
            assert {kept.key.rpartition(" ")[2] for kept in found} == going_on
        done = self.run(self.key_value_store.scan(DONE_TASK_KIND, now, limit=1000))
        assert {kept.key.rpartition(" ")[2] for kept in done} == {task.id for task in held if task.is_done}
        timers = [kept.key.split(" ") for kept in self.run(self.key_value_store.scan(TIMER_KIND, now, limit=1000))]
        assert {task_id for _, what, task_id in timers if what == "expire"} == going_on
        leased = {task.id for task in held if task.lease is not None}
        assert leased <= {task_id for _, what, task_id in timers if what == "lease"}


TaskMachine.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
TestTasks = TaskMachine.TestCase
