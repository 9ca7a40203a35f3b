"""Tasks on the wire (adp.md §7, P-5): send, ask, cancel; take and report, for the owner of an agent; results that come in.

`DELETE /agent/tasks/{id}` cancels. `POST /agent/tasks:take` and `:report` are how an agent works that answers no requests itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waypost import limits
from waypost.errors import Conflict, InvalidDocument, InvalidParameter, Unauthorized
from waypost.meeting.signatures import SIGNATURE, Signatures, parse_agent, read_signed
from waypost.meeting.task import (
    STATUSES,
    NewTask,
    Task,
    parse_asked,
    parse_outcome,
    queue_of,
    status_json,
    told_json,
    waiting_json,
    work_json,
)
from waypost.meeting.tasks import Tasks, no_such_task
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.registry.fetching import Sender as Outgoing
from waypost.server.asgi import AnyResponse, Response, json_response
from waypost.server.conditional import http_date, not_modified, strong_etag
from waypost.server.own_tasks import OwnTasks
from waypost.server.reading import read_limit
from waypost.server.routes import Body, Call, Parameter, Route
from waypost.server.senders import Sender, Senders, agent_uri, check_callback
from waypost.server.tasks_shapes import ACCEPTED, REPORT, TAKE, TASK, TASK_LIST, TASK_STATUS, WEBHOOK, WORK_LIST

_JSON = b"application/json"
_NOT_STORED = (b"cache-control", b"no-store")
_PRIVATE = (b"cache-control", b"private, no-cache")
_AGENT = Parameter(name="agent", description="the agent that is to do it; without it the one of Host, else the service")

_AS = Parameter(name="as", description="an agent of yours, hosted here, in whose name it is sent")


class TaskFace:
    def __init__(
        self,
        tasks: Tasks,
        senders: Senders,
        own: OwnTasks,
        signatures: Signatures,
        outgoing: Outgoing,
        origin_of: Callable[[str], str],
    ) -> None:
        """`origin_of`: where a domain that is served here is reached."""
        self._tasks = tasks
        self._senders = senders
        self._own = own
        self._signatures = signatures
        self._outgoing = outgoing
        self._origin_of = origin_of

    def routes(self) -> list[Route]:
        return [*self._sender_routes(), *self._worker_routes()]

    def _sender_routes(self) -> list[Route]:
        """For who gives a task, and asks how it goes."""
        return [
            Route(
                method="POST",
                path="/agent/tasks",
                operation="send_task",
                handler=self.send,
                summary="Give an agent a task",
                parameters=(_AGENT, _AS, Parameter(name="Idempotency-Key", place="header")),
                body=Body(schema=TASK),
                answers={202: Body(schema=ACCEPTED)},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/tasks/{id}",
                operation="task_status",
                handler=self.status,
                summary="How a task goes, and its result",
                answers={200: Body(schema=TASK_STATUS)},
                signed=True,
            ),
            Route(
                method="DELETE",
                path="/agent/tasks/{id}",
                operation="cancel_task",
                handler=self.cancel,
                summary="Cancel a task",
                answers={200: Body(schema=TASK_STATUS)},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/tasks",
                operation="list_tasks",
                handler=self.list,
                summary="Tasks that are not done: those that you sent, or those of an agent of yours",
                parameters=(
                    Parameter(name="agent", description="an agent of yours"),
                    Parameter(name="status", schema={"enum": ["accepted", "running"]}),
                    Parameter(name="limit", schema={"type": "integer"}),
                ),
                answers={200: Body(schema=TASK_LIST)},
            ),
        ]

    def _worker_routes(self) -> list[Route]:
        """For who does the work, here or elsewhere."""
        return [
            Route(
                method="POST",
                path="/agent/tasks:take",
                operation="take_tasks",
                handler=self.take,
                summary="Take tasks of an agent of yours, to work on them",
                body=Body(schema=TAKE),
                answers={200: Body(schema=WORK_LIST)},
            ),
            Route(
                method="POST",
                path="/agent/tasks/{id}:report",
                operation="report_task",
                handler=self.report,
                summary="Say that a task which you took goes on, or how it ended",
                body=Body(schema=REPORT),
                answers={200: Body(schema=TASK_STATUS)},
            ),
            Route(
                method="POST",
                path="/agent/webhook",
                operation="task_result",
                handler=self.webhook,
                summary="Take the signed result of a task that this service sent",
                body=Body(schema=WEBHOOK),
                answers={200: Body(schema=TASK_STATUS)},
                signed=True,
            ),
        ]

    # --- Sending ---------------------------------------------------------------------------------

    async def send(self, call: Call) -> AnyResponse:
        body = await call.request.body(limits.TASK_BYTES)
        sender = await self._senders.sender(call, body)
        asked = parse_asked(parse_object(body, max_bytes=limits.TASK_BYTES))
        addressee = await self._senders.addressee(call.request, sender)
        sent_as = self._senders.sent_as(call.request, sender)
        if addressee.where == "own":
            self._own.check(asked.name, sender.principal)
        if asked.callback is not None:
            check_callback(self._outgoing, sender, asked.callback)
        new = NewTask(
            agent=addressee.agent,
            where=addressee.where,
            url=addressee.url,
            name=asked.name,
            input=asked.input,
            caller=sender.name,
            scopes=tuple(sorted(sender.principal.scopes)),
            callback=asked.callback,
            ttl_seconds=asked.ttl_seconds,
            idempotency_key=call.request.header(b"idempotency-key"),
            sender=sent_as,
        )
        task, _ = await self._tasks.accept(new)
        return self._accepted(task, self._senders.domain(call.request))

    def _accepted(self, task: Task, domain: str) -> AnyResponse:
        """The status is asked for where the task was sent: elsewhere nobody would believe the address."""
        path = f"/agent/tasks/{task.id}"
        answer = {"taskId": task.id, "status": "accepted", "statusUrl": f"{self._origin_of(domain)}{path}"}
        return json_response(answer, 202, headers=[(b"location", path.encode()), _NOT_STORED])

    # --- Asking ----------------------------------------------------------------------------------

    async def status(self, call: Call) -> AnyResponse:
        """Asked again and again, so it is told only when it changed. Its time tells that once nothing more can change."""
        _, task = await self._own_task(call)
        told = told_json(task)
        settled = task.is_done and "callback" not in told
        body = dump_json(told)
        etag = strong_etag(body, _JSON)
        headers = [(b"etag", etag.encode()), (b"last-modified", http_date(task.updated_at)), _PRIVATE]
        if not_modified(call.request, etag, task.updated_at if settled else None):
            return Response(304, headers=headers)
        return Response(200, body, headers=headers)

    async def cancel(self, call: Call) -> AnyResponse:
        _, task = await self._own_task(call)
        return json_response(told_json(await self._tasks.cancel(task.id)), headers=[_NOT_STORED])

    async def _own_task(self, call: Call) -> tuple[Sender, Task]:
        """The task, for who sent it, for the owner of the agent that does it, and for admin."""
        sender = await self._senders.sender(call, await call.request.body(limits.REQUEST_BYTES))
        task = await self._tasks.get(call.id)
        if sender.name != task.caller and not sender.principal.is_admin and not self._is_owner(sender, task):
            raise no_such_task(call.id)
        return sender, task

    def _is_owner(self, sender: Sender, task: Task) -> bool:
        owner = self._senders.owner_of(task.agent) if task.where != "own" else None
        return owner is not None and sender.agent is None and owner == sender.principal.subject

    async def list(self, call: Call) -> AnyResponse:
        limit = read_limit(call.request)
        status = call.request.param("status")
        if status is not None and status not in STATUSES:
            raise InvalidParameter(f"{status[:40]!r} is not a status.", path="status", hint="Use accepted or running.")
        agent = self._senders.worked_for(call.request, call.principal)
        if agent is not None:
            found, shown = self._tasks.waiting(queue_of(agent)), waiting_json
        else:
            found, shown = self._tasks.of_caller(Sender(principal=call.principal).name), told_json
        chosen: list[JsonObject] = []
        async for task in found:
            if len(chosen) == limit:
                break
            if status is None or task.status == status:
                chosen.append(shown(task))
        return json_response({"tasks": chosen}, headers=[_NOT_STORED])

    # --- Working ---------------------------------------------------------------------------------

    async def take(self, call: Call) -> AnyResponse:
        """Without a task that waits, the answer waits too, if it was asked to."""
        asked = parse_object(await call.request.body(limits.REQUEST_BYTES))
        agent = asked.get("agent")
        if not isinstance(agent, str):
            raise InvalidDocument("Whose tasks?", path="$.agent", hint="Name an agent of yours.")
        queue = queue_of(agent_uri(self._senders.owned(call.principal, agent)))
        limit = _whole(asked, "limit", 1, 1, limits.TASKS_TAKEN)
        lease = _lease(asked)
        wait = _whole(asked, "wait_seconds", 0, 0, limits.TASK_WAIT_SECONDS)
        taken = await self._tasks.take(queue, limit, lease)
        if not taken and wait and await self._tasks.arrival(queue, wait):
            taken = await self._tasks.take(queue, limit, lease)
        return json_response({"tasks": [work_json(task) for task in taken]}, headers=[_NOT_STORED])

    async def report(self, call: Call) -> AnyResponse:
        asked = parse_object(
            await call.request.body(2 * limits.TASK_RESULT_BYTES), max_bytes=2 * limits.TASK_RESULT_BYTES
        )
        task = await self._tasks.get(call.id)
        owner = self._senders.owner_of(task.agent)
        if not call.principal.is_admin and (owner is None or owner != call.principal.subject):
            raise no_such_task(call.id)
        lease = asked.get("lease")
        if not isinstance(lease, str):
            raise InvalidDocument("Which lease?", path="$.lease", hint="Send the one that came with the task.")
        task = await self._tasks.report(call.id, lease, parse_outcome(asked), _lease(asked))
        return json_response(waiting_json(task), headers=[_NOT_STORED])

    # --- Results from elsewhere ------------------------------------------------------------------

    async def webhook(self, call: Call) -> AnyResponse:
        """Only the agent that a task was sent to ends it. Whether there is such a task is looked at before anybody is asked
        for a key: a stranger makes us ask nobody."""
        body = await call.request.body(2 * limits.TASK_RESULT_BYTES)
        signed = read_signed(call.request.header)
        if signed is None:
            raise Unauthorized(
                "A result is signed by the agent that it comes from.", path=SIGNATURE, hint="Send the headers of P-5."
            )
        document = parse_object(body, max_bytes=2 * limits.TASK_RESULT_BYTES)
        task_id = document.get("taskId")
        if not isinstance(task_id, str):
            raise InvalidDocument("Of which task?", path="$.taskId", hint="Send the id that was given for it.")
        task = await self._tasks.sent_as(parse_agent(signed.agent, "ADP-Agent"), task_id)
        await self._signatures.check_result(signed, task_id, task.sender or self._senders.own, body)
        return json_response(status_json(await self._ended(task, document)), headers=[_NOT_STORED])

    async def _ended(self, task: Task, document: JsonObject) -> Task:
        outcome = parse_outcome(document)
        if task.is_done or outcome.status == "running":
            return task
        try:
            return await self._tasks.end(task.id, outcome)
        except Conflict:  # it came twice at once
            return await self._tasks.get(task.id)


def _whole(asked: JsonObject, name: str, default: int, least: int, most: int) -> int:
    value: Any = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidParameter(
            f"{name} is a whole number from {least} to {most}.", path=f"$.{name}", hint=f"Leave it out for {default}."
        )
    return value


def _lease(asked: JsonObject) -> int:
    least, most = limits.TASK_LEASE_MIN_SECONDS, limits.TASK_LEASE_MAX_SECONDS
    return _whole(asked, "lease_seconds", limits.TASK_LEASE_SECONDS, least, most)
