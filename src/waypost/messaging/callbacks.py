"""What a task needs of others: a result is brought to its callback, a task is sent to another server, and asked for there.

Everything goes out signed, through the one way out. Whatever fails is only "not delivered": why, is in our log and told to nobody
who could map a network by it (THREATS S9).
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urljoin, urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.messaging.request_signatures import AGENT_URI_PREFIX, sign_request, sign_result
from waypost.messaging.tasks import RemoteTask, Task, TaskOutcome, callback_body, parse_task_outcome
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.protocols.adp.agp.messages import SigningKey
from waypost.registry.ports import FetchResponse, KeyValueStore, KeyValueWrite, OutboundSender

log = logging.getLogger("waypost.messaging")

FindTasksUrl = Callable[[str], Awaitable[str]]  # where an agent takes tasks; NotFound

FindSigningKey = Callable[[str], SigningKey | None]  # by domain

_JSON_HEADER = ("Content-Type", "application/json")


class RemoteAgentClient:
    """`own` is the service's Agent URI: it signs for agents that have no key here. `webhook` says where results are to come
    for an agent that is served here."""

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
        """Who signs what is said for an agent: itself, if its key is here."""
        key = self._find_key(agent.removeprefix(AGENT_URI_PREFIX)) if agent.startswith(AGENT_URI_PREFIX) else None
        if key is not None:
            return agent, key
        own = self._find_key(self._own.removeprefix(AGENT_URI_PREFIX))
        if own is None:
            raise ValueError("A service has a key of its own.")
        return self._own, own

    async def post_result(self, task: Task) -> bool:
        """Whether the callback took it."""
        if task.callback is None:
            return True
        return await self.post_callback(task.callback, task.id, task.agent, result_receiver(task), callback_body(task))

    async def post_callback(self, url: str, message_id: str, from_: str, to: str, body: bytes) -> bool:
        """A signed message to an address that somebody named. The id goes into what is signed."""
        from_, key = self.signer(from_)
        headers = [_JSON_HEADER, *sign_result(key, message_id, from_, to, self._now(), body)]
        answer = await self._try(url, "webhook", body=body, headers=headers)
        return answer is not None and answer.is_success

    async def send_task(self, task: Task) -> RemoteTask | None:
        """Where it goes under which name; None when it was not taken, NotFound when there is nowhere to send it."""
        url = (task.remote.url if task.remote is not None else "") or await self._find_tasks(task.agent)
        wanted: JsonObject = {"task": task.name, "input": parse_task_input(task)}
        webhook = self._webhook(task.sender or self._own)
        if webhook is not None:
            wanted["callback"] = webhook
        body = dump_json(wanted)
        headers = [_JSON_HEADER, ("Idempotency-Key", task.id), *self._signed(task, "POST", url, body)]
        answer = await self._try(url, "task", body=body, headers=headers)
        if answer is None or answer.status not in (200, 201, 202):
            return None
        return _parse_remote_task(url, answer)

    async def ask(self, task: Task) -> TaskOutcome | None:
        """How a task goes where it was sent; None when nobody can say."""
        remote = task.remote
        if remote is None or not remote.status_url:
            return None
        headers = self._signed(task, "GET", remote.status_url, b"")
        answer = await self._try(remote.status_url, "task", method="GET", headers=headers)
        if answer is None or not answer.is_success:
            return None
        try:
            document = parse_object(answer.body, max_bytes=2 * limits.TASK_RESULT_BYTES)
            return None if document.get("status") == "accepted" else parse_task_outcome(document)
        except WaypostError as error:
            log.info("the status of a task that was sent cannot be read: %s", error)
            return None

    async def stop(self, task: Task) -> None:
        """Cancel a task where it was sent, by our own way to do so: the draft has none."""
        remote = task.remote
        if remote is not None and remote.status_url:
            headers = self._signed(task, "DELETE", remote.status_url, b"")
            await self._try(remote.status_url, "task", method="DELETE", headers=headers)

    def _signed(self, task: Task, method: str, url: str, body: bytes) -> list[tuple[str, str]]:
        from_, key = self.signer(task.sender or self._own)
        signed = (str(uuid.uuid4()), from_, task.agent)
        return sign_request(key, signed, method, urlsplit(url).path or "/", self._now(), body)

    async def _try(
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
    """To whom a result is addressed: the agent that signed the task, else the one whose server the callback is."""
    if task.subject is None:
        return task.caller
    return AGENT_URI_PREFIX + (urlsplit(task.callback or "").hostname or "")


def parse_task_input(task: Task) -> object:
    return parse_object(b'{"input":%s}' % task.input, max_bytes=2 * limits.TASK_BYTES)["input"]


def _parse_remote_task(url: str, answer: FetchResponse) -> RemoteTask | None:
    """P-5: the id and the status URL, which is believed only on the server that gave it."""
    try:
        document = parse_object(answer.body)
    except WaypostError:
        return None
    task_id = document.get("taskId")
    status_url = document.get("statusUrl") or answer.headers.get("location") or ""
    status_url = urljoin(url, status_url) if isinstance(status_url, str) else ""
    if urlsplit(status_url)[:2] != urlsplit(url)[:2]:
        status_url = ""
    if not isinstance(task_id, str) or not 0 < len(task_id) <= limits.ID_CHARS:
        return None
    return RemoteTask(url=url, task_id=task_id, status_url=status_url)


# ---- Messages on their way to addresses that somebody named: kept until they were taken, tried four times, then given up.

DELIVERY_KIND = "delivery"

_MAX_CONCURRENT = limits.CONCURRENT_CALLBACKS


class CallbackDelivery(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    url: str
    message_id: str  # goes into what is signed
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
    """Whoever makes a delivery commits its `write` together with what it tells of."""

    def __init__(
        self,
        keeper: KeyValueStore,
        courier: RemoteAgentClient,
        now: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._keeper = keeper
        self._courier = courier
        self._now = now
        self._chance = chance

    async def turn(self) -> bool:
        """Try what is due; whether there was anything."""
        now = self._now()
        kept = await self._keeper.scan(DELIVERY_KIND, now, limit=_MAX_CONCURRENT)
        due = [delivery for one in kept if (delivery := _decode_delivery(one.value)).at <= now]
        await asyncio.gather(*map(self._try, due))
        return bool(due)

    async def _try(self, delivery: CallbackDelivery) -> None:
        taken = await self._courier.post_callback(
            delivery.url, delivery.message_id, delivery.from_, delivery.to, delivery.body
        )
        writes = [delivery.removal()]
        if not taken and delivery.attempt < len(limits.CALLBACK_DELAYS_SECONDS):
            pause = limits.CALLBACK_DELAYS_SECONDS[delivery.attempt] * (0.5 + self._chance())
            again = msgspec.structs.replace(delivery, at=self._now() + pause, attempt=delivery.attempt + 1)
            writes.append(again.write())
        await self._keeper.commit(writes, self._now())
