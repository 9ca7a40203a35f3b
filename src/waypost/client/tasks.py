"""Work for an agent in a program: an ASGI application that receives callbacks, and a worker that performs tasks.

async def translate(task): return {"text": …}
await serve_tasks(client, "agent:alice.example.com", {"translate": translate})
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from waypost import limits
from waypost.client.aio.client import Client
from waypost.client.http import Retry
from waypost.errors import (
    Conflict,
    InvalidDocument,
    InvalidRequest,
    NotFound,
    RateLimited,
    TooLarge,
    Unauthorized,
    Unavailable,
    WaypostError,
    error_codes,
)
from waypost.messaging.peers import PeerKeySource
from waypost.messaging.request_signatures import SIGNATURE_HEADER, RequestVerifier, parse_signature_headers
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.adp.agp.messages import VerifyingKey
from waypost.registry.ports import KeyValueStore, KeyValueWrite
from waypost.responses.messaging import LeasedTask

log = logging.getLogger("waypost.client")

CALLBACK_KIND = "callback"  # stored by agent, sender and id: callbacks that were handled

_ID_MEMBERS = ("messageId", "taskId")
_BODY_BYTES = 2 * limits.TASK_RESULT_BYTES
_RENEWALS_PER_LEASE = 3

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ReceivedCallback(msgspec.Struct, frozen=True, kw_only=True):
    """What another agent posted: the status of a task that ended, or a message of a swarm."""

    id: str
    sender: str  # the agent that signed it
    document: JsonObject

    @property
    def is_result(self) -> bool:
        """True for the status of a task."""
        return "taskId" in self.document


CallbackHandler = Callable[[ReceivedCallback], Awaitable[None]]
TaskHandler = Callable[[LeasedTask], Awaitable[Any]]


class CallbackReceiver:
    """An ASGI application for the `callback` of tasks and swarms (adp.md §7, P-5). `LiveAgent.callbacks` creates one.

    It verifies the signature, calls the handler once for each callback, and responds when the handler returns, so that the
    sender repeats a failed delivery. Mount it in a server with HTTPS.
    """

    def __init__(
        self,
        agent: str,
        peers: PeerKeySource,
        store: KeyValueStore,
        handler: CallbackHandler,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create the application.

        Args:
            agent: The agent that the callbacks are for.
            peers: Finds the keys of senders.
            store: Remembers the callbacks that were handled.
            handler: Called with each callback. It is called again for a callback that it failed on.
            now: The clock.
        """
        self._agent = agent
        self._peers = peers
        self._store = store
        self._handler = handler
        self._now = now
        self._signatures = RequestVerifier(self._key_of, store, now)
        self._in_progress: set[str] = set()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Handle one request (ASGI)."""
        if scope["type"] != "http":
            raise InvalidRequest(
                "Only HTTP requests are accepted.", path="callback", hint="Mount it under a path of its own."
            )
        status, body = 204, b""
        try:
            await self._receive(scope, receive)
        except WaypostError as error:
            status, body = error_codes(error).http, dump_json({"code": error.code, "message": str(error)})
        headers = [(b"content-type", b"application/json")] if body else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _receive(self, scope: _Scope, receive: _Receive) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        signature = parse_signature_headers(lambda name: headers[name].decode("latin-1") if name in headers else None)
        if scope["method"] != "POST" or signature is None:
            raise Unauthorized(
                "A callback must be signed.",
                path=SIGNATURE_HEADER,
                hint="Send the headers ADP-Agent, ADP-Timestamp and ADP-Signature.",
            )
        body = await _read_body(receive)
        document = parse_object(body, max_bytes=_BODY_BYTES)
        callback_id = next((document[name] for name in _ID_MEMBERS if isinstance(document.get(name), str)), None)
        if callback_id is None or not 0 < len(callback_id) <= limits.ID_CHARS:
            raise InvalidDocument(
                "The id is missing.",
                path="$.messageId",
                hint="Send the messageId of a message or the taskId of a task.",
            )
        await self._signatures.check_result(signature, callback_id, self._agent, body)
        await self._handle_once(ReceivedCallback(id=callback_id, sender=signature.agent, document=document))

    async def _handle_once(self, callback: ReceivedCallback) -> None:
        """A sender that missed our response posts again: respond as before, without the handler."""
        key = f"{self._agent} {callback.sender} {callback.id}"
        if await self._store.get(CALLBACK_KIND, key, self._now()) is not None:
            return
        if key in self._in_progress:
            raise Conflict("This callback is being handled.", path="$.messageId", hint="Post it again later.")
        self._in_progress.add(key)
        try:
            await self._handler(callback)
            expires_at = self._now() + limits.AGP_DEDUP_SECONDS
            await self._store.commit(
                [KeyValueWrite(kind=CALLBACK_KIND, key=key, value=b"1", expires_at=expires_at)], self._now()
            )
        finally:
            self._in_progress.discard(key)

    async def _key_of(self, agent: str) -> VerifyingKey | None:
        found = await self._peers.key_of(agent)
        return None if found is None else found.key


async def _read_body(receive: _Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > _BODY_BYTES:
            raise TooLarge(f"A callback has at most {_BODY_BYTES} bytes.", path="$", hint="Send a smaller result.")
        if not message.get("more_body", False):
            return b"".join(parts)


async def serve_tasks(
    client: Client,
    agent: str,
    handlers: Mapping[str, TaskHandler],
    *,
    at_once: int = 4,
    lease_seconds: int = limits.TASK_LEASE_SECONDS,
    wait_seconds: int = limits.TASK_WAIT_SECONDS,
) -> None:
    """Take tasks of an agent, perform them and report, until cancelled.

    The lease of a task is renewed while its handler runs. An exception of a handler is reported as the failure of its task.
    Cancellation abandons the running tasks; when their leases end, another worker takes them.

    Args:
        client: The client of the service that has the tasks.
        agent: The agent; the caller owns it.
        handlers: By the name of a task: called with the task, returns its result.
        at_once: How many tasks run at the same time.
        lease_seconds: The lease of a task.
        wait_seconds: How long a request waits for a task.
    """
    retry, failures = Retry(), 0
    async with asyncio.TaskGroup() as group:
        running: set[asyncio.Task[None]] = set()
        while True:
            if len(running) >= at_once:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                taken = await client.take_tasks(
                    agent, limit=at_once - len(running), lease_seconds=lease_seconds, wait_seconds=wait_seconds
                )
                failures = 0
            except (Unavailable, RateLimited) as error:
                failures += 1
                log.warning("cannot take tasks: %s", error)
                await asyncio.sleep(error.retry_after or retry.backoff(failures, 1.0))
                continue
            for leased in taken:
                task = group.create_task(_run_task(client, leased, handlers.get(leased.task), lease_seconds))
                running.add(task)
                task.add_done_callback(running.discard)


async def _run_task(client: Client, task: LeasedTask, handler: TaskHandler | None, lease_seconds: int) -> None:
    if handler is None:
        await _report(client, task, "failed", error={"code": "unknown_task", "message": f"No task {task.task!r}."})
        return
    renewal = asyncio.create_task(_renew_lease(client, task, lease_seconds))
    try:
        result = await handler(task)
    except WaypostError as error:
        await _report(client, task, "failed", error={"code": error.code, "message": str(error)})
    except Exception as error:  # user code: any exception is the failure of this task
        log.exception("task %s failed", task.task_id)
        await _report(client, task, "failed", error={"code": "failed", "message": type(error).__name__})
    else:
        await _report(client, task, "succeeded", result=result)
    finally:
        renewal.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewal


async def _renew_lease(client: Client, task: LeasedTask, lease_seconds: int) -> None:
    while True:
        await asyncio.sleep(lease_seconds / _RENEWALS_PER_LEASE)
        await _report(client, task, "running", lease_seconds=lease_seconds)


async def _report(client: Client, task: LeasedTask, status: str, **members: Any) -> None:
    try:
        await client.report_task(task.task_id, task.lease, status, **members)
    except (Conflict, NotFound) as error:
        log.info("task %s belongs to another worker now: %s", task.task_id, error)
    except WaypostError as error:
        log.warning("cannot report task %s: %s", task.task_id, error)
