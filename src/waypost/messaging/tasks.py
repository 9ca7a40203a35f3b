"""A task: what is asked of an agent, how far it is, and what came of it (adp.md §7, P-5). Values and rules, no storage.

    accepted → running → succeeded | failed | cancelled
        ↑         │
        └─────────┘   a worker that is silent loses it

Who works on it: `own` is the service itself, `kept` an agent whose owner takes tasks away, `sent` another server.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import Conflict, IdempotencyConflict, InvalidDocument, InvalidParameter, NotFound, RateLimited
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.registry.ports import KeyValueItem, KeyValueStore, KeyValueWrite
from waypost.responses.base import embedded
from waypost.responses.messaging import FINAL_TASK_STATUSES, LeasedTask, TaskCallback, TaskError, TaskStatus

TaskState = Literal["accepted", "running", "succeeded", "failed", "cancelled"]

TaskRoute = Literal["own", "kept", "sent"]


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task was sent, and under which name it goes there."""

    url: str
    task_id: str = ""
    status_url: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent: str  # the Agent URI for whom it is
    where: TaskRoute
    name: str
    input: bytes  # JSON
    caller: str  # `subject NAME`, or the Agent URI that signed
    scopes: tuple[str, ...] = ()  # the rights it was sent with
    status: TaskState = "accepted"
    callback: str | None = None
    created_at: float
    updated_at: float
    expires_at: float
    attempts: int = 0
    lease: str | None = None  # of the worker that has it
    lease_until: float | None = None
    result: bytes | None = None  # JSON
    error: TaskError | None = None
    told: Literal["pending", "delivered", "failed"] | None = None  # the callback
    remote: RemoteTask | None = None
    sender: str | None = None  # the agent hosted here that it is sent as

    @property
    def is_done(self) -> bool:
        return self.status in FINAL_TASK_STATUSES

    @property
    def queue(self) -> str:
        """Among which tasks it waits."""
        return queue_name(self.agent) if self.where == "kept" else self.where

    @property
    def place(self) -> str:
        """Its key among the open ones: the oldest first."""
        return f"{self.queue} {self.created_at:017.3f} {self.id}"

    @property
    def subject(self) -> str | None:
        """Who sent it with a token; None when an agent signed it."""
        kind, _, name = self.caller.partition(" ")
        return name if kind == "subject" else None


def queue_name(agent: str) -> str:
    """Where the tasks of an agent wait that is not the service: a name without spaces, whatever its id is."""
    return hashlib.sha256(agent.encode()).hexdigest()[:32]


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it was asked for, with who asks and who is to do it."""

    agent: str
    where: TaskRoute
    name: str
    input: Any
    caller: str
    scopes: tuple[str, ...] = ()
    callback: str | None = None
    ttl_seconds: int = limits.TASK_TTL_SECONDS
    idempotency_key: str | None = None
    url: str | None = None  # where to, for one that is sent
    sender: str | None = None

    @property
    def fingerprint(self) -> str:
        """What must be the same when the same key comes again."""
        said = [self.agent, self.name, self.input, self.callback, self.ttl_seconds, self.sender]
        return hashlib.sha256(dump_json(said)).hexdigest()


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /agent/tasks` (ADP-44)."""

    name: str
    input: Any = None
    callback: str | None = None
    ttl_seconds: int = limits.TASK_TTL_SECONDS


def parse_task_request(document: JsonObject) -> TaskRequest:
    name = document.get("task")
    if not isinstance(name, str) or not 0 < len(name) <= limits.TASK_NAME_CHARS or not name.isprintable():
        raise InvalidDocument(
            f"A task has a name of 1 to {limits.TASK_NAME_CHARS} printable characters.",
            path="$.task",
            hint='Send {"task": "echo", "input": …}.',
        )
    callback = document.get("callback")
    if callback is not None and not isinstance(callback, str):
        raise InvalidDocument("The callback is an address.", path="$.callback", hint="Write https://….")
    return TaskRequest(name=name, input=document.get("input"), callback=callback, ttl_seconds=_parse_ttl(document))


def _parse_ttl(document: JsonObject) -> int:
    value = document.get("ttl_seconds", limits.TASK_TTL_SECONDS)
    least, most = limits.TASK_TTL_MIN_SECONDS, limits.TASK_TTL_MAX_SECONDS
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidParameter(
            f"A task lives from {least} to {most} seconds.", path="$.ttl_seconds", hint="Leave it out for a day."
        )
    return value


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of its task."""

    status: TaskState
    result: bytes | None = None
    error: TaskError | None = None


def parse_task_outcome(document: JsonObject, path: str = "$") -> TaskOutcome:
    """The members of P-5 that tell how a task went."""
    status = document.get("status")
    if status not in ("running", "succeeded", "failed", "cancelled"):
        raise InvalidDocument(
            "A task is running, succeeded, failed or cancelled.", path=f"{path}.status", hint="Send one of them."
        )
    error = document.get("error")
    if error is not None and not isinstance(error, dict):
        raise InvalidDocument("An error is an object.", path=f"{path}.error", hint='Send {"code", "message"}.')
    result = dump_json(document["result"]) if status == "succeeded" and "result" in document else None
    if result is not None and len(result) > limits.TASK_RESULT_BYTES:
        raise InvalidDocument(
            f"A result has at most {limits.TASK_RESULT_BYTES} bytes.",
            path=f"{path}.result",
            hint="Answer with an address where it can be read.",
        )
    return TaskOutcome(status=status, result=result, error=_parse_failure(status, error))


def _parse_failure(status: str, error: JsonObject | None) -> TaskError | None:
    if status != "failed":
        return None
    error = error or {}
    code, message = str(error.get("code", "failed"))[:64], str(error.get("message", "The task failed."))[:1000]
    return TaskError(code=code, message=message)


def task_ended_error(task: Task) -> Conflict:
    """What is told to whoever wants to change a task that is done."""
    return Conflict(
        f"The task is {task.status} already.", path="id", hint="Ask for its status; send a new task for new work."
    )


def task_status(task: Task) -> TaskStatus:
    """The status object of P-5, which a callback receives too."""
    return TaskStatus(
        task_id=task.id,
        status=task.status,
        updated=to_rfc3339(task.updated_at),
        result=None if task.result is None else embedded(task.result),
        error=task.error,
    )


def sender_status(task: Task) -> TaskStatus:
    """The status for the sender: with the task itself and the state of its callback."""
    callback = None if task.callback is None else TaskCallback(url=task.callback, state=task.told or "pending")
    return msgspec.structs.replace(
        task_status(task),
        task=task.name,
        agent=task.agent,
        expires=to_rfc3339(task.expires_at),
        callback=callback,
    )


def queued_status(task: Task) -> TaskStatus:
    """The status for the owner of the agent that is to do the task."""
    return msgspec.structs.replace(
        task_status(task),
        task=task.name,
        agent=task.agent,
        from_=_sender(task),
        expires=to_rfc3339(task.expires_at),
    )


def leased_task(task: Task) -> LeasedTask:
    """The task for the worker that took it."""
    return LeasedTask(
        task_id=task.id,
        status=task.status,
        updated=to_rfc3339(task.updated_at),
        task=task.name,
        agent=task.agent,
        from_=_sender(task),
        expires=to_rfc3339(task.expires_at),
        input=embedded(task.input),
        lease=task.lease or "",
        lease_until=rfc3339_or_none(task.lease_until),
    )


def _sender(task: Task) -> str:
    return task.sender or task.caller.removeprefix("subject ")


def callback_body(task: Task) -> bytes:
    return dump_json(task_status(task))


# ---- Tasks, kept: accepted once, taken by one worker at a time, ended once, and told.
#
# What is kept of a task changes with what lies around it (its place in a queue, its timers) in one commit, and only if the task
# is still what it was: of two who end it, one does. Who works on tasks is not known here (`running.py`).

TASK_KIND = "task"

OPEN_TASK_KIND = "task-open"  # by queue, the oldest first

CALLER_KIND = "task-caller"  # the open ones of each caller

DONE_TASK_KIND = "task-done"  # those that are done, the oldest first

IDEMPOTENCY_KIND = "task-once"  # idempotency keys

TIMER_KIND = "task-timer"  # what is to be done, and when

SENT_TASK_KIND = "task-sent"  # by the name that a task has where it was sent

EXPIRED_CODE = "expired"  # the code of a task that nobody did in time

_TIME_FORMAT = ".3f"

_MAX_RETRIES = 8  # how often a change is tried that another one overtook


class TaskTimer(msgspec.Struct, frozen=True, kw_only=True):
    """`what`: `expire` a task, `tell` its callback, take back its `lease`, `ask` for it where it was sent, `stop` it there."""

    at: float
    what: str
    task_id: str
    attempt: int = 0

    @property
    def key(self) -> str:
        return f"{self.at:017{_TIME_FORMAT}} {self.what} {self.task_id}"

    def write(self) -> KeyValueWrite:
        return KeyValueWrite(kind=TIMER_KIND, key=self.key, value=msgspec.msgpack.encode(self))

    def removal(self) -> KeyValueWrite:
        return KeyValueWrite(kind=TIMER_KIND, key=self.key, value=None)


class _QueueSignal:
    """What workers wait for at one queue."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0


_decode_task = msgspec.msgpack.Decoder(Task).decode

_decode_timer = msgspec.msgpack.Decoder(TaskTimer).decode


class TaskStore:
    def __init__(self, keeper: KeyValueStore, now: Callable[[], float]) -> None:
        self._keeper = keeper
        self._now = now
        self._accepting: Counter[str] = Counter()  # by caller and queue, while they are being written
        self.news = asyncio.Event()  # set when there may be something to do
        self._arrivals: dict[str, _QueueSignal] = {}  # of queues that a worker waits at

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
            remote=None if new.url is None else RemoteTask(url=new.url),
            sender=new.sender,
        )

    def _first_writes(self, task: Task, new: NewTask) -> list[KeyValueWrite]:
        writes = [
            KeyValueWrite(kind=TASK_KIND, key=task.id, value=msgspec.msgpack.encode(task), expected=None),
            KeyValueWrite(kind=OPEN_TASK_KIND, key=task.place, value=task.id.encode()),
            KeyValueWrite(kind=CALLER_KIND, key=_caller_key(task), value=b"1"),
            TaskTimer(at=task.expires_at, what="expire", task_id=task.id).write(),
        ]
        if new.idempotency_key is not None:
            value = f"{new.fingerprint} {task.id}".encode()
            ends = self._now() + limits.IDEMPOTENCY_KEEP_SECONDS
            writes.append(
                KeyValueWrite(
                    kind=IDEMPOTENCY_KIND, key=_idempotency_key(new), value=value, expires_at=ends, expected=None
                )
            )
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
        kept = await self._keeper.get(IDEMPOTENCY_KIND, _idempotency_key(new), self._now())
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
        caller, queue = f"caller {_hash_text(task.caller)}", f"queue {task.queue}"
        self._accepting.update((caller, queue))
        try:
            await self._check_room(
                CALLER_KIND, f"{_hash_text(task.caller)} ", self._accepting[caller], limits.TASKS_PER_CALLER
            )
            await self._check_room(OPEN_TASK_KIND, f"{task.queue} ", self._accepting[queue], limits.TASKS_PER_AGENT)
            yield
        finally:
            self._accepting.subtract((caller, queue))
            self._accepting += Counter()  # forget those at zero

    async def _check_room(self, kind: str, prefix: str, arriving: int, most: int) -> None:
        if await self._keeper.count(kind, self._now(), prefix=prefix) + arriving > most:
            whose = "of yours" if kind == CALLER_KIND else "of this agent"
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
        kept = await self._keeper.get(TASK_KIND, task_id, self._now()) if len(task_id) <= 64 else None
        if kept is None:
            raise unknown_task_error(task_id)
        return _decode_task(kept), kept

    async def waiting(self, queue: str) -> AsyncIterator[Task]:
        """Open tasks of a queue, the oldest first, one by one: each may be large."""
        async for task in self._along(OPEN_TASK_KIND, f"{queue} "):
            yield task

    async def of_caller(self, caller: str) -> AsyncIterator[Task]:
        """The open tasks that somebody sent."""
        async for task in self._along(CALLER_KIND, f"{_hash_text(caller)} "):
            yield task

    async def _along(self, kind: str, prefix: str) -> AsyncIterator[Task]:
        """The tasks that keys of a kind end with."""
        after = ""
        while page := await self._keeper.scan(kind, self._now(), prefix=prefix, after=after, limit=limits.TASKS_PAGE):
            for kept in page:
                value = await self._keeper.get(TASK_KIND, kept.key.rpartition(" ")[2], self._now())
                if value is not None:
                    yield _decode_task(value)
            after = page[-1].key

    async def sent_as(self, agent: str, task_id: str) -> Task:
        """The task that has this name where it was sent."""
        kept = await self._keeper.get(SENT_TASK_KIND, _sent_key(agent, task_id), self._now())
        if kept is None:
            raise unknown_task_error(task_id)
        return await self.get(kept.decode())

    async def due(self, limit: int) -> list[TaskTimer]:
        """Timers that are due, the oldest first."""
        now = self._now()
        found: list[KeyValueItem] = await self._keeper.scan(TIMER_KIND, now, limit=limit)
        return [timer for kept in found if (timer := _decode_timer(kept.value)).at <= now]

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
            writes.append(TaskTimer(at=until, what="lease", task_id=task_id).write())
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
        arrival = self._arrivals.setdefault(queue, _QueueSignal())
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

    def has_waiting_worker(self, agent: str) -> bool:
        """Whether a worker waits for tasks of an agent now."""
        return queue_name(agent) in self._arrivals

    async def report(self, task_id: str, lease: str, outcome: TaskOutcome, lease_seconds: float) -> Task:
        """What the worker that has the lease says: that it goes on, or how it ended."""
        task, kept = await self._held(task_id)
        if task.is_done:
            raise task_ended_error(task)
        if task.lease is None or task.lease != lease:
            raise Conflict("Another worker has this task now.", path="$.lease", hint="Take another task.")
        if outcome.status != "running":
            return await self.end(task_id, outcome, lease=lease)
        now = self._now()
        until = now + lease_seconds
        longer = msgspec.structs.replace(task, updated_at=now, lease_until=until)
        timer = TaskTimer(at=until, what="lease", task_id=task_id)
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
            failure = TaskError(code="abandoned", message=f"{task.attempts} workers took the task, and none ended it.")
            await self.end(task_id, TaskOutcome(status="failed", error=failure))
            return
        freed = msgspec.structs.replace(task, status="accepted", updated_at=now, lease=None, lease_until=None)
        if await self._keeper.commit((_changed(freed, kept),), now):
            self._tell(task.queue)

    async def note_sent(self, task_id: str, remote: RemoteTask) -> Task | None:
        """Under which name a task goes where it was sent; None when it ended meanwhile."""
        for _ in range(_MAX_RETRIES):
            task, kept = await self._held(task_id)
            if task.is_done:
                return None
            noted = msgspec.structs.replace(task, remote=remote, updated_at=self._now())
            name = KeyValueWrite(kind=SENT_TASK_KIND, key=_sent_key(task.agent, remote.task_id), value=task.id.encode())
            ask = TaskTimer(at=self._now() + limits.TASK_POLL_SECONDS[0], what="ask", task_id=task_id)
            if await self._keeper.commit((_changed(noted, kept), name, ask.write()), self._now()):
                return noted
        return None

    # --- Ending ----------------------------------------------------------------------------------

    async def end(self, task_id: str, outcome: TaskOutcome, *, lease: str | None = None) -> Task:
        """Once, and for good. Conflict when it has ended, or (with `lease`) when another worker has it."""
        for _ in range(_MAX_RETRIES):
            task, kept = await self._held(task_id)
            if task.is_done:
                raise task_ended_error(task)
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
        prefix = f"{_hash_text(task.caller)} "
        if await self._keeper.count(DONE_TASK_KIND, self._now(), prefix=prefix) <= limits.TASKS_DONE_PER_CALLER:
            return
        for old in await self._keeper.scan(DONE_TASK_KIND, self._now(), prefix=prefix, limit=1):
            gone = (
                KeyValueWrite(kind=DONE_TASK_KIND, key=old.key, value=None),
                KeyValueWrite(kind=TASK_KIND, key=old.key.rpartition(" ")[2], value=None),
            )
            await self._keeper.commit(gone, self._now())

    def _ended(self, task: Task, outcome: TaskOutcome) -> Task:
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

    def _last_writes(self, task: Task, kept: bytes) -> list[KeyValueWrite]:
        ends = self._now() + limits.TASK_KEEP_SECONDS
        writes = [
            KeyValueWrite(
                kind=TASK_KIND, key=task.id, value=msgspec.msgpack.encode(task), expires_at=ends, expected=kept
            ),
            KeyValueWrite(kind=OPEN_TASK_KIND, key=task.place, value=None),
            KeyValueWrite(kind=CALLER_KIND, key=_caller_key(task), value=None),
            KeyValueWrite(kind=DONE_TASK_KIND, key=_done_key(task), value=b"1", expires_at=ends),
            TaskTimer(at=task.expires_at, what="expire", task_id=task.id).removal(),
        ]
        if task.callback is not None:
            writes.append(TaskTimer(at=self._now(), what="tell", task_id=task.id).write())
        if task.remote is not None and task.remote.task_id:
            name = _sent_key(task.agent, task.remote.task_id)
            writes.append(KeyValueWrite(kind=SENT_TASK_KIND, key=name, value=task.id.encode(), expires_at=ends))
            if task.status == "cancelled" or (task.error is not None and task.error.code == EXPIRED_CODE):
                writes.append(TaskTimer(at=self._now(), what="stop", task_id=task.id).write())
        return writes

    async def cancel(self, task_id: str) -> Task:
        """Cancelled, or cancelled before; Conflict when it ended otherwise."""
        task = await self.get(task_id)
        if task.status == "cancelled":
            return task
        return await self.end(task_id, TaskOutcome(status="cancelled"))

    async def settle(self, timer: TaskTimer, following: TaskTimer | None = None, told: str | None = None) -> None:
        """A timer was dealt with: it goes, another one may follow, and what became of a callback is noted."""
        writes = [timer.removal()]
        if following is not None:
            writes.append(following.write())
        if told is not None:
            task, kept = await self._held(timer.task_id)
            noted = msgspec.structs.replace(task, told=told)
            ends = task.updated_at + limits.TASK_KEEP_SECONDS
            value = msgspec.msgpack.encode(noted)
            writes.append(KeyValueWrite(kind=TASK_KIND, key=task.id, value=value, expires_at=ends, expected=kept))
        await self._keeper.commit(writes, self._now())

    def _tell(self, queue: str) -> None:
        self.news.set()
        arrival = self._arrivals.pop(queue, None)
        if arrival is not None:
            arrival.event.set()


def unknown_task_error(task_id: str) -> NotFound:
    """The same words for unknown and foreign."""
    return NotFound(
        f"There is no task {task_id[:64]!r}.", path="id", hint="Ask for it with the credential that it was sent with."
    )


def make_outcome(status: TaskState, code: str, message: str) -> TaskOutcome:
    return TaskOutcome(status=status, error=TaskError(code=code, message=message))


def _changed(task: Task, kept: bytes) -> KeyValueWrite:
    return KeyValueWrite(kind=TASK_KIND, key=task.id, value=msgspec.msgpack.encode(task), expected=kept)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _caller_key(task: Task) -> str:
    return f"{_hash_text(task.caller)} {task.id}"


def _done_key(task: Task) -> str:
    return f"{_hash_text(task.caller)} {task.updated_at:017.3f} {task.id}"


def _idempotency_key(new: NewTask) -> str:
    return _hash_text(f"{new.caller}\0{new.idempotency_key}")


def _sent_key(agent: str, task_id: str) -> str:
    return f"{agent} {_hash_text(task_id)}"
