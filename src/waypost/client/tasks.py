"""Where results of tasks and news of swarms are posted to (`callback`): an ASGI application for a program of one's own.

It takes what an agent signed for ours (adp.md §7, P-5), hands it over once, and answers when the handler is done: what fails is
posted again. It knows no server; mount it in one that speaks https.
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

CALLBACK_KIND = "callback"  # by agent, sender and id: what was handed over

_IDS = ("messageId", "taskId")

_BODY_BYTES = 2 * limits.TASK_RESULT_BYTES


class ReceivedCallback(msgspec.Struct, frozen=True, kw_only=True):
    """What another agent posted: the status of a task that ended, or what was told in a swarm."""

    id: str
    sender: str  # who signed it
    document: JsonObject

    @property
    def is_result(self) -> bool:
        return "taskId" in self.document


CallbackHandler = Callable[[ReceivedCallback], Awaitable[None]]

_Scope = MutableMapping[str, Any]

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class CallbackReceiver:
    """The application. `LiveAgent.callbacks` makes one for its agent."""

    def __init__(
        self,
        agent: str,
        peers: PeerKeySource,
        keeper: KeyValueStore,
        handler: CallbackHandler,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._agent = agent
        self._peers = peers
        self._keeper = keeper
        self._handler = handler
        self._now = now
        self._signatures = RequestVerifier(self._key_of, keeper, now)
        self._working: set[str] = set()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            raise InvalidRequest("This takes requests only.", path="callback", hint="Mount it under a path of its own.")
        status, body = 204, b""
        try:
            await self._take(scope, receive)
        except WaypostError as error:
            status, body = error_codes(error).http, dump_json({"code": error.code, "message": str(error)})
        headers = [(b"content-type", b"application/json")] if body else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _take(self, scope: _Scope, receive: _Receive) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        signed = parse_signature_headers(lambda name: headers[name].decode("latin-1") if name in headers else None)
        if scope["method"] != "POST" or signed is None:
            raise Unauthorized("What is posted here is signed.", path=SIGNATURE_HEADER, hint="Send the headers of P-5.")
        body = await _read_body(receive)
        document = parse_object(body, max_bytes=_BODY_BYTES)
        posted_id = next((document[name] for name in _IDS if isinstance(document.get(name), str)), None)
        if posted_id is None or not 0 < len(posted_id) <= limits.ID_CHARS:
            raise InvalidDocument(
                "Of what is this?", path="$.messageId", hint="Send the id of the message or the task."
            )
        await self._signatures.check_result(signed, posted_id, self._agent, body)
        await self._hand_over(ReceivedCallback(id=posted_id, sender=signed.agent, document=document))

    async def _hand_over(self, posted: ReceivedCallback) -> None:
        """Once: whoever posts it again may have missed our answer."""
        key = f"{self._agent} {posted.sender} {posted.id}"
        if await self._keeper.get(CALLBACK_KIND, key, self._now()) is not None:
            return
        if key in self._working:
            raise Conflict("This is being handed over.", path="$.messageId", hint="Post it again later.")
        self._working.add(key)
        try:
            await self._handler(posted)
            ends = self._now() + limits.AGP_DEDUP_SECONDS
            await self._keeper.commit(
                [KeyValueWrite(kind=CALLBACK_KIND, key=key, value=b"1", expires_at=ends)], self._now()
            )
        finally:
            self._working.discard(key)

    async def _key_of(self, agent: str) -> VerifyingKey | None:
        found = await self._peers.key_of(agent)
        return None if found is None else found.key


async def _read_body(receive: _Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > _BODY_BYTES:
            raise TooLarge(f"At most {_BODY_BYTES} bytes are taken.", path="$", hint="Send a smaller result.")
        if not message.get("more_body", False):
            return b"".join(parts)


# ---- A worker: takes the tasks of an agent that answers no requests itself, does them, and reports.
#
#     async def translate(work): return {"text": …}
#     await serve_tasks(client, "agent:alice.example.com", {"translate": translate})
#
# A task that takes long keeps its lease. What a handler raises is told as the task's failure; it ends no other task.

log = logging.getLogger("waypost.client")

TaskHandler = Callable[[LeasedTask], Awaitable[Any]]

_RENEW_PART = 3  # of a lease, after which it is prolonged


async def serve_tasks(
    client: Client,
    agent: str,
    handlers: Mapping[str, TaskHandler],
    *,
    at_once: int = 4,
    lease_seconds: int = limits.TASK_LEASE_SECONDS,
    wait_seconds: int = limits.TASK_WAIT_SECONDS,
) -> None:
    """Work until cancelled. What is under way then is given up; its lease ends, and another worker takes it."""
    retry, failures = Retry(), 0
    async with asyncio.TaskGroup() as group:
        working: set[asyncio.Task[None]] = set()
        while True:
            if len(working) >= at_once:
                await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                taken = await client.take_tasks(
                    agent, limit=at_once - len(working), lease_seconds=lease_seconds, wait_seconds=wait_seconds
                )
                failures = 0
            except (Unavailable, RateLimited) as error:
                failures += 1
                log.warning("no tasks can be taken now: %s", error)
                await asyncio.sleep(error.retry_after or retry.backoff(failures, 1.0))
                continue
            for work in taken:
                task = group.create_task(_run_task(client, work, handlers.get(work.task), lease_seconds))
                working.add(task)
                task.add_done_callback(working.discard)


async def _run_task(client: Client, work: LeasedTask, handler: TaskHandler | None, lease_seconds: int) -> None:
    if handler is None:
        await _report(client, work, "failed", error={"code": "unknown_task", "message": f"No task {work.task!r}."})
        return
    renewing = asyncio.create_task(_renew_lease(client, work, lease_seconds))
    try:
        result = await handler(work)
    except WaypostError as error:
        await _report(client, work, "failed", error={"code": error.code, "message": str(error)})
    except Exception as error:  # a handler is the user's code: whatever it raises is its task's failure
        log.exception("the task %s failed", work.task_id)
        await _report(client, work, "failed", error={"code": "failed", "message": f"{type(error).__name__}"})
    else:
        await _report(client, work, "succeeded", result=result)
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


async def _renew_lease(client: Client, work: LeasedTask, lease_seconds: int) -> None:
    """Prolong the lease while the handler works."""
    while True:
        await asyncio.sleep(lease_seconds / _RENEW_PART)
        await _report(client, work, "running", lease_seconds=lease_seconds)


async def _report(client: Client, work: LeasedTask, status: str, **members: Any) -> None:
    try:
        await client.report_task(work.task_id, work.lease, status, **members)
    except (Conflict, NotFound) as error:
        log.info("the task %s is no longer ours: %s", work.task_id, error)
    except WaypostError as error:
        log.warning("the task %s could not be reported: %s", work.task_id, error)
