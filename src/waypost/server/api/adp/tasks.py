"""Tasks over HTTP (adp.md §7, P-5): send, query, cancel; take and report for the owner of an agent; incoming results.

`DELETE /agent/tasks/{id}` cancels a task. An agent that accepts no requests works through `POST /agent/tasks:take` and
`:report`. The service itself performs `discover` and `echo`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from waypost import limits
from waypost.errors import Conflict, InvalidDocument, InvalidParameter, InvalidRequest, Unauthorized
from waypost.messaging.request_signatures import (
    SIGNATURE_HEADER,
    RequestVerifier,
    parse_agent_uri,
    parse_signature_headers,
)
from waypost.messaging.task_runner import parse_task_input
from waypost.messaging.tasks import (
    NewTask,
    Task,
    TaskStore,
    leased_task,
    parse_task_outcome,
    parse_task_request,
    queue_name,
    queued_status,
    sender_status,
    task_status,
    unknown_task_error,
)
from waypost.model.json import JsonObject, dump_json, kind_of, parse_object
from waypost.model.principal import ANONYMOUS, SCOPE_READ, Principal, require_scope
from waypost.registry.ports import OutboundSender as Outgoing
from waypost.responses.messaging import TASK_STATUSES, AcceptedTask, LeasedTaskList, TaskList, TaskStatus
from waypost.server.api.adp.requesters import Requester, Requesters, agent_uri, check_callback
from waypost.server.api.adp.schemas import TEXT, TIME, object_schema
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.request_params import limit_parameter, parse_integer, read_limit
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route

TASK_SCHEMA = object_schema(
    ["task"],
    task={"type": "string", "minLength": 1, "maxLength": limits.TASK_NAME_CHARS},
    input={},
    callback={"type": "string", "format": "uri", "description": "https; the signed result is posted there"},
    ttl_seconds={
        "type": "integer",
        "minimum": limits.TASK_TTL_MIN_SECONDS,
        "maximum": limits.TASK_TTL_MAX_SECONDS,
        "default": limits.TASK_TTL_SECONDS,
    },
)

TAKE_SCHEMA = object_schema(
    ["agent"],
    agent=TEXT,
    limit={"type": "integer", "minimum": 1, "maximum": limits.TASKS_PER_TAKE, "default": 1},
    lease_seconds={
        "type": "integer",
        "minimum": limits.TASK_LEASE_MIN_SECONDS,
        "maximum": limits.TASK_LEASE_MAX_SECONDS,
        "default": limits.TASK_LEASE_SECONDS,
    },
    wait_seconds={"type": "integer", "minimum": 0, "maximum": limits.TASK_WAIT_SECONDS, "default": 0},
)

REPORT_SCHEMA = object_schema(
    ["lease", "status"],
    lease=TEXT,
    status={"enum": ["running", "succeeded", "failed", "cancelled"]},
    result={},
    error=object_schema([], code=TEXT, message=TEXT),
    lease_seconds={"type": "integer"},
)

WEBHOOK_SCHEMA = object_schema(
    ["taskId", "status"],
    taskId=TEXT,
    status={"enum": list(TASK_STATUSES)},
    result={},
    error=object_schema([], code=TEXT, message=TEXT),
    updated=TIME,
)


SERVICE_TASK_NAMES = ("discover", "echo")


class ServiceTasks:
    def __init__(self, find: Callable[[JsonObject, Principal, str], Awaitable[bytes]]) -> None:
        """`find` takes a Discovery Request, the caller and a request id, and returns the bytes of a Discovery Response."""
        self._find = find

    def check(self, name: str, principal: Principal) -> None:
        """Refuse input that could only fail."""
        if name not in SERVICE_TASK_NAMES:
            raise InvalidParameter(
                f"The service does not perform the task {name[:64]!r}.",
                path="$.task",
                hint=f"It performs {' and '.join(SERVICE_TASK_NAMES)}.",
            )
        if name == "discover" and not principal.is_anonymous:
            require_scope(principal, SCOPE_READ)

    async def execute(self, task: Task) -> bytes:
        if task.name == "echo":
            return task.input
        request = parse_task_input(task)
        if not isinstance(request, dict):
            raise InvalidRequest(
                f"The input must be a Discovery Request, not {kind_of(request)}.",
                path="$.input",
                hint='Send {"query": "…"}.',
            )
        return await self._find(request, _task_principal(task), task.id)


def _task_principal(task: Task) -> Principal:
    """The scopes that the task was sent with. A signing agent has those of an anonymous caller."""
    if task.subject is None:
        return ANONYMOUS
    return Principal(subject=task.subject, scopes=frozenset(task.scopes), via="task")


_JSON = b"application/json"

_NOT_STORED = (b"cache-control", b"no-store")

_PRIVATE = (b"cache-control", b"private, no-cache")

_AGENT_PARAMETER = ParameterSpec(
    name="agent",
    description="the agent that is to perform the task; default: the agent that Host selects, else the service",
)

_AS_PARAMETER = ParameterSpec(
    name="as", description="one of your agents, hosted here, on whose behalf the task is sent"
)


class TaskApi:
    def __init__(
        self,
        tasks: TaskStore,
        senders: Requesters,
        own: ServiceTasks,
        signatures: RequestVerifier,
        outgoing: Outgoing,
        origin_of: Callable[[str], str],
    ) -> None:
        """`origin_of`: the base URL of a domain that is hosted here."""
        self._tasks = tasks
        self._senders = senders
        self._own = own
        self._signatures = signatures
        self._outgoing = outgoing
        self._origin_of = origin_of

    def routes(self) -> list[Route]:
        return [*self._sender_routes(), *self._worker_routes()]

    def _sender_routes(self) -> list[Route]:
        """Routes for the sender of a task."""
        return [
            Route(
                method="POST",
                path="/agent/tasks",
                operation="send_task",
                handler=self.send,
                summary="Send a task to an agent",
                parameters=(
                    _AGENT_PARAMETER,
                    _AS_PARAMETER,
                    ParameterSpec(name="Idempotency-Key", place="header", description="makes a retry one task"),
                ),
                body=BodySpec(schema=TASK_SCHEMA),
                answers={202: AcceptedTask},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/tasks/{id}",
                operation="task_status",
                handler=self.status,
                summary="Show the status of a task and its result",
                answers={200: TaskStatus},
                signed=True,
            ),
            Route(
                method="DELETE",
                path="/agent/tasks/{id}",
                operation="cancel_task",
                handler=self.cancel,
                summary="Cancel a task",
                answers={200: TaskStatus},
                signed=True,
            ),
            Route(
                method="GET",
                path="/agent/tasks",
                operation="list_tasks",
                handler=self.list,
                summary="List unfinished tasks: those you sent, or those of one of your agents",
                parameters=(
                    ParameterSpec(name="agent", description="one of your agents"),
                    ParameterSpec(
                        name="status", schema={"enum": ["accepted", "running"]}, description="only tasks in this state"
                    ),
                    limit_parameter(),
                ),
                answers={200: TaskList},
            ),
        ]

    def _worker_routes(self) -> list[Route]:
        """Routes for workers that perform tasks, here or elsewhere."""
        return [
            Route(
                method="POST",
                path="/agent/tasks:take",
                operation="take_tasks",
                handler=self.take,
                summary="Take tasks of one of your agents to work on them",
                body=BodySpec(schema=TAKE_SCHEMA),
                answers={200: LeasedTaskList},
            ),
            Route(
                method="POST",
                path="/agent/tasks/{id}:report",
                operation="report_task",
                handler=self.report,
                summary="Report progress or the result of a task that you took",
                body=BodySpec(schema=REPORT_SCHEMA),
                answers={200: TaskStatus},
            ),
            Route(
                method="POST",
                path="/agent/webhook",
                operation="task_result",
                handler=self.webhook,
                summary="Receive the signed result of a task that this service sent",
                body=BodySpec(schema=WEBHOOK_SCHEMA),
                answers={200: TaskStatus},
                signed=True,
            ),
        ]

    # --- Send ------------------------------------------------------------------------------------

    async def send(self, call: RequestContext) -> AnyResponse:
        body = await call.request.body(limits.TASK_BYTES)
        sender = await self._senders.sender(call, body)
        task_request = parse_task_request(parse_object(body, max_bytes=limits.TASK_BYTES))
        addressee = await self._senders.addressee(call.request, sender)
        sent_as = self._senders.sent_as(call.request, sender)
        if addressee.where == "own":
            self._own.check(task_request.name, sender.principal)
        if task_request.callback is not None:
            check_callback(self._outgoing, sender, task_request.callback)
        new = NewTask(
            agent=addressee.agent,
            where=addressee.where,
            url=addressee.url,
            name=task_request.name,
            input=task_request.input,
            caller=sender.name,
            scopes=tuple(sorted(sender.principal.scopes)),
            callback=task_request.callback,
            ttl_seconds=task_request.ttl_seconds,
            idempotency_key=call.request.header(b"idempotency-key"),
            sender=sent_as,
        )
        task, _ = await self._tasks.accept(new)
        return self._accepted(task, self._senders.domain(call.request), addressee.reason)

    def _accepted(self, task: Task, domain: str, reason: str) -> AnyResponse:
        """The status URL is on the origin that the task was sent to: clients would not trust another one."""
        path = f"/agent/tasks/{task.id}"
        url = f"{self._origin_of(domain)}{path}"
        answer = AcceptedTask(task_id=task.id, status="accepted", status_url=url, reason=reason)
        return json_response(answer, 202, headers=[(b"location", path.encode()), _NOT_STORED])

    # --- Status ----------------------------------------------------------------------------------

    async def status(self, call: RequestContext) -> AnyResponse:
        """The status, with an entity tag because clients poll it, and Last-Modified once it is final."""
        _, task = await self._own_task(call)
        status = sender_status(task)
        settled = task.is_done and status.callback is None
        body = dump_json(status)
        etag = strong_etag(body, _JSON)
        headers = [(b"etag", etag.encode()), (b"last-modified", format_http_date(task.updated_at)), _PRIVATE]
        if is_not_modified(call.request, etag, task.updated_at if settled else None):
            return not_modified_response(call.request, headers, body)
        return Response(200, body, headers=headers)

    async def cancel(self, call: RequestContext) -> AnyResponse:
        _, task = await self._own_task(call)
        return json_response(sender_status(await self._tasks.cancel(task.id)), headers=[_NOT_STORED])

    async def _own_task(self, call: RequestContext) -> tuple[Requester, Task]:
        """Return the task to its sender, to the owner of the agent that performs it, and to admin."""
        sender = await self._senders.sender(call, await call.request.body(limits.REQUEST_BYTES))
        task = await self._tasks.get(call.id)
        if sender.name != task.caller and not sender.principal.is_admin and not self._is_owner(sender, task):
            raise unknown_task_error(call.id)
        return sender, task

    def _is_owner(self, sender: Requester, task: Task) -> bool:
        owner = self._senders.owner_of(task.agent) if task.where != "own" else None
        return owner is not None and sender.agent is None and owner == sender.principal.subject

    async def list(self, call: RequestContext) -> AnyResponse:
        limit = read_limit(call.request)
        status = call.request.param("status")
        if status is not None and status not in TASK_STATUSES:
            raise InvalidParameter(f"{status[:40]!r} is not a status.", path="status", hint="Use accepted or running.")
        agent = self._senders.worked_for(call.request, call.principal)
        if agent is not None:
            found, shown = self._tasks.open_tasks(queue_name(agent)), queued_status
        else:
            found, shown = self._tasks.of_caller(Requester(principal=call.principal).name), sender_status
        chosen: list[TaskStatus] = []
        async for task in found:
            if len(chosen) == limit:
                break
            if status is None or task.status == status:
                chosen.append(shown(task))
        return json_response(TaskList(tasks=tuple(chosen)), headers=[_NOT_STORED])

    # --- Work ------------------------------------------------------------------------------------

    async def take(self, call: RequestContext) -> AnyResponse:
        """Take tasks; without one, wait for the requested time (long polling)."""
        payload = parse_object(await call.request.body(limits.REQUEST_BYTES))
        agent = payload.get("agent")
        if not isinstance(agent, str):
            raise InvalidDocument("Whose tasks?", path="$.agent", hint="Name one of your agents.")
        queue = queue_name(agent_uri(self._senders.owned(call.principal, agent)))
        limit = parse_integer(payload, "limit", 1, 1, limits.TASKS_PER_TAKE)
        lease = _parse_lease(payload)
        wait = parse_integer(payload, "wait_seconds", 0, 0, limits.TASK_WAIT_SECONDS)
        taken = await self._tasks.take(queue, limit, lease)
        if not taken and wait and await self._tasks.wait_for_task(queue, wait):
            taken = await self._tasks.take(queue, limit, lease)
        return json_response(LeasedTaskList(tasks=tuple(map(leased_task, taken))), headers=[_NOT_STORED])

    async def report(self, call: RequestContext) -> AnyResponse:
        payload = parse_object(
            await call.request.body(2 * limits.TASK_RESULT_BYTES), max_bytes=2 * limits.TASK_RESULT_BYTES
        )
        task = await self._tasks.get(call.id)
        owner = self._senders.owner_of(task.agent)
        if not call.principal.is_admin and (owner is None or owner != call.principal.subject):
            raise unknown_task_error(call.id)
        lease = payload.get("lease")
        if not isinstance(lease, str):
            raise InvalidDocument("Which lease?", path="$.lease", hint="Send the lease that came with the task.")
        task = await self._tasks.report(call.id, lease, parse_task_outcome(payload), _parse_lease(payload))
        return json_response(queued_status(task), headers=[_NOT_STORED])

    # --- Incoming results ------------------------------------------------------------------------

    async def webhook(self, call: RequestContext) -> AnyResponse:
        """Accept a result from the agent that the task was sent to. The task is looked up before any key is fetched, so that a
        stranger cannot trigger outgoing requests."""
        body = await call.request.body(2 * limits.TASK_RESULT_BYTES)
        signed = parse_signature_headers(call.request.header)
        if signed is None:
            raise Unauthorized(
                "A result must be signed by the agent that sends it.",
                path=SIGNATURE_HEADER,
                hint="Send the headers ADP-Agent, ADP-Timestamp and ADP-Signature.",
            )
        document = parse_object(body, max_bytes=2 * limits.TASK_RESULT_BYTES)
        task_id = document.get("taskId")
        if not isinstance(task_id, str):
            raise InvalidDocument(
                "The task id is missing.", path="$.taskId", hint="Send the id that the task was given."
            )
        task = await self._tasks.find_sent(parse_agent_uri(signed.agent, "ADP-Agent"), task_id)
        await self._signatures.check_result(signed, task_id, task.sender or self._senders.own, body)
        return json_response(task_status(await self._ended(task, document)), headers=[_NOT_STORED])

    async def _ended(self, task: Task, document: JsonObject) -> Task:
        outcome = parse_task_outcome(document)
        if task.is_done or outcome.status == "running":
            return task
        try:
            return await self._tasks.end(task.id, outcome)
        except Conflict:  # a concurrent duplicate
            return await self._tasks.get(task.id)


def _parse_lease(payload: JsonObject) -> int:
    least, most = limits.TASK_LEASE_MIN_SECONDS, limits.TASK_LEASE_MAX_SECONDS
    return parse_integer(payload, "lease_seconds", limits.TASK_LEASE_SECONDS, least, most)
