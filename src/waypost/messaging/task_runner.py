"""What goes on behind tasks: the service's own are worked on, others sent away, results told, time limits kept.

Everything that is to be done is kept, so a process that was killed goes on where it stood: a task it had begun is begun again
(at most TASK_ATTEMPTS times), a callback that was not answered is sent again. One process of a service runs this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from waypost import limits
from waypost.errors import Conflict, NotFound, WaypostError
from waypost.messaging.callbacks import CallbackQueue, RemoteAgentClient
from waypost.messaging.tasks import EXPIRED_CODE, Task, TaskOutcome, TaskStore, TaskTimer, make_outcome

log = logging.getLogger("waypost.messaging")

ExecuteTask = Callable[[Task], Awaitable[bytes]]  # JSON

_TICK_SECONDS = 1.0
_TIMERS_PER_TICK = 256  # looked at in one turn


class TaskRunner:
    def __init__(
        self,
        tasks: TaskStore,
        execute: ExecuteTask,
        courier: RemoteAgentClient,
        deliveries: CallbackQueue,
        *,
        now: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._tasks = tasks
        self._execute = execute
        self._courier = courier
        self._deliveries = deliveries
        self._now = now
        self._chance = chance
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._go_on(), name="tasks")

    async def stop(self) -> None:
        """What is under way is dropped: it is kept, and begun again at the next start."""
        for task in (self._loop, *self._busy.values()):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._loop = None
        self._busy.clear()

    async def _go_on(self) -> None:
        while True:
            try:
                await self.turn()
            except WaypostError as error:  # a full disk, say: what is to be done is kept, and tried again
                log.warning("tasks: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._tasks.news.wait()
            self._tasks.news.clear()

    async def turn(self) -> None:
        """Begin what there is to do now; it goes on by itself."""
        for timer in await self._tasks.due(_TIMERS_PER_TICK):
            self._begin(f"timer {timer.key}", limits.CONCURRENT_CALLBACKS, "timer ", self._on_timer(timer))
        self._begin("deliveries", 1, "deliveries", self._deliver())
        for queue, work in (("own", self._run), ("sent", self._send)):
            async for task in self._tasks.waiting(queue):
                if self._count(f"{queue} ") >= limits.CONCURRENT_TASKS:
                    break
                if task.where == "own" or task.remote is None or not task.remote.task_id:
                    self._begin(f"{queue} {task.id}", limits.CONCURRENT_TASKS, f"{queue} ", work(task.id))

    async def settled(self) -> None:
        """Wait until all that was begun is done."""
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def _begin(self, name: str, most: int, kind: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._busy or self._count(kind) >= most:
            work.close()
            return
        task = self._busy[name] = asyncio.create_task(self._tolerated(work), name=name)
        task.add_done_callback(lambda _: self._done(name))

    def _count(self, kind: str) -> int:
        return sum(name.startswith(kind) for name in self._busy)

    def _done(self, name: str) -> None:
        self._busy.pop(name, None)
        if name != "deliveries":  # there may be room for another one
            self._tasks.news.set()

    async def _tolerated(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Conflict, NotFound):
            pass  # it ended in another way meanwhile
        except WaypostError as error:
            log.warning("tasks: %s", error)
            await asyncio.sleep(_TICK_SECONDS)

    async def _deliver(self) -> None:
        while await self._deliveries.turn():
            pass

    # --- The service's own -----------------------------------------------------------------------

    async def _run(self, task_id: str) -> None:
        task = await self._tasks.start(task_id)
        if task is None:
            return
        if task.attempts > limits.TASK_ATTEMPTS:
            message = f"The task was begun {task.attempts - 1} times, and the service ended each time."
            await self._tasks.end(task_id, make_outcome("failed", "interrupted", message))
            return
        await self._tasks.end(task_id, await self._outcome(task))

    async def _outcome(self, task: Task) -> TaskOutcome:
        try:
            async with asyncio.timeout(limits.TASK_RUN_SECONDS):
                return TaskOutcome(status="succeeded", result=await self._execute(task))
        except TimeoutError:
            return make_outcome("failed", "timed_out", f"The task took more than {limits.TASK_RUN_SECONDS:g} seconds.")
        except WaypostError as error:
            return make_outcome("failed", error.code, str(error))

    # --- Those that go elsewhere -----------------------------------------------------------------

    async def _send(self, task_id: str) -> None:
        task = await self._tasks.start(task_id)
        if task is None:
            return
        if task.attempts > len(limits.CALLBACK_DELAYS_SECONDS) + 1:
            await self._tasks.end(task_id, make_outcome("failed", "unreachable", "The agent could not be reached."))
            return
        try:
            remote = await self._courier.send_task(task)
        except NotFound as error:
            await self._tasks.end(task_id, make_outcome("failed", "unresolved", error.message))
            return
        if remote is not None:
            await self._tasks.note_sent(task_id, remote)
        elif task.attempts <= len(limits.CALLBACK_DELAYS_SECONDS):
            await asyncio.sleep(self._delay(task.attempts))

    async def _ask(self, timer: TaskTimer) -> None:
        """Where a result was not brought, it is asked for."""
        task = await self._tasks.get(timer.task_id)
        following = None
        if not task.is_done:
            outcome = await self._courier.ask(task)
            if outcome is not None and outcome.status != "running":
                await self._tasks.end(task.id, outcome)
            else:
                pause = limits.TASK_POLL_SECONDS[min(timer.attempt + 1, len(limits.TASK_POLL_SECONDS) - 1)]
                following = TaskTimer(
                    at=self._now() + pause, what="ask", task_id=task.id, attempt=min(timer.attempt + 1, 99)
                )
        await self._tasks.settle(timer, following)

    # --- Timers ----------------------------------------------------------------------------------

    async def _on_timer(self, timer: TaskTimer) -> None:
        work = {
            "expire": self._expire,
            "tell": self._tell,
            "lease": self._release,
            "ask": self._ask,
            "stop": self._stop,
        }
        try:
            await work[timer.what](timer)
        except NotFound:
            await self._tasks.settle(timer)

    async def _expire(self, timer: TaskTimer) -> None:
        with contextlib.suppress(Conflict):
            await self._tasks.end(timer.task_id, make_outcome("failed", EXPIRED_CODE, "Nobody did the task in time."))
        await self._tasks.settle(timer)

    async def _release(self, timer: TaskTimer) -> None:
        await self._tasks.release(timer.task_id)
        await self._tasks.settle(timer)

    async def _stop(self, timer: TaskTimer) -> None:
        """Whoever has a task that is of no more use is told so, once: if it does not hear, it works in vain."""
        await self._courier.stop(await self._tasks.get(timer.task_id))
        await self._tasks.settle(timer)

    async def _tell(self, timer: TaskTimer) -> None:
        """P-5: the result is brought to its callback, with three tries after the first."""
        task = await self._tasks.get(timer.task_id)
        if await self._courier.post_result(task):
            await self._tasks.settle(timer, told="delivered")
        elif timer.attempt >= len(limits.CALLBACK_DELAYS_SECONDS):
            await self._tasks.settle(timer, told="failed")
        else:
            at = self._now() + self._delay(timer.attempt + 1)
            again = TaskTimer(at=at, what="tell", task_id=task.id, attempt=timer.attempt + 1)
            await self._tasks.settle(timer, again)

    def _delay(self, attempt: int) -> float:
        """Half early or half late, so that many callbacks do not come back at once."""
        return limits.CALLBACK_DELAYS_SECONDS[attempt - 1] * (0.5 + self._chance())
