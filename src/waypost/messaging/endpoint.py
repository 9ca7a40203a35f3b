"""An agent that converses over AGP: its message store, its connections, its handlers and the answers that it waits for.

A service has an endpoint for each domain that it hosts; a program has one. A handler gets a message and yields its answers. The
id of an answer is derived from the question: a handler that runs again after a crash sends the same answer once, and a relay
cannot present an answer as one to another question (`replyTo` is not signed, ids are).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import BadSignature, Forbidden, QuotaExceeded, Timeout, WaypostError
from waypost.messaging.connection import AgpConnection, AgpLink, AgpTimeouts, ControlHandler
from waypost.messaging.message_store import AgentMessage, MessageStore, RetentionPolicy
from waypost.messaging.peers import PeerKeySource, unknown_peer_error
from waypost.protocols.adp.agp.hello import AgpIdentity
from waypost.protocols.adp.agp.messages import AgpMessage, MessageContent, check_time, parse_message, verify
from waypost.protocols.adp.agp.session import AgpSession, RandomSource, ReplayCache
from waypost.registry.ports import Clock, KeyValueStore

log = logging.getLogger("waypost.messaging")

_REPLY_ID_PREFIX = "waypost answer"

_FAILURE_TEXT = "The agent failed to answer. The failure was logged; please try again later."

ReplyHandler = Callable[[AgentMessage, AgpConnection | None], AsyncIterator[MessageContent]]

UnclaimedReplyHandler = Callable[[AgentMessage], Awaitable[None]]


def reply_id(question: str, part: int, *, last: bool) -> str:
    digest = sha256(f"{_REPLY_ID_PREFIX} {question} {'last' if last else 'part'} {part}".encode()).hexdigest()
    return (
        f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"  # a UUID of its own kind (v8)
    )


class SystemRandomness:
    """`RandomSource` of the operating system."""

    def message_id(self) -> str:
        return str(uuid.uuid4())

    def nonce(self) -> bytes:
        return secrets.token_bytes(24)


class AgpEndpoint:
    def __init__(
        self,
        me: AgpIdentity,
        store: KeyValueStore,
        peers: PeerKeySource,
        clock: Clock,
        random: RandomSource,
        *,
        on_chat: ReplyHandler | None = None,
        on_task: ReplyHandler | None = None,
        on_late_answer: UnclaimedReplyHandler | None = None,
        on_open: Callable[[AgpConnection], Awaitable[None]] | None = None,
        timeouts: AgpTimeouts | None = None,
        replay_cache: ReplayCache | None = None,
        retention: RetentionPolicy | None = None,
    ) -> None:
        """`on_late_answer` gets answers that no request waits for any more, `on_open` every connection after its handshake."""
        self.me = me
        self.store = MessageStore(me.agent, store, clock, retention)
        self.connections: dict[str, AgpConnection] = {}
        self.on_chat, self.on_task, self.on_late_answer = on_chat, on_task, on_late_answer
        self._peers = peers
        self._clock = clock
        self._random = random
        self._on_open = on_open
        self._timeouts = timeouts
        self._replay_cache = replay_cache if replay_cache is not None else ReplayCache()
        self._pending: dict[str, PendingAnswer] = {}
        self._queues: dict[str, InboundQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run_connection(
        self,
        link: AgpLink,
        *,
        peer: str | None = None,
        peers: PeerKeySource | None = None,
        on_control: ControlHandler | None = None,
        opened: Callable[[AgpConnection], Awaitable[None]] | None = None,
    ) -> None:
        """Run a connection until it ends; raises the reason. `peer` is set if this side opened it."""
        session = AgpSession(self.me, self._random, peer=peer, calls=peer is not None, memory=self._replay_cache)

        async def on_open(connection: AgpConnection) -> None:
            before = self.connections.get(connection.peer)
            if before is not None and self.store.drops_answers:
                await before.wait_closed()
            self.connections[connection.peer] = connection
            for callback in (self._on_open, opened):
                if callback is not None:
                    await callback(connection)

        connection = AgpConnection(
            link,
            session,
            peers=peers or self._peers,
            store=self.store,
            receiver=self,
            clock=self._clock,
            timeouts=self._timeouts,
            on_open=on_open,
            on_control=on_control,
        )
        try:
            await connection.run()
        finally:
            if self.connections.get(connection.peer) is connection:
                del self.connections[connection.peer]

    async def recover(self) -> None:
        """Handle messages that were received before a restart, and not finished."""
        for message in await self.store.unfinished():
            self._dispatch(message)

    async def close(self) -> None:
        """Unfinished messages are handled again after the next start."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def accept_relayed(self, frame: str, send: Callable[[str], Awaitable[None]]) -> None:
        """Accept a message from a mailbox at a relay: it is signed, but its sender is not connected. A replay is detected: ids
        are kept for longer than a signature is valid."""
        message = parse_message(frame)
        if message.to != self.me.agent or message.type not in ("chat", "task"):
            raise Forbidden("The message is for another agent.", path="$.to", hint="Send it to that agent.")
        check_time(message, self._clock.latest())
        known = await self._peers.key_of(message.sender)
        if known is None or known.key is None:
            raise unknown_peer_error(message.sender)
        if not verify(known.key, message.signature, message.signing_input):
            raise BadSignature(
                "The message is not signed with the key of its sender.", path="$.signature", hint="Sign it."
            )
        await self.accept([message], verified=False)
        session = AgpSession(self.me, self._random, peer=message.sender, calls=True)
        await send(session.acknowledge((message.id,), self._clock.latest()))

    def make_message(self, peer: str, content: MessageContent, *, kind: str = "chat") -> AgentMessage:
        return AgentMessage(
            id=self._random.message_id(), peer=peer, content=content, kind=kind, at=self._clock.latest()
        )

    async def send(self, message: AgentMessage) -> None:
        """Store a message, and send it now or once there is a connection to its receiver."""
        await self.store.post([message])
        await self.push(message.peer, [message])

    async def finish(self, peer: str, answers: Sequence[AgentMessage], done: Sequence[AgentMessage]) -> None:
        """Remove finished messages and send their answers. If the outbox is full, the answers are dropped."""
        try:
            await self.store.post(answers, done=done)
        except QuotaExceeded as error:
            log.warning("%s answers of %s to %s were dropped: %s", len(answers), self.me.agent, peer, error.message)
            await self.store.post((), done=done)
            return
        await self.push(peer, answers)

    async def push(self, peer: str, messages: Sequence[AgentMessage]) -> None:
        """Send stored messages if there is a connection; otherwise they are sent once there is one."""
        connection = self.connections.get(peer)
        if connection is None or not connection.is_open:
            return
        for message in messages:
            connection.push(message)
        if connection.is_full:
            await connection.wait_for_room()

    async def stream_answer(
        self, message: AgentMessage, *, seconds: float = limits.AGP_ANSWER_SECONDS
    ) -> AsyncIterator[AgentMessage]:
        """Send a message and yield the parts of its answer."""
        pending = self._pending[message.id] = PendingAnswer(message)
        try:
            await self.send(message)
            while not pending.is_complete:
                yield await pending.next(seconds)
        finally:
            del self._pending[message.id]

    async def request(self, message: AgentMessage, *, seconds: float = limits.AGP_ANSWER_SECONDS) -> list[AgentMessage]:
        """Send a message and wait for its complete answer."""
        pending = self._pending[message.id] = PendingAnswer(message)
        parts = []
        try:
            await self.send(message)
            while not pending.is_complete:
                parts.append(await pending.next(seconds))
        finally:
            del self._pending[message.id]
        return parts

    async def accept(self, received: Sequence[AgpMessage], *, verified: bool) -> None:
        for message in await self.store.accept(received, verified=verified):
            self._dispatch(message)

    async def wait_for_room(self, peer: str) -> None:
        queue = self._queues.get(peer)
        if queue is not None:
            await queue.wait_for_room()

    def _dispatch(self, message: AgentMessage) -> None:
        queue = self._queues.get(message.peer)
        if queue is None:
            queue = self._queues[message.peer] = InboundQueue(self, message.peer)
        pending = self._pending.get(message.content.reply_to or "")
        if pending is not None and pending.add(message):
            queue.finish(message, [])
        else:
            queue.put(message)

    def remove_queue(self, peer: str) -> None:
        self._queues.pop(peer, None)

    async def handle(self, message: AgentMessage) -> list[AgentMessage]:
        """Run the handler. All parts of the answer but the last are sent at once; the last one is returned."""
        if message.is_answer:
            if self.on_late_answer is not None:
                await self.on_late_answer(message)
            return []
        handler = self.on_task if message.kind == "task" else self.on_chat
        if handler is None:
            return [
                self._make_answer(
                    message, MessageContent(text=f"{self.me.agent} does not accept messages of this kind."), 0
                )
            ]
        contents = handler(message, self.connections.get(message.peer))
        for part in range(limits.AGP_PARTS):
            try:
                content = await contents.__anext__()
            except StopAsyncIteration:
                return []
            except WaypostError as error:
                content = MessageContent(text=str(error))
            except Exception:
                log.exception("handler of %s failed for message %s", self.me.agent, message.id)
                content = MessageContent(text=_FAILURE_TEXT)
            answer = self._make_answer(message, content, part)
            if not content.more:
                return [answer]
            await self.send(answer)
        return []

    def _make_answer(self, question: AgentMessage, content: MessageContent, part: int) -> AgentMessage:
        return AgentMessage(
            id=reply_id(question.id, part, last=not content.more),
            peer=question.peer,
            content=msgspec.structs.replace(content, reply_to=question.id),
            kind=question.kind,  # a result is a `task`, as its request was (adp.md §6.4)
            at=self._clock.latest(),
        )


class InboundQueue:
    """The messages of one peer, handled one after the other, independent of the connection."""

    def __init__(self, endpoint: AgpEndpoint, peer: str) -> None:
        self._endpoint = endpoint
        self._peer = peer
        self._messages: deque[AgentMessage] = deque()
        self._finished: list[tuple[AgentMessage, list[AgentMessage]]] = []
        self._has_room = asyncio.Event()
        self._is_handling = self._is_finishing = False

    def put(self, message: AgentMessage) -> None:
        self._messages.append(message)
        if not self._is_handling:
            self._is_handling = True
            self._endpoint.start_task(self._handle_queue())

    async def wait_for_room(self) -> None:
        while len(self._messages) + len(self._finished) >= limits.AGP_QUEUE:
            self._has_room.clear()
            await self._has_room.wait()

    async def _handle_queue(self) -> None:
        try:
            while self._messages:
                message = self._messages[0]
                last = await self._endpoint.handle(message)
                self._messages.popleft()
                self.finish(message, last)
                self._has_room.set()
        finally:
            self._is_handling = False
            self._remove_if_idle()

    def finish(self, message: AgentMessage, answers: list[AgentMessage]) -> None:
        self._finished.append((message, answers))
        if not self._is_finishing:
            self._is_finishing = True
            self._endpoint.start_task(self._finish_batches())

    async def _finish_batches(self) -> None:
        """Commit answers together with the end of their messages, in batches."""
        try:
            while self._finished:
                batch, self._finished = self._finished, []
                answers = [answer for _, last in batch for answer in last]
                await self._endpoint.finish(self._peer, answers, [message for message, _ in batch])
                self._has_room.set()
        except WaypostError as error:  # the messages are handled again after the next start
            log.warning("cannot store the answers to %s: %s", self._peer, error)
        finally:
            self._is_finishing = False
            self._remove_if_idle()

    def _remove_if_idle(self) -> None:
        if not self._is_handling and not self._is_finishing and not self._messages:
            self._endpoint.remove_queue(self._peer)


class PendingAnswer:
    """A message that waits for its answer."""

    def __init__(self, message: AgentMessage) -> None:
        self.message = message
        self.is_complete = False
        self._parts: deque[AgentMessage] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._count = 0
        self._is_derived: bool | None = None  # whether the peer derives the ids of answers

    def add(self, message: AgentMessage) -> bool:
        """Add a part of the answer; returns whether it is one. A derived id proves it; other implementations have no proof."""
        if message.peer != self.message.peer or self._count >= limits.AGP_PARTS:
            return False
        derived = message.id == reply_id(self.message.id, self._count, last=not message.content.more)
        if self._is_derived is None:
            self._is_derived = derived
        if derived != self._is_derived:
            return False
        self._count += 1
        self._parts.append(message)
        self._wake()
        return True

    async def next(self, seconds: float) -> AgentMessage:
        if not self._parts:
            await self._wait(seconds)
        if not self._parts:
            raise Timeout(
                f"{self.message.peer} did not answer within {seconds:g} seconds.",
                path="to",
                hint="The message is stored and will be delivered. Wait longer with timeout.",
            )
        part = self._parts.popleft()
        self.is_complete = not part.content.more
        return part

    async def _wait(self, seconds: float) -> None:
        """Wait for a part, or until the time is over."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
