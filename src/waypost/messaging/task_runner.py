"""Runs tasks: executes the service's own, sends others to their servers, posts callbacks, and enforces time limits.

All pending work is stored, so a killed process continues after its restart: a started task is started again (at most
TASK_ATTEMPTS times), and a callback without a response is sent again. One process of a service runs this, and in a cluster the
node that holds the lease of it. Outgoing requests are
signed, and go through the SSRF guard. A failure is reported only as "not delivered"; the reason is logged, since it could reveal
the network (THREATS S9).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from waypost import limits
from waypost.errors import Conflict, NotFound, WaypostError
from waypost.messaging.request_signatures import AGENT_URI_PREFIX, sign_request, sign_result
from waypost.messaging.tasks import (
    EXPIRED_CODE,
    RemoteTask,
    Task,
    TaskOutcome,
    TaskStore,
    TaskTimer,
    callback_body,
    make_outcome,
    parse_task_outcome,
)
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.adp.agp.messages import SigningKey
from waypost.registry.jobs.periodic import ChoreCheck, do_all_chores
from waypost.registry.ports import FetchResponse, KeyValueStore, KeyValueWrite, OutboundSender

log = logging.getLogger("waypost.messaging")

DELIVERY_KIND = "delivery"

ExecuteTask = Callable[[Task], Awaitable[bytes]]  # returns JSON

FindTasksUrl = Callable[[str], Awaitable[str]]  # where an agent accepts tasks; raises NotFound

FindSigningKey = Callable[[str], SigningKey | None]  # by domain

_JSON_HEADER = ("Content-Type", "application/json")

_TICK_SECONDS = 1.0

_CHORE = "tasks"

_TIMERS_PER_TICK = 256


class RemoteAgentClient:
    """Requests to other agents' servers. `own` is the Agent URI of the service, which signs for agents without a key here.
    `webhook` returns the URL for results of a hosted agent."""

    def __init__(
        self,
        sender: OutboundSender,
        find_key: FindSigningKey,
        own: str,
        webhook: Callable[[str], str | None],
        now: Callable[[], float],
        find_tasks: FindTasksUrl,
    ) -> None:
        self._sender = sender
        self._find_key = find_key
        self._own = own
        self._webhook = webhook
        self._now = now
        self._find_tasks = find_tasks

    def signer(self, agent: str) -> tuple[str, SigningKey]:
        """The agent itself if its key is here, else the service."""
        key = self._find_key(agent.removeprefix(AGENT_URI_PREFIX)) if agent.startswith(AGENT_URI_PREFIX) else None
        if key is not None:
            return agent, key
        own = self._find_key(self._own.removeprefix(AGENT_URI_PREFIX))
        if own is None:
            raise ValueError("The service has no key.")
        return self._own, own

    async def post_result(self, task: Task) -> bool:
        """Returns whether the callback accepted the result."""
        if task.callback is None:
            return True
        return await self.post_callback(task.callback, task.id, task.agent, result_receiver(task), callback_body(task))

    async def post_callback(self, url: str, message_id: str, from_: str, to: str, body: bytes) -> bool:
        """Post a signed message to a callback URL. The signature covers the id."""
        from_, key = self.signer(from_)
        headers = [_JSON_HEADER, *sign_result(key, message_id, from_, to, self._now(), body)]
        response = await self._send(url, "webhook", body=body, headers=headers)
        return response is not None and response.is_success

    async def send_task(self, task: Task) -> RemoteTask | None:
        """Send a task to the agent's server; None if it was not accepted. Raises NotFound if the agent has no server."""
        url = (task.remote.url if task.remote is not None else "") or await self._find_tasks(task.agent)
        document: JsonObject = {"task": task.name, "input": parse_task_input(task)}
        webhook = self._webhook(task.sender or self._own)
        if webhook is not None:
            document["callback"] = webhook
        body = dump_json(document)
        headers = [_JSON_HEADER, ("Idempotency-Key", task.id), *self._signature_headers(task, "POST", url, body)]
        response = await self._send(url, "task", body=body, headers=headers)
        if response is None or response.status not in (200, 201, 202):
            return None
        return _parse_remote_task(url, response)

    async def fetch_outcome(self, task: Task) -> TaskOutcome | None:
        """The outcome of a task on another server; None if it is not known."""
        remote = task.remote
        if remote is None or not remote.status_url:
            return None
        headers = self._signature_headers(task, "GET", remote.status_url, b"")
        response = await self._send(remote.status_url, "task", method="GET", headers=headers)
        if response is None or not response.is_success:
            return None
        try:
            document = parse_object(response.body, max_bytes=2 * limits.TASK_RESULT_BYTES)
            return None if document.get("status") == "accepted" else parse_task_outcome(document)
        except WaypostError as error:
            log.info("invalid status of a sent task: %s", error)
            return None

    async def cancel(self, task: Task) -> None:
        """Cancel a task on another server, by an extension of ours: the draft has no cancellation."""
        remote = task.remote
        if remote is not None and remote.status_url:
            headers = self._signature_headers(task, "DELETE", remote.status_url, b"")
            await self._send(remote.status_url, "task", method="DELETE", headers=headers)

    def _signature_headers(self, task: Task, method: str, url: str, body: bytes) -> list[tuple[str, str]]:
        from_, key = self.signer(task.sender or self._own)
        ids = (str(uuid.uuid4()), from_, task.agent)
        return sign_request(key, ids, method, urlsplit(url).path or "/", self._now(), body)

    async def _send(
        self,
        url: str,
        purpose: str,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse | None:
        try:
            return await self._sender.send(
                url, "task" if purpose == "task" else "webhook", method=method, body=body, headers=headers
            )
        except WaypostError as error:
            log.info("not delivered: %s", error)
            return None


def result_receiver(task: Task) -> str:
    """The receiver of a result: the agent that signed the task, else the host of the callback."""
    if task.subject is None:
        return task.caller
    return AGENT_URI_PREFIX + (urlsplit(task.callback or "").hostname or "")


def parse_task_input(task: Task) -> object:
    return parse_object(b'{"input":%s}' % task.input, max_bytes=2 * limits.TASK_BYTES)["input"]


def _parse_remote_task(url: str, response: FetchResponse) -> RemoteTask | None:
    """P-5: the id and the status URL, which must be on the same server."""
    try:
        document = parse_object(response.body)
    except WaypostError:
        return None
    task_id = document.get("taskId")
    status_url = document.get("statusUrl") or response.headers.get("location") or ""
    status_url = urljoin(url, status_url) if isinstance(status_url, str) else ""
    if urlsplit(status_url)[:2] != urlsplit(url)[:2]:
        status_url = ""
    if not isinstance(task_id, str) or not 0 < len(task_id) <= limits.ID_CHARS:
        return None
    return RemoteTask(url=url, task_id=task_id, status_url=status_url)


class CallbackDelivery(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    url: str
    message_id: str  # covered by the signature
    from_: str
    to: str
    body: bytes
    attempt: int = 0

    @property
    def key(self) -> str:
        return f"{self.at:017.3f} {self.message_id} {self.to}"

    def write(self) -> KeyValueWrite:
        return KeyValueWrite(kind=DELIVERY_KIND, key=self.key, value=msgspec.msgpack.encode(self))

    def removal(self) -> KeyValueWrite:
        return KeyValueWrite(kind=DELIVERY_KIND, key=self.key, value=None)


_decode_delivery = msgspec.msgpack.Decoder(CallbackDelivery).decode


class CallbackQueue:
    """Stored callback messages: each is tried four times. A delivery is committed together with the change that it reports."""

    def __init__(
        self,
        store: KeyValueStore,
        client: RemoteAgentClient,
        now: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._client = client
        self._now = now
        self._chance = chance

    async def deliver_due(self) -> bool:
        """Send due deliveries; returns whether there were any."""
        now = self._now()
        items = await self._store.scan(DELIVERY_KIND, now, limit=limits.CONCURRENT_CALLBACKS)
        due = [delivery for item in items if (delivery := _decode_delivery(item.value)).at <= now]
        await asyncio.gather(*map(self._deliver, due))
        return bool(due)

    async def _deliver(self, delivery: CallbackDelivery) -> None:
        accepted = await self._client.post_callback(
            delivery.url, delivery.message_id, delivery.from_, delivery.to, delivery.body
        )
        writes = [delivery.removal()]
        if not accepted and delivery.attempt < len(limits.CALLBACK_DELAYS_SECONDS):
            delay = limits.CALLBACK_DELAYS_SECONDS[delivery.attempt] * (0.5 + self._chance())
            retry = msgspec.structs.replace(delivery, at=self._now() + delay, attempt=delivery.attempt + 1)
            writes.append(retry.write())
        await self._store.commit(writes, self._now())


class TaskRunner:
    def __init__(
        self,
        tasks: TaskStore,
        execute: ExecuteTask,
        client: RemoteAgentClient,
        deliveries: CallbackQueue,
        *,
        now: Callable[[], float],
        chance: Callable[[], float] = random.random,
        may_do: ChoreCheck = do_all_chores,
    ) -> None:
        """`may_do`: whether this node is to run the tasks of the whole cluster."""
        self._may_do = may_do
        self._tasks = tasks
        self._execute = execute
        self._client = client
        self._deliveries = deliveries
        self._now = now
        self._chance = chance
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run_loop(), name="tasks")

    async def stop(self) -> None:
        """Running work is cancelled, and started again after the next start."""
        for task in (self._loop, *self._running.values()):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._loop = None
        self._running.clear()

    async def _run_loop(self) -> None:
        while True:
            try:
                await self.run_due()
            except WaypostError as error:  # e.g. a full disk: the work is stored, and tried again
                log.warning("tasks: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._tasks.wake_up.wait()
            self._tasks.wake_up.clear()

    async def run_due(self) -> None:
        """Start everything that is due, in tasks of its own."""
        if not await self._may_do(_CHORE):
            return
        for timer in await self._tasks.due(_TIMERS_PER_TICK):
            self._start(f"timer {timer.key}", limits.CONCURRENT_CALLBACKS, "timer ", self._on_timer(timer))
        self._start("deliveries", 1, "deliveries", self._deliver())
        for queue, work in (("own", self._execute_own), ("sent", self._send)):
            async for task in self._tasks.open_tasks(queue):
                if self._count(f"{queue} ") >= limits.CONCURRENT_TASKS:
                    break
                if task.where == "own" or task.remote is None or not task.remote.task_id:
                    self._start(f"{queue} {task.id}", limits.CONCURRENT_TASKS, f"{queue} ", work(task.id))

    async def wait_idle(self) -> None:
        """Wait until all started work is done."""
        while self._running:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start(self, name: str, maximum: int, kind: str, work: Coroutine[Any, Any, None]) -> None:
        if name in self._running or self._count(kind) >= maximum:
            work.close()
            return
        task = self._running[name] = asyncio.create_task(self._run_logged(work), name=name)
        task.add_done_callback(lambda _: self._on_done(name))

    def _count(self, kind: str) -> int:
        return sum(name.startswith(kind) for name in self._running)

    def _on_done(self, name: str) -> None:
        self._running.pop(name, None)
        if name != "deliveries":  # a slot is free
            self._tasks.wake_up.set()

    async def _run_logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Conflict, NotFound):
            pass  # the task ended in the meantime
        except WaypostError as error:
            log.warning("tasks: %s", error)
            await asyncio.sleep(_TICK_SECONDS)

    async def _deliver(self) -> None:
        while await self._deliveries.deliver_due():
            pass

    async def _execute_own(self, task_id: str) -> None:
        task = await self._tasks.start(task_id)
        if task is None:
            return
        if task.attempts > limits.TASK_ATTEMPTS:
            message = f"The service stopped {task.attempts - 1} times while it ran the task."
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

    async def _send(self, task_id: str) -> None:
        task = await self._tasks.start(task_id)
        if task is None:
            return
        if task.attempts > len(limits.CALLBACK_DELAYS_SECONDS) + 1:
            await self._tasks.end(task_id, make_outcome("failed", "unreachable", "The agent is not reachable."))
            return
        try:
            remote = await self._client.send_task(task)
        except NotFound as error:
            await self._tasks.end(task_id, make_outcome("failed", "unresolved", error.message))
            return
        if remote is not None:
            await self._tasks.note_sent(task_id, remote)
        elif task.attempts <= len(limits.CALLBACK_DELAYS_SECONDS):
            await asyncio.sleep(self._delay(task.attempts))

    async def _poll(self, timer: TaskTimer) -> None:
        """Poll the other server for a result that was not posted."""
        task = await self._tasks.get(timer.task_id)
        next_timer = None
        if not task.is_done:
            outcome = await self._client.fetch_outcome(task)
            if outcome is not None and outcome.status != "running":
                await self._tasks.end(task.id, outcome)
            else:
                delay = limits.TASK_POLL_SECONDS[min(timer.attempt + 1, len(limits.TASK_POLL_SECONDS) - 1)]
                next_timer = TaskTimer(
                    at=self._now() + delay, what="ask", task_id=task.id, attempt=min(timer.attempt + 1, 99)
                )
        await self._tasks.settle(timer, next_timer)

    async def _on_timer(self, timer: TaskTimer) -> None:
        work = {
            "expire": self._expire,
            "tell": self._post_callback,
            "lease": self._release,
            "ask": self._poll,
            "stop": self._cancel_remote,
        }
        try:
            await work[timer.what](timer)
        except NotFound:
            await self._tasks.settle(timer)

    async def _expire(self, timer: TaskTimer) -> None:
        with contextlib.suppress(Conflict):
            await self._tasks.end(timer.task_id, make_outcome("failed", EXPIRED_CODE, "The task was not done in time."))
        await self._tasks.settle(timer)

    async def _release(self, timer: TaskTimer) -> None:
        await self._tasks.release(timer.task_id)
        await self._tasks.settle(timer)

    async def _cancel_remote(self, timer: TaskTimer) -> None:
        """Sent once: a server that misses it works on a task that is no longer needed."""
        await self._client.cancel(await self._tasks.get(timer.task_id))
        await self._tasks.settle(timer)

    async def _post_callback(self, timer: TaskTimer) -> None:
        """P-5: post the result to its callback, with three retries."""
        task = await self._tasks.get(timer.task_id)
        if await self._client.post_result(task):
            await self._tasks.settle(timer, callback_state="delivered")
        elif timer.attempt >= len(limits.CALLBACK_DELAYS_SECONDS):
            await self._tasks.settle(timer, callback_state="failed")
        else:
            at = self._now() + self._delay(timer.attempt + 1)
            retry = TaskTimer(at=at, what="tell", task_id=task.id, attempt=timer.attempt + 1)
            await self._tasks.settle(timer, retry)

    def _delay(self, attempt: int) -> float:
        """With jitter, so that many callbacks are not retried at once."""
        return limits.CALLBACK_DELAYS_SECONDS[attempt - 1] * (0.5 + self._chance())
