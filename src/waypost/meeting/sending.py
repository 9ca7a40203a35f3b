"""What a task needs of others: a result is brought to its callback, a task is sent to another server, and asked for there.

Everything goes out signed, through the one way out. Whatever fails is only "not delivered": why, is in our log and told to nobody
who could map a network by it (THREATS S9).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urljoin, urlsplit

from waypost import limits
from waypost.errors import WaypostError
from waypost.meeting.signatures import SCHEME, sign_request, sign_result
from waypost.meeting.task import Outcome, Remote, Task, callback_body, parse_outcome
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.registry.fetching import Fetched, Sender
from waypost.wire.agp_signing import SigningKey

log = logging.getLogger("waypost.meeting")

FindTasks = Callable[[str], Awaitable[str]]  # where an agent takes tasks; NotFound
FindSigningKey = Callable[[str], SigningKey | None]  # by domain
_JSON = ("Content-Type", "application/json")


class Courier:
    """`own` is the service's Agent URI: it signs for agents that have no key here. `webhook` says where results are to come
    for an agent that is served here."""

    def __init__(
        self,
        sender: Sender,
        find_key: FindSigningKey,
        own: str,
        webhook: Callable[[str], str | None],
        now: Callable[[], float],
        find_tasks: FindTasks,
    ) -> None:
        self._sender = sender
        self._find_key = find_key
        self._own = own
        self._webhook = webhook
        self._now = now
        self._find_tasks = find_tasks

    def signer(self, agent: str) -> tuple[str, SigningKey]:
        """Who signs what is said for an agent: itself, if its key is here."""
        key = self._find_key(agent.removeprefix(SCHEME)) if agent.startswith(SCHEME) else None
        if key is not None:
            return agent, key
        own = self._find_key(self._own.removeprefix(SCHEME))
        if own is None:
            raise ValueError("A service has a key of its own.")
        return self._own, own

    async def bring_result(self, task: Task) -> bool:
        """Whether the callback took it."""
        if task.callback is None:
            return True
        return await self.bring(task.callback, task.id, task.agent, receiver_of(task), callback_body(task))

    async def bring(self, url: str, message_id: str, from_: str, to: str, body: bytes) -> bool:
        """A signed message to an address that somebody named. The id goes into what is signed."""
        from_, key = self.signer(from_)
        headers = [_JSON, *sign_result(key, message_id, from_, to, self._now(), body)]
        answer = await self._try(url, "webhook", body=body, headers=headers)
        return answer is not None and answer.is_success

    async def send_task(self, task: Task) -> Remote | None:
        """Where it goes under which name; None when it was not taken, NotFound when there is nowhere to send it."""
        url = (task.remote.url if task.remote is not None else "") or await self._find_tasks(task.agent)
        wanted: JsonObject = {"task": task.name, "input": parse_input(task)}
        webhook = self._webhook(task.sender or self._own)
        if webhook is not None:
            wanted["callback"] = webhook
        body = dump_json(wanted)
        headers = [_JSON, ("Idempotency-Key", task.id), *self._signed(task, "POST", url, body)]
        answer = await self._try(url, "task", body=body, headers=headers)
        if answer is None or answer.status not in (200, 201, 202):
            return None
        return _remote(url, answer)

    async def ask(self, task: Task) -> Outcome | None:
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
            return None if document.get("status") == "accepted" else parse_outcome(document)
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
    ) -> Fetched | None:
        try:
            return await self._sender.send(
                url, "task" if purpose == "task" else "webhook", method=method, body=body, headers=headers
            )
        except WaypostError as error:
            log.info("not delivered: %s", error)
            return None


def receiver_of(task: Task) -> str:
    """To whom a result is addressed: the agent that signed the task, else the one whose server the callback is."""
    if task.subject is None:
        return task.caller
    return SCHEME + (urlsplit(task.callback or "").hostname or "")


def parse_input(task: Task) -> object:
    return parse_object(b'{"input":%s}' % task.input, max_bytes=2 * limits.TASK_BYTES)["input"]


def _remote(url: str, answer: Fetched) -> Remote | None:
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
    return Remote(url=url, task_id=task_id, status_url=status_url)
