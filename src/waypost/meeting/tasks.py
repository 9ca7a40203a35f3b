"""Tasks, kept: accepted once, taken by one worker at a time, ended once, and told.

What is kept of a task changes with what lies around it (its place in a queue, its timers) in one commit, and only if the task
is still what it was: of two who end it, one does. Who works on tasks is not known here (`running.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from waypost import limits
from waypost.errors import Conflict, IdempotencyConflict, InvalidParameter, NotFound, RateLimited
from waypost.meeting.task import Failure, NewTask, Outcome, Remote, Status, Task, is_ended, queue_of
from waypost.model.json import dump_json
from waypost.registry.keeping import Keeper, Kept, Write

TASK = "task"
OPEN = "task-open"  # by queue, the oldest first
CALLER = "task-caller"  # the open ones of each caller
DONE = "task-done"  # those that are done, the oldest first
ONCE = "task-once"  # idempotency keys
TIMER = "task-timer"  # what is to be done, and when
SENT = "task-sent"  # by the name that a task has where it was sent

EXPIRED = "expired"  # the code of a task that nobody did in time
_WHEN = ".3f"
_RACES = 8  # how often a change is tried that another one overtook


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """`what`: `expire` a task, `tell` its callback, take back its `lease`, `ask` for it where it was sent, `stop` it there."""

    at: float
    what: str
    task_id: str
    attempt: int = 0

    @property
    def key(self) -> str:
        return f"{self.at:017{_WHEN}} {self.what} {self.task_id}"

    def write(self) -> Write:
        return Write(kind=TIMER, key=self.key, value=msgspec.msgpack.encode(self))

    def removal(self) -> Write:
        return Write(kind=TIMER, key=self.key, value=None)


class _Arrival:
    """What workers wait for at one queue."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0


_read_task = msgspec.msgpack.Decoder(Task).decode
_read_timer = msgspec.msgpack.Decoder(Timer).decode


class Tasks:
    def __init__(self, keeper: Keeper, now: Callable[[], float]) -> None:
        self._keeper = keeper
        self._now = now
        self._accepting: Counter[str] = Counter()  # by caller and queue, while they are being written
        self.news = asyncio.Event()  # set when there may be something to do
        self._arrivals: dict[str, _Arrival] = {}  # of queues that a worker waits at

    # --- Sending ---------------------------------------------------------------------------------

    async def accept(self, new: NewTask) -> tuple[Task, bool]:
        """The task, durable, and whether it is new: with the same idempotency key it is the one from before."""
        before = await self._before(new)
        if before is not None:
            return before, False
        task = self._made(new)
        async with self._place(task):
            if not await self._keeper.commit(self._first_writes(task, new), self._now()):
                again = await self._before(new)  # somebody sent the same with the same key at the same time
                if again is None:
                    raise Conflict("The task could not be kept.", hint="Send it again.")
                return again, False
        self._tell(task.queue)
        return task, True

    def _made(self, new: NewTask) -> Task:
        now = self._now()
        return Task(
            id=str(uuid.uuid4()),
            agent=new.agent,
            where=new.where,
            name=new.name,
            input=dump_json(new.input),
            caller=new.caller,
            scopes=new.scopes,
            callback=new.callback,
            created_at=now,
            updated_at=now,
            expires_at=now + new.ttl_seconds,
            remote=None if new.url is None else Remote(url=new.url),
            sender=new.sender,
        )

    def _first_writes(self, task: Task, new: NewTask) -> list[Write]:
        writes = [
            Write(kind=TASK, key=task.id, value=msgspec.msgpack.encode(task), expected=None),
            Write(kind=OPEN, key=task.place, value=task.id.encode()),
            Write(kind=CALLER, key=_caller_key(task), value=b"1"),
            Timer(at=task.expires_at, what="expire", task_id=task.id).write(),
        ]
        if new.idempotency_key is not None:
            value = f"{new.fingerprint} {task.id}".encode()
            ends = self._now() + limits.IDEMPOTENCY_KEEP_SECONDS
            writes.append(Write(kind=ONCE, key=_once_key(new), value=value, expires_at=ends, expected=None))
        return writes

    async def _before(self, new: NewTask) -> Task | None:
        key = new.idempotency_key
        if key is None:
            return None
        if not 0 < len(key) <= limits.IDEMPOTENCY_KEY_CHARS:
            raise InvalidParameter(
                f"An idempotency key has 1 to {limits.IDEMPOTENCY_KEY_CHARS} characters.",
                path="Idempotency-Key",
                hint="Use a UUID.",
            )
        kept = await self._keeper.get(ONCE, _once_key(new), self._now())
        if kept is None:
            return None
        fingerprint, _, task_id = kept.decode().partition(" ")
        if fingerprint != new.fingerprint:
            raise IdempotencyConflict(
                "This idempotency key was used for another request.",
                path="Idempotency-Key",
                hint="Use a new key for a new request.",
            )
        return await self.get(task_id)

    @asynccontextmanager
    async def _place(self, task: Task) -> AsyncIterator[None]:
        """Room for one more, also beside those that are just being written."""
        caller, queue = f"caller {_hashed(task.caller)}", f"queue {task.queue}"
        self._accepting.update((caller, queue))
        try:
            await self._check_room(CALLER, f"{_hashed(task.caller)} ", self._accepting[caller], limits.TASKS_PER_CALLER)
            await self._check_room(OPEN, f"{task.queue} ", self._accepting[queue], limits.TASKS_PER_AGENT)
            yield
        finally:
            self._accepting.subtract((caller, queue))
            self._accepting += Counter()  # forget those at zero

    async def _check_room(self, kind: str, prefix: str, arriving: int, most: int) -> None:
        if await self._keeper.count(kind, self._now(), prefix=prefix) + arriving > most:
            whose = "of yours" if kind == CALLER else "of this agent"
            raise RateLimited(
                f"{most} tasks {whose} are not done yet.",
                path="$.task",
                hint="Wait until some are, or cancel some.",
                retry_after=5,
            )

    # --- Reading ---------------------------------------------------------------------------------

    async def get(self, task_id: str) -> Task:
        return (await self._held(task_id))[0]

    async def _held(self, task_id: str) -> tuple[Task, bytes]:
        kept = await self._keeper.get(TASK, task_id, self._now()) if len(task_id) <= 64 else None
        if kept is None:
            raise no_such_task(task_id)
        return _read_task(kept), kept

    async def waiting(self, queue: str) -> AsyncIterator[Task]:
        """Open tasks of a queue, the oldest first, one by one: each may be large."""
        async for task in self._along(OPEN, f"{queue} "):
            yield task

    async def of_caller(self, caller: str) -> AsyncIterator[Task]:
        """The open tasks that somebody sent."""
        async for task in self._along(CALLER, f"{_hashed(caller)} "):
            yield task

    async def _along(self, kind: str, prefix: str) -> AsyncIterator[Task]:
        """The tasks that keys of a kind end with."""
        after = ""
        while page := await self._keeper.scan(kind, self._now(), prefix=prefix, after=after, limit=limits.TASKS_PAGE):
            for kept in page:
                value = await self._keeper.get(TASK, kept.key.rpartition(" ")[2], self._now())
                if value is not None:
                    yield _read_task(value)
            after = page[-1].key

    async def sent_as(self, agent: str, task_id: str) -> Task:
        """The task that has this name where it was sent."""
        kept = await self._keeper.get(SENT, _sent_key(agent, task_id), self._now())
        if kept is None:
            raise no_such_task(task_id)
        return await self.get(kept.decode())

    async def due(self, limit: int) -> list[Timer]:
        """Timers that are due, the oldest first."""
        now = self._now()
        found: list[Kept] = await self._keeper.scan(TIMER, now, limit=limit)
        return [timer for kept in found if (timer := _read_timer(kept.value)).at <= now]

    # --- Working ---------------------------------------------------------------------------------

    async def start(self, task_id: str, lease_seconds: float | None = None) -> Task | None:
        """Begin on a task that waits, with a lease for a worker elsewhere; None when somebody else was faster."""
        task, kept = await self._held(task_id)
        if task.is_done or (task.lease is not None and lease_seconds is not None):
            return None
        now = self._now()
        lease = None if lease_seconds is None else uuid.uuid4().hex
        until = None if lease_seconds is None else now + lease_seconds
        begun = msgspec.structs.replace(
            task, status="running", updated_at=now, attempts=task.attempts + 1, lease=lease, lease_until=until
        )
        writes = [_changed(begun, kept)]
        if until is not None:
            writes.append(Timer(at=until, what="lease", task_id=task_id).write())
        return begun if await self._keeper.commit(writes, now) else None

    async def take(self, queue: str, limit: int, lease_seconds: float) -> list[Task]:
        """For a worker elsewhere: the oldest tasks that nobody has."""
        taken: list[Task] = []
        async for task in self.waiting(queue):
            if len(taken) == limit:
                break
            if task.status == "accepted" and (begun := await self.start(task.id, lease_seconds)) is not None:
                taken.append(begun)
        return taken

    async def arrival(self, queue: str, seconds: float) -> bool:
        """Wait until something comes into a queue; False when nothing did."""
        arrival = self._arrivals.setdefault(queue, _Arrival())
        arrival.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await arrival.event.wait()
        except TimeoutError:
            return False
        finally:
            arrival.waiting -= 1
            if not arrival.waiting and self._arrivals.get(queue) is arrival:
                del self._arrivals[queue]
        return True

    def is_waited_for(self, agent: str) -> bool:
        """Whether a worker waits for tasks of an agent now."""
        return queue_of(agent) in self._arrivals

    async def report(self, task_id: str, lease: str, outcome: Outcome, lease_seconds: float) -> Task:
        """What the worker that has the lease says: that it goes on, or how it ended."""
        task, kept = await self._held(task_id)
        if task.is_done:
            raise is_ended(task)
        if task.lease is None or task.lease != lease:
            raise Conflict("Another worker has this task now.", path="$.lease", hint="Take another task.")
        if outcome.status != "running":
            return await self.end(task_id, outcome, lease=lease)
        now = self._now()
        until = now + lease_seconds
        longer = msgspec.structs.replace(task, updated_at=now, lease_until=until)
        timer = Timer(at=until, what="lease", task_id=task_id)
        if not await self._keeper.commit((_changed(longer, kept), timer.write()), now):
            return await self.report(task_id, lease, outcome, lease_seconds)
        return longer

    async def release(self, task_id: str) -> None:
        """A worker was silent past its lease: another one may take the task, but not for ever."""
        task, kept = await self._held(task_id)
        now = self._now()
        if task.is_done or task.lease_until is None or task.lease_until > now:
            return
        if task.attempts >= limits.TASK_ATTEMPTS:
            failure = Failure(code="abandoned", message=f"{task.attempts} workers took the task, and none ended it.")
            await self.end(task_id, Outcome(status="failed", error=failure))
            return
        freed = msgspec.structs.replace(task, status="accepted", updated_at=now, lease=None, lease_until=None)
        if await self._keeper.commit((_changed(freed, kept),), now):
            self._tell(task.queue)

    async def note_sent(self, task_id: str, remote: Remote) -> Task | None:
        """Under which name a task goes where it was sent; None when it ended meanwhile."""
        for _ in range(_RACES):
            task, kept = await self._held(task_id)
            if task.is_done:
                return None
            noted = msgspec.structs.replace(task, remote=remote, updated_at=self._now())
            name = Write(kind=SENT, key=_sent_key(task.agent, remote.task_id), value=task.id.encode())
            ask = Timer(at=self._now() + limits.TASK_POLL_SECONDS[0], what="ask", task_id=task_id)
            if await self._keeper.commit((_changed(noted, kept), name, ask.write()), self._now()):
                return noted
        return None

    # --- Ending ----------------------------------------------------------------------------------

    async def end(self, task_id: str, outcome: Outcome, *, lease: str | None = None) -> Task:
        """Once, and for good. Conflict when it has ended, or (with `lease`) when another worker has it."""
        for _ in range(_RACES):
            task, kept = await self._held(task_id)
            if task.is_done:
                raise is_ended(task)
            if lease is not None and task.lease != lease:
                raise Conflict("Another worker has this task now.", path="$.lease", hint="Take another task.")
            ended = self._ended(task, outcome)
            if await self._keeper.commit(self._last_writes(ended, kept), self._now()):
                self.news.set()
                await self._forget_old(ended)
                return ended
        raise Conflict("The task changes all the time.", path="id", hint="Try again.")

    async def _forget_old(self, task: Task) -> None:
        """Results are kept for a day, but not of ever so many tasks of one caller."""
        prefix = f"{_hashed(task.caller)} "
        if await self._keeper.count(DONE, self._now(), prefix=prefix) <= limits.TASKS_DONE_PER_CALLER:
            return
        for old in await self._keeper.scan(DONE, self._now(), prefix=prefix, limit=1):
            gone = (
                Write(kind=DONE, key=old.key, value=None),
                Write(kind=TASK, key=old.key.rpartition(" ")[2], value=None),
            )
            await self._keeper.commit(gone, self._now())

    def _ended(self, task: Task, outcome: Outcome) -> Task:
        return msgspec.structs.replace(
            task,
            status=outcome.status,
            input=b"null",  # what was asked is of no more use
            updated_at=self._now(),
            lease=None,
            lease_until=None,
            result=outcome.result,
            error=outcome.error,
            told=None if task.callback is None else "pending",
        )

    def _last_writes(self, task: Task, kept: bytes) -> list[Write]:
        ends = self._now() + limits.TASK_KEEP_SECONDS
        writes = [
            Write(kind=TASK, key=task.id, value=msgspec.msgpack.encode(task), expires_at=ends, expected=kept),
            Write(kind=OPEN, key=task.place, value=None),
            Write(kind=CALLER, key=_caller_key(task), value=None),
            Write(kind=DONE, key=_done_key(task), value=b"1", expires_at=ends),
            Timer(at=task.expires_at, what="expire", task_id=task.id).removal(),
        ]
        if task.callback is not None:
            writes.append(Timer(at=self._now(), what="tell", task_id=task.id).write())
        if task.remote is not None and task.remote.task_id:
            name = _sent_key(task.agent, task.remote.task_id)
            writes.append(Write(kind=SENT, key=name, value=task.id.encode(), expires_at=ends))
            if task.status == "cancelled" or (task.error is not None and task.error.code == EXPIRED):
                writes.append(Timer(at=self._now(), what="stop", task_id=task.id).write())
        return writes

    async def cancel(self, task_id: str) -> Task:
        """Cancelled, or cancelled before; Conflict when it ended otherwise."""
        task = await self.get(task_id)
        if task.status == "cancelled":
            return task
        return await self.end(task_id, Outcome(status="cancelled"))

    async def settle(self, timer: Timer, following: Timer | None = None, told: str | None = None) -> None:
        """A timer was dealt with: it goes, another one may follow, and what became of a callback is noted."""
        writes = [timer.removal()]
        if following is not None:
            writes.append(following.write())
        if told is not None:
            task, kept = await self._held(timer.task_id)
            noted = msgspec.structs.replace(task, told=told)
            ends = task.updated_at + limits.TASK_KEEP_SECONDS
            value = msgspec.msgpack.encode(noted)
            writes.append(Write(kind=TASK, key=task.id, value=value, expires_at=ends, expected=kept))
        await self._keeper.commit(writes, self._now())

    def _tell(self, queue: str) -> None:
        self.news.set()
        arrival = self._arrivals.pop(queue, None)
        if arrival is not None:
            arrival.event.set()


def no_such_task(task_id: str) -> NotFound:
    """The same words for unknown and foreign."""
    return NotFound(
        f"There is no task {task_id[:64]!r}.", path="id", hint="Ask for it with the credential that it was sent with."
    )


def ended_as(status: Status, code: str, message: str) -> Outcome:
    return Outcome(status=status, error=Failure(code=code, message=message))


def _changed(task: Task, kept: bytes) -> Write:
    return Write(kind=TASK, key=task.id, value=msgspec.msgpack.encode(task), expected=kept)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _caller_key(task: Task) -> str:
    return f"{_hashed(task.caller)} {task.id}"


def _done_key(task: Task) -> str:
    return f"{_hashed(task.caller)} {task.updated_at:017.3f} {task.id}"


def _once_key(new: NewTask) -> str:
    return _hashed(f"{new.caller}\0{new.idempotency_key}")


def _sent_key(agent: str, task_id: str) -> str:
    return f"{agent} {_hashed(task_id)}"
