"""An AGP connection over one link: the handshake, then signed messages both ways until either side ends it.

It drives a session (`protocols/adp/agp/session.py`), stores messages in the `MessageStore`, and gets keys from `peers.py`.
Frames are read one by one; messages that arrive together are stored in one commit and acknowledged together. Every queue is
bounded, and a full one stops the reading, so that a flood stays on the sender's side (back-pressure).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from waypost import limits
from waypost.errors import HandshakeTimeout, Unavailable, WaypostError, error_codes
from waypost.messaging.message_store import AgentMessage, MessageStore
from waypost.messaging.peers import PeerIdentity, PeerKeySource, peer_verdict, unknown_peer_error
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.protocols.adp.agp.messages import AgpMessage, UnsignedMessage
from waypost.protocols.adp.agp.session import (
    AckReceived,
    AgpSession,
    ControlReceived,
    HelloReceived,
    MessageReceived,
    SessionOpened,
)
from waypost.registry.ports import Clock

log = logging.getLogger("waypost.messaging")

NORMAL_CLOSURE = 1000

_CLEAN_CLOSE_CODES = (NORMAL_CLOSURE, 1001, 1005)  # RFC 6455 §7.4.1

_REASON_BYTES = 120

Job = TypeVar("Job")

Result = TypeVar("Result")


class LinkLost(Exception):
    """The link is closed, with the code and reason of the other side, if there are any."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class AgpLink(Protocol):
    async def send(self, frame: str) -> None:
        """Waits while the other side does not read. Raises LinkLost."""
        ...

    async def receive(self) -> str | bytes:
        """Raises LinkLost."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class PushbackLink:
    """A link whose first frame was already read."""

    def __init__(self, link: AgpLink, first: str | bytes) -> None:
        self._link = link
        self._first: str | bytes | None = first

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._link.receive()

    async def close(self, code: int, reason: str) -> None:
        await self._link.close(code, reason)


class SharedBatch(Generic[Job, Result]):
    """Jobs that two threads share: one takes them from the front, the other from the back.

    The caller never waits for the helper: it repeats the jobs that the helper has not finished. So a helper that is slow, or
    was lost in a fork, does no harm.
    """

    __slots__ = ("_jobs", "_remaining", "_results", "_work")

    def __init__(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> None:
        self._work = work
        self._jobs = jobs
        self._results: list[Result | None] = [None] * len(jobs)
        self._remaining = list(range(len(jobs)))  # `list.pop` is atomic

    def help(self) -> None:
        self._run(0)

    def finish(self) -> list[Result]:
        self._run(-1)
        work = self._work
        return [work(job) if result is None else result for result, job in zip(self._results, self._jobs, strict=True)]

    def _run(self, end: int) -> None:
        work, jobs, results, pop = self._work, self._jobs, self._results, self._remaining.pop
        while self._remaining:
            try:
                index = pop(end)
            except IndexError:  # the other thread took the last one
                return
            results[index] = work(jobs[index])


class SignaturePool:
    """A helper thread for signatures: libsodium runs without the GIL. The thread starts with the first batch."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[SharedBatch[object, object]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_multicore = (os.cpu_count() or 1) > 1

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """The results of all jobs, in order. `work` should release the GIL, and may run twice for a job."""
        if len(jobs) < limits.AGP_POOL_MIN_SIGNATURES or not self._is_multicore:
            return [work(job) for job in jobs]
        batch = SharedBatch(work, jobs)
        self._hand_over(batch)  # type: ignore[arg-type]
        return batch.finish()

    def _hand_over(self, batch: SharedBatch[object, object]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._help, name="waypost-signatures", daemon=True)
            self._thread.start()
        if self._batches.empty():  # otherwise the helper is busy, or lost
            self._batches.put(batch)

    def _help(self) -> None:
        while True:
            self._batches.get().help()


signature_pool = SignaturePool()


class PeerClosed(Exception):
    """The peer ended the conversation."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PeerError(Exception):
    """The peer rejected a message, and sent an error."""

    def __init__(self, code: str, message: str, retryable: bool) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retryable = retryable


class AgpTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    handshake_seconds: float = limits.AGP_HANDSHAKE_SECONDS
    heartbeat_seconds: float = limits.AGP_HEARTBEAT_SECONDS
    silence_seconds: float = limits.AGP_SILENCE_SECONDS
    stall_seconds: float = limits.AGP_STALL_SECONDS


class MessageReceiver(Protocol):
    """Receives messages. It outlives the link."""

    async def accept(self, messages: Sequence[AgpMessage], *, verified: bool) -> None:
        """Store messages and pass new ones on. Afterwards all of them may be acknowledged."""
        ...

    async def wait_for_room(self, peer: str) -> None:
        """Wait while too many messages of the peer are not yet handled."""
        ...


ControlHandler = Callable[["AgpConnection", JsonObject, AgpMessage], Awaitable[bool]]


class AgpConnection:
    # fmt: off
    __slots__ = (  # thousands may be open and idle
        "_ack_ids",
        "_ack_timer",
        "_ack_waiters",
        "_clock",
        "_closed_waiter",
        "_deadline",
        "_failure",
        "_group",
        "_has_room",
        "_heartbeat_timer",
        "_in_flight",
        "_inbound",
        "_inbound_taken",
        "_is_closed",
        "_is_loaded",
        "_is_over",
        "_is_sending",
        "_is_storing",
        "_last_ack_size",
        "_link",
        "_loop",
        "_on_control",
        "_on_open",
        "_outbound",
        "_peers",
        "_received_at",
        "_receiver",
        "_sending_since",
        "_sent_at",
        "_store",
        "_timeouts",
        "opened",
        "peer_key",
        "session",
    )
    # fmt: on

    def __init__(
        self,
        link: AgpLink,
        session: AgpSession,
        *,
        peers: PeerKeySource,
        store: MessageStore,
        receiver: MessageReceiver,
        clock: Clock,
        timeouts: AgpTimeouts | None = None,
        on_open: Callable[[AgpConnection], Awaitable[None]] | None = None,
        on_control: ControlHandler | None = None,
    ) -> None:
        self.session = session
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer_key: PeerIdentity | None = None
        self._link = link
        self._peers = peers
        self._store = store
        self._receiver = receiver
        self._clock = clock
        self._timeouts = timeouts or AgpTimeouts()
        self._on_open = on_open
        self._on_control = on_control
        self._group = asyncio.TaskGroup()
        self._loop = asyncio.get_running_loop()
        self._received_at = self._sent_at = self._loop.time()
        self._sending_since: float | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._inbound: list[AgpMessage] = []
        self._inbound_taken: asyncio.Future[None] | None = (
            None  # the reader waits for it while too many messages are queued
        )
        self._outbound: deque[AgentMessage] = deque()
        self._in_flight: dict[str, AgentMessage] = {}  # sent, but not acknowledged
        self._ack_waiters: dict[str, asyncio.Future[None]] = {}
        self._ack_ids: list[str] = []
        self._last_ack_size = 0  # ids in the last acknowledgement
        self._ack_timer: asyncio.TimerHandle | None = None
        self._has_room = asyncio.Event()
        self._deadline: asyncio.Timeout | None = None
        self._closed_waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_sending = self._is_storing = self._is_loaded = self._is_over = False

    @property
    def peer(self) -> str:
        return self.session.peer or ""

    @property
    def is_open(self) -> bool:
        return self.session.is_open

    def verdict(self) -> Verdict | None:
        if self.peer_key is None or not self.is_open:
            return None
        return peer_verdict(self.peer_key, verified=self.session.is_verified, now=self._clock.latest())

    async def run(self) -> None:
        """Run until the connection ends. Raises LinkLost, PeerClosed, PeerError or a WaypostError."""
        error: Exception | None = None
        try:
            async with self._group:
                self._group.create_task(self._wait_for_failure())
                await self._handshake()
                self._schedule_heartbeat()
                await self._on_opened()
                await self._read()
        except* (LinkLost, PeerClosed, PeerError, WaypostError) as group:
            error = _first_error(group)
        finally:
            self._is_over = True
            self._has_room.set()
            for timer in (self._heartbeat_timer, self._ack_timer):
                if timer is not None:
                    timer.cancel()
            self._cancel_waiters(error)
        if error is not None:
            try:
                if not _is_cut(error):
                    await self._store.drop_answers(self._in_flight.values())
            finally:
                self._is_closed = True
                _settle_future(self._closed_waiter)
            await self._send_failure(error)
            raise error

    async def wait_closed(self) -> None:
        """The peer has connected again. Wait a moment to see whether this connection was closed or lost: answers are repeated
        only after a loss."""
        if self._in_flight and not self._is_closed:
            self._closed_waiter = self._closed_waiter or self._loop.create_future()
            await asyncio.wait((self._closed_waiter,), timeout=limits.AGP_RECONNECT_SECONDS)

    async def close(self, reason: str = "") -> None:
        """Send a disconnect, and end."""
        if self.is_open:
            with suppress(LinkLost):
                await self._send(self.session.control("disconnect", self._clock.latest(), reason=reason or None))
        self._fail(PeerClosed(reason))

    async def _send_failure(self, error: Exception) -> None:
        """Send the error to the peer, if this side ends the connection, and close the link."""
        if isinstance(error, WaypostError):
            with suppress(LinkLost, WaypostError, TimeoutError):
                async with asyncio.timeout(self._timeouts.stall_seconds):
                    await self._link.send(self.session.fault_frame(error, self._clock.latest()))
            await self._link.close(error_codes(error).ws_close, _reason(error.message))
        elif not isinstance(error, LinkLost):
            self.session.end()
            await self._link.close(NORMAL_CLOSURE, "")

    def _cancel_waiters(self, error: Exception | None = None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or LinkLost())
            self.opened.exception()  # mark as retrieved
        for waiting in self._ack_waiters.values():
            if not waiting.done():
                waiting.cancel()

    async def _handshake(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.handshake_seconds) as self._deadline:
                if self.session.peer is not None:
                    await self._send(self.session.call(self._clock.latest()))
                while not self.session.is_open:
                    await self._handle_handshake_frame(await self._link.receive())
        except TimeoutError:
            raise HandshakeTimeout(
                f"The handshake took more than {self._timeouts.handshake_seconds:g} seconds.",
                path="$",
                hint="Send a hello as soon as the connection is open, and acknowledge ours.",
            ) from None

    async def _handle_handshake_frame(self, frame: str | bytes) -> None:
        match self.session.receive(frame, self._clock.latest()):
            case HelloReceived(hello):
                known = await self._peers.key_of(hello.agent)
                if known is None:
                    raise unknown_peer_error(hello.agent)
                self.peer_key = known
                for answer in self.session.admit(known.matched(hello.raw), self._clock.latest()):
                    await self._send(answer)
            case ControlReceived(action, message, verified):
                await self._handle_control(action, message, verified)
            case SessionOpened():
                pass

    async def _on_opened(self) -> None:
        if self._on_open is not None:
            await self._on_open(self)
        waiting = await self._store.unacknowledged(self.peer)
        known = {message.id for message in waiting}
        self._outbound = deque((*waiting, *(message for message in self._outbound if message.id not in known)))
        self._is_loaded = True
        self._start_sending()
        if not self.opened.done():
            self.opened.set_result(None)

    async def _read(self) -> None:
        while True:
            frame = await self._link.receive()
            self._received_at = self._loop.time()
            await self._handle_frame(frame)

    async def _handle_frame(self, frame: str | bytes) -> None:
        match self.session.receive(frame, self._clock.latest()):
            case MessageReceived(message):
                self._enqueue(message)
                while len(self._inbound) >= limits.AGP_QUEUE:
                    self._inbound_taken = self._loop.create_future()
                    await self._inbound_taken
            case AckReceived(ids):
                await self._handle_ack(ids)
            case ControlReceived(action, message, verified):
                await self._handle_control(action, message, verified)

    async def _handle_control(self, action: JsonObject, message: AgpMessage, verified: bool) -> None:
        match action["action"]:
            case "heartbeat" if verified:
                await self._send(self.session.acknowledge((message.id,), self._clock.latest()))
                return
            case "error":
                raise PeerError(
                    str(action.get("code", "internal"))[:64],
                    str(action.get("message", ""))[:500],
                    action.get("retryable") is True,
                )
            case "disconnect" if verified:
                raise PeerClosed(str(action.get("reason", ""))[:200])
        if self._on_control is not None:
            await self._on_control(self, action, message)

    def _enqueue(self, message: AgpMessage) -> None:
        self._inbound.append(message)
        if not self._is_storing:
            self._is_storing = True
            self._start(self._store_inbound())

    async def _store_inbound(self) -> None:
        """Store and acknowledge queued messages, in batches."""
        try:
            while self._inbound:
                batch = self._inbound[: limits.AGP_ACK_IDS]
                del self._inbound[: limits.AGP_ACK_IDS]
                _settle_future(self._inbound_taken)
                # A stored message must also be passed on, even if the link is lost in between.
                await asyncio.shield(self._receiver.accept(batch, verified=self.session.is_verified))
                self._ack_ids.extend(message.id for message in batch)
                await self._acknowledge()
                await self._receiver.wait_for_room(self.peer)
        finally:
            self._is_storing = False

    async def _acknowledge(self) -> None:
        """Acknowledge a single message at once, and a stream in batches: each acknowledgement costs a signature."""
        is_stream = len(self._ack_ids) > 1 or self._last_ack_size > 1
        if is_stream and len(self._ack_ids) < limits.AGP_ACK_BATCH:
            if self._ack_timer is None:
                self._ack_timer = self._loop.call_later(
                    limits.AGP_ACK_SECONDS, lambda: self._start(self._acknowledge_now())
                )
            return
        await self._acknowledge_now()

    async def _acknowledge_now(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        while self._ack_ids:
            ids = tuple(self._ack_ids[: limits.AGP_ACK_IDS])
            del self._ack_ids[: limits.AGP_ACK_IDS]
            self._last_ack_size = len(ids)
            await self._send(self.session.acknowledge(ids, self._clock.latest()))

    def push(self, message: AgentMessage) -> None:
        """Send a message that is already stored."""
        self._outbound.append(message)
        self._start_sending()

    def _start_sending(self) -> None:
        if self._is_loaded and self._outbound and not self._is_sending:
            self._is_sending = True
            self._start(self._send_outbound())

    @property
    def is_full(self) -> bool:
        """Whether the outbound queue is full."""
        return len(self._outbound) > limits.AGP_QUEUE

    async def wait_for_room(self) -> None:
        while self.is_full and not self._is_over:
            self._has_room.clear()
            await self._has_room.wait()

    def acknowledgement(self, message_id: str) -> asyncio.Future[None]:
        """Done when the peer acknowledges the message; cancelled if the connection ends first."""
        return self._ack_waiters.setdefault(message_id, self._loop.create_future())

    async def _send_outbound(self) -> None:
        """Send in slices, so that the peer verifies one slice while the next one is signed."""
        try:
            while self._outbound:
                while len(self._in_flight) >= limits.AGP_WINDOW:
                    self._has_room.clear()
                    await self._has_room.wait()
                messages = self._next_messages()
                for message, frame in zip(messages, self._sign(messages), strict=False):
                    self._in_flight[message.id] = message
                    await self._send(frame)
                if self._outbound:
                    await asyncio.sleep(0)
        finally:
            self._is_sending = False

    def _next_messages(self) -> list[AgentMessage]:
        """The next slice, within the window of unacknowledged messages."""
        count = min(limits.AGP_SIGN_SLICE, limits.AGP_WINDOW - len(self._in_flight), len(self._outbound))
        return [self._outbound.popleft() for _ in range(count)]

    def _sign(self, messages: Sequence[AgentMessage]) -> Iterator[str]:
        now, signing_time = self._clock.latest(), self._store.signing_time
        return self.session.write_each(
            [
                UnsignedMessage(message.id, message.kind, message.content, signing_time(message, now))
                for message in messages
            ],
            signature_pool.run,
        )

    async def _handle_ack(self, ids: tuple[str, ...]) -> None:
        known = [message_id for message_id in ids if self._in_flight.pop(message_id, None) is not None]
        if not known:
            return
        await self._store.acknowledge(known)
        self._has_room.set()
        for message_id in known:
            waiting = self._ack_waiters.pop(message_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    async def deposit(self) -> int:
        """The peer is away: send pending messages to the mailbox at its relay; returns how many. They stay stored until the peer
        itself acknowledges them."""
        if self._deadline is not None:
            self._deadline.reschedule(None)
        messages = (await self._store.unacknowledged(self.peer))[: limits.AGP_MAILBOX_PER_SENDER]
        for message in messages:
            at = self._store.signing_time(message, self._clock.latest())
            await self._send(self.session.write(message.kind, message.content, at, message_id=message.id))
        return len(messages)

    async def control(self, action: str, **members: Any) -> None:
        await self._send(self.session.control(action, self._clock.latest(), **members))

    async def _send(self, frame: str) -> None:
        self._sending_since = self._sent_at = self._loop.time()
        await self._link.send(frame)
        self._sending_since = None

    def _schedule_heartbeat(self) -> None:
        self._heartbeat_timer = self._loop.call_later(self._timeouts.heartbeat_seconds / 3, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        now = self._loop.time()
        if self._sending_since is not None and now - self._sending_since > self._timeouts.stall_seconds:
            self._fail(Unavailable("The peer does not read.", path="link", hint="The connection is retried later."))
            return
        if now - self._received_at > self._timeouts.silence_seconds and not self._is_inbound_full():
            self._fail(Unavailable("The peer is silent.", path="link", hint="The connection is retried later."))
            return
        if now - self._sent_at >= self._timeouts.heartbeat_seconds and self._sending_since is None:
            self._start(self.control("heartbeat"))
        self._schedule_heartbeat()

    def _is_inbound_full(self) -> bool:
        """Whether this side does not read."""
        return len(self._inbound) >= limits.AGP_QUEUE

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task of this connection; ignored once the connection ends."""
        try:
            self._group.create_task(work)
        except RuntimeError:
            work.close()

    def _fail(self, error: Exception) -> None:
        if not self._failure.done() and not self._is_over:
            self._failure.set_exception(error)

    async def _wait_for_failure(self) -> None:
        await self._failure


def _settle_future(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _first_error(group: BaseExceptionGroup[Any]) -> Exception:
    """The most telling of several errors: our own decision first, a lost link last."""
    leaves: list[Exception] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        elif isinstance(error, Exception):
            leaves.append(error)
    return min(leaves, key=lambda error: (isinstance(error, LinkLost), not isinstance(error, WaypostError)))


def _is_cut(error: Exception) -> bool:
    """Whether the link was lost, so that the peer may have missed the last messages."""
    return isinstance(error, Unavailable) or (isinstance(error, LinkLost) and error.code not in _CLEAN_CLOSE_CODES)


def _reason(text: str) -> str:
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")
