"""Tasks for agents (adp.md §7, P-5) and their store.

    accepted → running → succeeded | failed | cancelled
        ↑         │
        └─────────┘   the lease of a worker expired

Route `own` is run by the service itself, `kept` by a worker of the agent's owner, `sent` by another server. A task changes
together with its queue entry and timers in one commit, and only if it is unchanged since it was read: it is accepted once,
leased by one worker at a time, and ended once. `task_runner.py` runs tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import msgspec

from waypost import limits
from waypost.errors import Conflict, IdempotencyConflict, InvalidDocument, InvalidParameter, NotFound, RateLimited
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.registry.ports import KeyValueItem, KeyValueStore, KeyValueWrite
from waypost.responses.base import embedded
from waypost.responses.messaging import FINAL_TASK_STATUSES, LeasedTask, TaskCallback, TaskError, TaskStatus

TASK_KIND = "task"

OPEN_TASK_KIND = "task-open"  # by queue, the oldest first

CALLER_KIND = "task-caller"  # open tasks by caller

DONE_TASK_KIND = "task-done"  # finished tasks, the oldest first

IDEMPOTENCY_KIND = "task-once"  # idempotency keys

TIMER_KIND = "task-timer"  # due actions by time

SENT_TASK_KIND = "task-sent"  # by the task id of the other server

EXPIRED_CODE = "expired"  # error code of a task that was not done in time

_MAX_RETRIES = 8  # attempts of a change that conflicts with another one

TaskState = Literal["accepted", "running", "succeeded", "failed", "cancelled"]

TaskRoute = Literal["own", "kept", "sent"]


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task on another server."""

    url: str
    task_id: str = ""
    status_url: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent: str  # Agent URI of the receiver
    where: TaskRoute
    name: str
    input: bytes  # JSON
    caller: str  # `subject NAME`, or the Agent URI that signed
    scopes: tuple[str, ...] = ()  # of the caller
    status: TaskState = "accepted"
    callback: str | None = None
    created_at: float
    updated_at: float
    expires_at: float
    attempts: int = 0
    lease: str | None = None  # of the current worker
    lease_until: float | None = None
    result: bytes | None = None  # JSON
    error: TaskError | None = None
    # Data folders of 0.1 name this member `told`.
    callback_state: Literal["pending", "delivered", "failed"] | None = msgspec.field(default=None, name="told")
    remote: RemoteTask | None = None
    sender: str | None = None  # the hosted agent that sends it

    @property
    def is_done(self) -> bool:
        return self.status in FINAL_TASK_STATUSES

    @property
    def queue(self) -> str:
        """The queue of open tasks that it belongs to."""
        return queue_name(self.agent) if self.where == "kept" else self.where

    @property
    def place(self) -> str:
        """Its key among open tasks, the oldest first."""
        return f"{self.queue} {_sortable(self.created_at)} {self.id}"

    @property
    def subject(self) -> str | None:
        """The subject of the caller's token; None if an agent signed the request."""
        kind, _, name = self.caller.partition(" ")
        return name if kind == "subject" else None


def _sortable(at: float) -> str:
    """A time as part of a key: text in the order of time."""
    return f"{at:017.3f}"


def queue_name(agent: str) -> str:
    """The queue of an agent: a name without spaces, whatever its id is."""
    return hashlib.sha256(agent.encode()).hexdigest()[:32]


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a task, with its caller and receiver."""

    agent: str
    where: TaskRoute
    name: str
    input: Any
    caller: str
    scopes: tuple[str, ...] = ()
    callback: str | None = None
    ttl_seconds: int = limits.TASK_TTL_SECONDS
    idempotency_key: str | None = None
    url: str | None = None  # of the other server, for route `sent`
    sender: str | None = None

    @property
    def fingerprint(self) -> str:
        """Must be equal if an idempotency key is used again."""
        members = [self.agent, self.name, self.input, self.callback, self.ttl_seconds, self.sender]
        return hashlib.sha256(dump_json(members)).hexdigest()


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
            f"The name of a task must have 1 to {limits.TASK_NAME_CHARS} printable characters.",
            path="$.task",
            hint='Send {"task": "echo", "input": …}.',
        )
    callback = document.get("callback")
    if callback is not None and not isinstance(callback, str):
        raise InvalidDocument("The callback must be a URL.", path="$.callback", hint="Write https://….")
    return TaskRequest(name=name, input=document.get("input"), callback=callback, ttl_seconds=_parse_ttl(document))


def _parse_ttl(document: JsonObject) -> int:
    value = document.get("ttl_seconds", limits.TASK_TTL_SECONDS)
    minimum, maximum = limits.TASK_TTL_MIN_SECONDS, limits.TASK_TTL_MAX_SECONDS
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidParameter(
            f"ttl_seconds must be from {minimum} to {maximum}.", path="$.ttl_seconds", hint="The default is a day."
        )
    return value


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result that a worker reports."""

    status: TaskState
    result: bytes | None = None
    error: TaskError | None = None


def parse_task_outcome(document: JsonObject, path: str = "$") -> TaskOutcome:
    """Parse the outcome members of P-5."""
    status = document.get("status")
    if status not in ("running", "succeeded", "failed", "cancelled"):
        raise InvalidDocument(
            "status must be running, succeeded, failed or cancelled.", path=f"{path}.status", hint="Send one of them."
        )
    error = document.get("error")
    if error is not None and not isinstance(error, dict):
        raise InvalidDocument("error must be an object.", path=f"{path}.error", hint='Send {"code", "message"}.')
    result = dump_json(document["result"]) if status == "succeeded" and "result" in document else None
    if result is not None and len(result) > limits.TASK_RESULT_BYTES:
        raise InvalidDocument(
            f"The result exceeds {limits.TASK_RESULT_BYTES} bytes.",
            path=f"{path}.result",
            hint="Return a URL where it can be read.",
        )
    return TaskOutcome(status=status, result=result, error=_parse_failure(status, error))


def _parse_failure(status: str, error: JsonObject | None) -> TaskError | None:
    if status != "failed":
        return None
    error = error or {}
    code, message = str(error.get("code", "failed"))[:64], str(error.get("message", "The task failed."))[:1000]
    return TaskError(code=code, message=message)


def task_ended_error(task: Task) -> Conflict:
    return Conflict(f"The task is already {task.status}.", path="id", hint="Read its status, or send a new task.")


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
    callback = (
        None if task.callback is None else TaskCallback(url=task.callback, state=task.callback_state or "pending")
    )
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


class TaskTimer(msgspec.Struct, frozen=True, kw_only=True):
    """A due action (`what`): `expire` the task, `tell` its callback, release its `lease`, `ask` the other server for its status,
    or `stop` it there."""

    at: float
    what: str
    task_id: str
    attempt: int = 0

    @property
    def key(self) -> str:
        return f"{_sortable(self.at)} {self.what} {self.task_id}"

    def write(self) -> KeyValueWrite:
        return KeyValueWrite(kind=TIMER_KIND, key=self.key, value=msgspec.msgpack.encode(self))

    def removal(self) -> KeyValueWrite:
        return KeyValueWrite(kind=TIMER_KIND, key=self.key, value=None)


class _TaskLimit(NamedTuple):
    """How many open tasks one caller or queue may have."""

    name: str  # of the tasks that are being accepted
    kind: str
    prefix: str
    maximum: int


class _QueueSignal:
    """Wakes the workers that wait for a queue."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0


_decode_task = msgspec.msgpack.Decoder(Task).decode

_decode_timer = msgspec.msgpack.Decoder(TaskTimer).decode


class TaskStore:
    def __init__(self, store: KeyValueStore, now: Callable[[], float], poll_seconds: float | None = None) -> None:
        """`poll_seconds`: how often a waiting worker looks for tasks that another node accepted."""
        self._poll_seconds = poll_seconds
        self._store = store
        self._now = now
        self._being_accepted: dict[str, list[str]] = {}  # ids in order, by caller and queue, until the commit
        self._settled = asyncio.Event()  # one of them was accepted or refused
        self.wake_up = asyncio.Event()  # set when there may be work for the runner
        self._signals: dict[str, _QueueSignal] = {}  # of queues with waiting workers

    async def accept(self, new: NewTask) -> tuple[Task, bool]:
        """Store a task; returns it, and whether it is new. A known idempotency key returns the earlier task."""
        existing = await self._find_accepted(new)
        if existing is not None:
            return existing, False
        task = self._make_task(new)
        async with self._reserve(task):
            if not await self._store.commit(self._first_writes(task, new), self._now()):
                existing = await self._find_accepted(new)  # a concurrent request with the same key
                if existing is None:
                    raise Conflict("The task was not stored.", hint="Send it again.")
                return existing, False
        self._signal(task.queue)
        return task, True

    def _make_task(self, new: NewTask) -> Task:
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
            expires_at = self._now() + limits.IDEMPOTENCY_KEEP_SECONDS
            writes.append(
                KeyValueWrite(
                    kind=IDEMPOTENCY_KIND, key=_idempotency_key(new), value=value, expires_at=expires_at, expected=None
                )
            )
        return writes

    async def _find_accepted(self, new: NewTask) -> Task | None:
        key = new.idempotency_key
        if key is None:
            return None
        if not 0 < len(key) <= limits.IDEMPOTENCY_KEY_CHARS:
            raise InvalidParameter(
                f"An idempotency key must have 1 to {limits.IDEMPOTENCY_KEY_CHARS} characters.",
                path="Idempotency-Key",
                hint="Use a UUID.",
            )
        stored = await self._store.get(IDEMPOTENCY_KIND, _idempotency_key(new), self._now())
        if stored is None:
            return None
        fingerprint, _, task_id = stored.decode().partition(" ")
        if fingerprint != new.fingerprint:
            raise IdempotencyConflict(
                "This idempotency key was used for another request.",
                path="Idempotency-Key",
                hint="Use a new key for a new request.",
            )
        return await self.get(task_id)

    @asynccontextmanager
    async def _reserve(self, task: Task) -> AsyncIterator[None]:
        """Check the limits, including tasks that are being accepted concurrently."""
        caller, queue = f"caller {_hash_text(task.caller)}", f"queue {task.queue}"
        for name in (caller, queue):
            self._being_accepted.setdefault(name, []).append(task.id)
        try:
            of_caller = _TaskLimit(caller, CALLER_KIND, f"{_hash_text(task.caller)} ", limits.TASKS_PER_CALLER)
            of_queue = _TaskLimit(queue, OPEN_TASK_KIND, f"{task.queue} ", limits.TASKS_PER_AGENT)
            for limit in (of_caller, of_queue):
                await self._check_limit(task, limit)
            yield
        finally:
            for name in (caller, queue):
                self._being_accepted[name].remove(task.id)
                if not self._being_accepted[name]:
                    del self._being_accepted[name]
            self._settled.set()
            self._settled = asyncio.Event()

    async def _check_limit(self, task: Task, limit: _TaskLimit) -> None:
        """A task that is being accepted may be stored already, and so counted twice. So one beyond the limit waits for those
        before it, and is refused only if there are none."""
        while True:
            settled = self._settled
            earlier = self._being_accepted[limit.name].index(task.id)
            if await self._store.count(limit.kind, self._now(), prefix=limit.prefix) + earlier < limit.maximum:
                return
            if not earlier:
                break
            await settled.wait()
        whose = "of yours" if limit.kind == CALLER_KIND else "of this agent"
        raise RateLimited(
            f"The limit of {limit.maximum} open tasks {whose} is reached.",
            path="$.task",
            hint="Wait until some are done, or cancel some.",
            retry_after=5,
        )

    async def get(self, task_id: str) -> Task:
        return (await self._load(task_id))[0]

    async def _load(self, task_id: str) -> tuple[Task, bytes]:
        stored = await self._store.get(TASK_KIND, task_id, self._now()) if len(task_id) <= 64 else None
        if stored is None:
            raise unknown_task_error(task_id)
        return _decode_task(stored), stored

    async def open_tasks(self, queue: str) -> AsyncIterator[Task]:
        """Open tasks of a queue, the oldest first, one by one: they may be large."""
        async for task in self._scan_tasks(OPEN_TASK_KIND, f"{queue} "):
            yield task

    async def of_caller(self, caller: str) -> AsyncIterator[Task]:
        """The open tasks of a caller."""
        async for task in self._scan_tasks(CALLER_KIND, f"{_hash_text(caller)} "):
            yield task

    async def _scan_tasks(self, kind: str, prefix: str) -> AsyncIterator[Task]:
        """The tasks whose ids end the keys of a kind."""
        after = ""
        while page := await self._store.scan(kind, self._now(), prefix=prefix, after=after, limit=limits.TASKS_PAGE):
            for item in page:
                value = await self._store.get(TASK_KIND, item.key.rpartition(" ")[2], self._now())
                if value is not None:
                    yield _decode_task(value)
            after = page[-1].key

    async def find_sent(self, agent: str, task_id: str) -> Task:
        """The task with this id on the other server."""
        stored = await self._store.get(SENT_TASK_KIND, _sent_key(agent, task_id), self._now())
        if stored is None:
            raise unknown_task_error(task_id)
        return await self.get(stored.decode())

    async def due(self, limit: int) -> list[TaskTimer]:
        """Timers that are due, the oldest first."""
        now = self._now()
        found: list[KeyValueItem] = await self._store.scan(TIMER_KIND, now, limit=limit)
        return [timer for item in found if (timer := _decode_timer(item.value)).at <= now]

    async def start(self, task_id: str, lease_seconds: float | None = None) -> Task | None:
        """Start an open task, with a lease for an external worker; None if another one was faster."""
        task, stored = await self._load(task_id)
        if task.is_done or (task.lease is not None and lease_seconds is not None):
            return None
        now = self._now()
        lease = None if lease_seconds is None else uuid.uuid4().hex
        lease_until = None if lease_seconds is None else now + lease_seconds
        started = msgspec.structs.replace(
            task, status="running", updated_at=now, attempts=task.attempts + 1, lease=lease, lease_until=lease_until
        )
        writes = [_update(started, stored)]
        if lease_until is not None:
            writes.append(TaskTimer(at=lease_until, what="lease", task_id=task_id).write())
        return started if await self._store.commit(writes, now) else None

    async def take(self, queue: str, limit: int, lease_seconds: float) -> list[Task]:
        """Lease the oldest open tasks to an external worker."""
        taken: list[Task] = []
        async for task in self.open_tasks(queue):
            if len(taken) == limit:
                break
            if task.status == "accepted" and (started := await self.start(task.id, lease_seconds)) is not None:
                taken.append(started)
        return taken

    async def wait_for_task(self, queue: str, seconds: float) -> bool:
        """Wait for a task in a queue; returns whether there is one."""
        signal = self._signals.setdefault(queue, _QueueSignal())
        signal.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await (signal.event.wait() if self._poll_seconds is None else self._poll(queue, signal.event))
        except TimeoutError:
            return False
        finally:
            signal.waiting -= 1
            if not signal.waiting and self._signals.get(queue) is signal:
                del self._signals[queue]
        return True

    async def _poll(self, queue: str, signal: asyncio.Event) -> None:
        """Wait for the signal of this node, or for a task that another one accepted."""
        while not signal.is_set():
            async for task in self.open_tasks(queue):
                if task.status == "accepted":
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await signal.wait()

    def has_waiting_worker(self, agent: str) -> bool:
        """Whether a worker is waiting for tasks of an agent."""
        return queue_name(agent) in self._signals

    async def report(self, task_id: str, lease: str, outcome: TaskOutcome, lease_seconds: float) -> Task:
        """A report of the worker with the lease: the task is still running, or its outcome."""
        task, stored = await self._load(task_id)
        if task.is_done:
            raise task_ended_error(task)
        if task.lease is None or task.lease != lease:
            raise Conflict("Another worker has the lease of this task.", path="$.lease", hint="Take another task.")
        if outcome.status != "running":
            return await self.end(task_id, outcome, lease=lease)
        now = self._now()
        lease_until = now + lease_seconds
        extended = msgspec.structs.replace(task, updated_at=now, lease_until=lease_until)
        timer = TaskTimer(at=lease_until, what="lease", task_id=task_id)
        if not await self._store.commit((_update(extended, stored), timer.write()), now):
            return await self.report(task_id, lease, outcome, lease_seconds)
        return extended

    async def release(self, task_id: str) -> None:
        """The lease expired: reopen the task, up to a number of attempts."""
        task, stored = await self._load(task_id)
        now = self._now()
        if task.is_done or task.lease_until is None or task.lease_until > now:
            return
        if task.attempts >= limits.TASK_ATTEMPTS:
            failure = TaskError(
                code="abandoned", message=f"{task.attempts} workers took the task, and none finished it."
            )
            await self.end(task_id, TaskOutcome(status="failed", error=failure))
            return
        reopened = msgspec.structs.replace(task, status="accepted", updated_at=now, lease=None, lease_until=None)
        if await self._store.commit((_update(reopened, stored),), now):
            self._signal(task.queue)

    async def note_sent(self, task_id: str, remote: RemoteTask) -> Task | None:
        """Record the id of a task on the other server; None if it ended in the meantime."""
        for _ in range(_MAX_RETRIES):
            task, stored = await self._load(task_id)
            if task.is_done:
                return None
            noted = msgspec.structs.replace(task, remote=remote, updated_at=self._now())
            name = KeyValueWrite(kind=SENT_TASK_KIND, key=_sent_key(task.agent, remote.task_id), value=task.id.encode())
            ask = TaskTimer(at=self._now() + limits.TASK_POLL_SECONDS[0], what="ask", task_id=task_id)
            if await self._store.commit((_update(noted, stored), name, ask.write()), self._now()):
                return noted
        return None

    async def end(self, task_id: str, outcome: TaskOutcome, *, lease: str | None = None) -> Task:
        """End a task once. Raises Conflict if it has ended, or (with `lease`) if another worker has it."""
        for _ in range(_MAX_RETRIES):
            task, stored = await self._load(task_id)
            if task.is_done:
                raise task_ended_error(task)
            if lease is not None and task.lease != lease:
                raise Conflict("Another worker has the lease of this task.", path="$.lease", hint="Take another task.")
            ended = self._make_ended(task, outcome)
            if await self._store.commit(self._last_writes(ended, stored), self._now()):
                self.wake_up.set()
                await self._remove_oldest(ended)
                return ended
        raise Conflict("The task is being changed concurrently.", path="id", hint="Try again.")

    async def _remove_oldest(self, task: Task) -> None:
        """Results are kept for a day, up to a number of tasks for each caller."""
        prefix = f"{_hash_text(task.caller)} "
        if await self._store.count(DONE_TASK_KIND, self._now(), prefix=prefix) <= limits.TASKS_DONE_PER_CALLER:
            return
        for old in await self._store.scan(DONE_TASK_KIND, self._now(), prefix=prefix, limit=1):
            writes = (
                KeyValueWrite(kind=DONE_TASK_KIND, key=old.key, value=None),
                KeyValueWrite(kind=TASK_KIND, key=old.key.rpartition(" ")[2], value=None),
            )
            await self._store.commit(writes, self._now())

    def _make_ended(self, task: Task, outcome: TaskOutcome) -> Task:
        return msgspec.structs.replace(
            task,
            status=outcome.status,
            input=b"null",  # no longer needed
            updated_at=self._now(),
            lease=None,
            lease_until=None,
            result=outcome.result,
            error=outcome.error,
            callback_state=None if task.callback is None else "pending",
        )

    def _last_writes(self, task: Task, stored: bytes) -> list[KeyValueWrite]:
        expires_at = self._now() + limits.TASK_KEEP_SECONDS
        writes = [
            KeyValueWrite(
                kind=TASK_KIND, key=task.id, value=msgspec.msgpack.encode(task), expires_at=expires_at, expected=stored
            ),
            KeyValueWrite(kind=OPEN_TASK_KIND, key=task.place, value=None),
            KeyValueWrite(kind=CALLER_KIND, key=_caller_key(task), value=None),
            KeyValueWrite(kind=DONE_TASK_KIND, key=_done_key(task), value=b"1", expires_at=expires_at),
            TaskTimer(at=task.expires_at, what="expire", task_id=task.id).removal(),
        ]
        if task.callback is not None:
            writes.append(TaskTimer(at=self._now(), what="tell", task_id=task.id).write())
        if task.remote is not None and task.remote.task_id:
            name = _sent_key(task.agent, task.remote.task_id)
            writes.append(KeyValueWrite(kind=SENT_TASK_KIND, key=name, value=task.id.encode(), expires_at=expires_at))
            if task.status == "cancelled" or (task.error is not None and task.error.code == EXPIRED_CODE):
                writes.append(TaskTimer(at=self._now(), what="stop", task_id=task.id).write())
        return writes

    async def cancel(self, task_id: str) -> Task:
        """Idempotent. Raises Conflict if the task ended otherwise."""
        task = await self.get(task_id)
        if task.status == "cancelled":
            return task
        return await self.end(task_id, TaskOutcome(status="cancelled"))

    async def settle(
        self, timer: TaskTimer, next_timer: TaskTimer | None = None, callback_state: str | None = None
    ) -> None:
        """Remove a timer, set the next one, and record the state of the callback."""
        writes = [timer.removal()]
        if next_timer is not None:
            writes.append(next_timer.write())
        if callback_state is not None:
            task, stored = await self._load(timer.task_id)
            noted = msgspec.structs.replace(task, callback_state=callback_state)
            expires_at = task.updated_at + limits.TASK_KEEP_SECONDS
            value = msgspec.msgpack.encode(noted)
            writes.append(
                KeyValueWrite(kind=TASK_KIND, key=task.id, value=value, expires_at=expires_at, expected=stored)
            )
        await self._store.commit(writes, self._now())

    def _signal(self, queue: str) -> None:
        self.wake_up.set()
        signal = self._signals.pop(queue, None)
        if signal is not None:
            signal.event.set()


def unknown_task_error(task_id: str) -> NotFound:
    """The same text for unknown tasks and those of other callers."""
    return NotFound(f"There is no task {task_id[:64]!r}.", path="id", hint="Use the credential that it was sent with.")


def make_outcome(status: TaskState, code: str, message: str) -> TaskOutcome:
    return TaskOutcome(status=status, error=TaskError(code=code, message=message))


def _update(task: Task, stored: bytes) -> KeyValueWrite:
    return KeyValueWrite(kind=TASK_KIND, key=task.id, value=msgspec.msgpack.encode(task), expected=stored)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _caller_key(task: Task) -> str:
    return f"{_hash_text(task.caller)} {task.id}"


def _done_key(task: Task) -> str:
    return f"{_hash_text(task.caller)} {_sortable(task.updated_at)} {task.id}"


def _idempotency_key(new: NewTask) -> str:
    return _hash_text(f"{new.caller}\0{new.idempotency_key}")


def _sent_key(agent: str, task_id: str) -> str:
    return f"{agent} {_hash_text(task_id)}"
