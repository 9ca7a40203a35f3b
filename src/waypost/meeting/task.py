"""A task: what is asked of an agent, how far it is, and what came of it (adp.md §7, P-5). Values and rules, no storage.

    accepted → running → succeeded | failed | cancelled
        ↑         │
        └─────────┘   a worker that is silent loses it

Who works on it: `own` is the service itself, `kept` an agent whose owner takes tasks away, `sent` another server.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import Conflict, InvalidDocument, InvalidParameter
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339

Status = Literal["accepted", "running", "succeeded", "failed", "cancelled"]
Where = Literal["own", "kept", "sent"]
DONE = frozenset(("succeeded", "failed", "cancelled"))
STATUSES = ("accepted", "running", "succeeded", "failed", "cancelled")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task was sent, and under which name it goes there."""

    url: str
    task_id: str = ""
    status_url: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent: str  # the Agent URI for whom it is
    where: Where
    name: str
    input: bytes  # JSON
    caller: str  # `subject NAME`, or the Agent URI that signed
    scopes: tuple[str, ...] = ()  # the rights it was sent with
    status: Status = "accepted"
    callback: str | None = None
    created_at: float
    updated_at: float
    expires_at: float
    attempts: int = 0
    lease: str | None = None  # of the worker that has it
    lease_until: float | None = None
    result: bytes | None = None  # JSON
    error: Failure | None = None
    told: Literal["pending", "delivered", "failed"] | None = None  # the callback
    remote: Remote | None = None
    sender: str | None = None  # the agent hosted here that it is sent as

    @property
    def is_done(self) -> bool:
        return self.status in DONE

    @property
    def queue(self) -> str:
        """Among which tasks it waits."""
        return queue_of(self.agent) if self.where == "kept" else self.where

    @property
    def place(self) -> str:
        """Its key among the open ones: the oldest first."""
        return f"{self.queue} {self.created_at:017.3f} {self.id}"

    @property
    def subject(self) -> str | None:
        """Who sent it with a token; None when an agent signed it."""
        kind, _, name = self.caller.partition(" ")
        return name if kind == "subject" else None


def queue_of(agent: str) -> str:
    """Where the tasks of an agent wait that is not the service: a name without spaces, whatever its id is."""
    return hashlib.sha256(agent.encode()).hexdigest()[:32]


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it was asked for, with who asks and who is to do it."""

    agent: str
    where: Where
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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /agent/tasks` (ADP-44)."""

    name: str
    input: Any = None
    callback: str | None = None
    ttl_seconds: int = limits.TASK_TTL_SECONDS


def parse_asked(document: JsonObject) -> Asked:
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
    return Asked(name=name, input=document.get("input"), callback=callback, ttl_seconds=_ttl(document))


def _ttl(document: JsonObject) -> int:
    value = document.get("ttl_seconds", limits.TASK_TTL_SECONDS)
    least, most = limits.TASK_TTL_MIN_SECONDS, limits.TASK_TTL_MAX_SECONDS
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidParameter(
            f"A task lives from {least} to {most} seconds.", path="$.ttl_seconds", hint="Leave it out for a day."
        )
    return value


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of its task."""

    status: Status
    result: bytes | None = None
    error: Failure | None = None


def parse_outcome(document: JsonObject, path: str = "$") -> Outcome:
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
    return Outcome(status=status, result=result, error=_failure(status, error))


def _failure(status: str, error: JsonObject | None) -> Failure | None:
    if status != "failed":
        return None
    error = error or {}
    code, message = str(error.get("code", "failed"))[:64], str(error.get("message", "The task failed."))[:1000]
    return Failure(code=code, message=message)


def is_ended(task: Task) -> Conflict:
    """What is told to whoever wants to change a task that is done."""
    return Conflict(
        f"The task is {task.status} already.", path="id", hint="Ask for its status; send a new task for new work."
    )


def status_json(task: Task) -> JsonObject:
    """The status object of P-5. A callback brings the same."""
    answer: JsonObject = {"taskId": task.id, "status": task.status, "updated": to_rfc3339(task.updated_at)}
    if task.result is not None:
        answer["result"] = msgspec.Raw(task.result)
    if task.error is not None:
        answer["error"] = {"code": task.error.code, "message": task.error.message}
    return answer


def told_json(task: Task) -> JsonObject:
    """The status for whoever sent the task: with what it was, and whether its callback was told."""
    answer = status_json(task) | {"task": task.name, "agent": task.agent, "expires": to_rfc3339(task.expires_at)}
    if task.callback is not None:
        answer["callback"] = {"url": task.callback, "state": task.told or "pending"}
    return answer


def waiting_json(task: Task) -> JsonObject:
    """A task for whoever may do it."""
    return status_json(task) | {
        "task": task.name,
        "agent": task.agent,
        "from": task.sender or task.caller.removeprefix("subject "),
        "expires": to_rfc3339(task.expires_at),
    }


def work_json(task: Task) -> JsonObject:
    """A task for whoever does it."""
    answer = waiting_json(task) | {"input": msgspec.Raw(task.input)}
    if task.lease is not None and task.lease_until is not None:
        answer |= {"lease": task.lease, "leaseUntil": to_rfc3339(task.lease_until)}
    return answer


def callback_body(task: Task) -> bytes:
    return dump_json(status_json(task))
