"""Where ids and nonces come from, outside of tests."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
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

_IDS_PER_DRAW = 64  # ids for which the system is asked together: a question takes longer than its answer

_ids: list[str] = []  # drawn, and not yet given: only popped, so that nobody gets the same one

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)


class SystemRandomness:
    def message_id(self) -> str:
        """A UUID of chance (RFC 9562, version 4)."""
        try:
            return _ids.pop()
        except IndexError:
            drawn = os.urandom(16 * _IDS_PER_DRAW).hex()
            first, *others = (_uuid(drawn[at : at + 32]) for at in range(0, len(drawn), 32))
            _ids.extend(others)
            return first

    def nonce(self) -> bytes:
        return secrets.token_bytes(24)


def _uuid(drawn: str) -> str:
    variant = "89ab"[int(drawn[16], 16) & 3]
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"


# ---- An agent that converses: its letters, its conversations, what it answers and what it waits for.
#
# A service has one for each domain that it answers for, a program one for itself. Handlers get a letter and yield what they
# answer; ids of answers follow from the question, so that whoever handles it again after a crash says the same thing once, and a
# relay cannot pass an answer off as one to another question (`replyTo` is not signed, ids are).

log = logging.getLogger("waypost.messaging")

_REPLY_ID_PREFIX = "waypost answer"

_FAILURE_TEXT = "This could not be answered: the agent failed. It knows; please ask again later."

ReplyHandler = Callable[[AgentMessage, AgpConnection | None], AsyncIterator[MessageContent]]

UnclaimedReplyHandler = Callable[[AgentMessage], Awaitable[None]]


def reply_id(question: str, part: int, *, last: bool) -> str:
    digest = sha256(f"{_REPLY_ID_PREFIX} {question} {'last' if last else 'part'} {part}".encode()).hexdigest()
    return (
        f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"  # a UUID of its own kind (v8)
    )


class AgpEndpoint:
    def __init__(
        self,
        me: AgpIdentity,
        keeper: KeyValueStore,
        peers: PeerKeySource,
        clock: Clock,
        draws: RandomSource,
        *,
        chat: ReplyHandler | None = None,
        task: ReplyHandler | None = None,
        answered: UnclaimedReplyHandler | None = None,
        on_open: Callable[[AgpConnection], Awaitable[None]] | None = None,
        timing: AgpTimeouts | None = None,
        memory: ReplayCache | None = None,
        keeping: RetentionPolicy | None = None,
    ) -> None:
        """`answered` gets answers that nobody waits for any more, `on_open` every conversation once both sides are known."""
        self.me = me
        self.mail = MessageStore(me.agent, keeper, clock, keeping)
        self.conversations: dict[str, AgpConnection] = {}
        self.chat, self.task, self.late = chat, task, answered
        self._peers = peers
        self._clock = clock
        self._draws = draws
        self._on_open = on_open
        self._timing = timing
        self._memory = memory if memory is not None else ReplayCache()
        self._asked: dict[str, PendingAnswer] = {}
        self._hearing: dict[str, InboundQueue] = {}
        self._working: set[asyncio.Task[None]] = set()

    async def converse(
        self,
        link: AgpLink,
        *,
        peer: str | None = None,
        peers: PeerKeySource | None = None,
        on_control: ControlHandler | None = None,
        opened: Callable[[AgpConnection], Awaitable[None]] | None = None,
    ) -> None:
        """One conversation, until it ends; `peer` is whom we called. Says why by what it raises."""
        session = AgpSession(self.me, self._draws, peer=peer, calls=peer is not None, memory=self._memory)

        async def on_open(conversation: AgpConnection) -> None:
            before = self.conversations.get(conversation.peer)
            if before is not None and self.mail.forgets_answers:
                await before.part()
            self.conversations[conversation.peer] = conversation
            for told in (self._on_open, opened):
                if told is not None:
                    await told(conversation)

        conversation = AgpConnection(
            link,
            session,
            peers=peers or self._peers,
            mail=self.mail,
            listener=self,
            clock=self._clock,
            timing=self._timing,
            on_open=on_open,
            on_control=on_control,
        )
        try:
            await conversation.run()
        finally:
            if self.conversations.get(conversation.peer) is conversation:
                del self.conversations[conversation.peer]

    async def recover(self) -> None:
        """Hand over what came before a restart and was not finished."""
        for letter in await self.mail.unfinished():
            self._heard(letter)

    async def close(self) -> None:
        """Whatever is not finished is handed over again at the next start."""
        for task in list(self._working):
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def accept_relayed(self, frame: str, send: Callable[[str], Awaitable[None]]) -> None:
        """A message that waited at a relay: signed, but nobody is there to prove that it is there. It counts once all the
        same: its id is known for longer than its signature holds."""
        message = parse_message(frame)
        if message.to != self.me.agent or message.type not in ("chat", "task"):
            raise Forbidden("The message is not for us.", path="$.to", hint="Send it to the agent that it is for.")
        check_time(message, self._clock.now())
        known = await self._peers.key_of(message.sender)
        if known is None or known.key is None:
            raise unknown_peer_error(message.sender)
        if not verify(known.key, message.signature, message.signing_input):
            raise BadSignature("The message is not signed by its sender's key.", path="$.signature", hint="Sign it.")
        await self.accept([message], verified=False)
        session = AgpSession(self.me, self._draws, peer=message.sender, calls=True)
        await send(session.acknowledge((message.id,), self._clock.now()))

    # --- Asking ----------------------------------------------------------------------------------

    def letter(self, peer: str, content: MessageContent, *, kind: str = "chat") -> AgentMessage:
        return AgentMessage(id=self._draws.message_id(), peer=peer, content=content, kind=kind, at=self._clock.now())

    async def send(self, letter: AgentMessage) -> None:
        """Keep it; it leaves now, or when there is a conversation with its receiver."""
        await self.mail.post([letter])
        await self.push(letter.peer, [letter])

    async def settle(self, peer: str, answers: Sequence[AgentMessage], done: Sequence[AgentMessage]) -> None:
        """Letters are done, and their answers leave. Who takes no answers gets no more of them."""
        try:
            await self.mail.post(answers, done=done)
        except QuotaExceeded as error:
            log.warning("%s of %s to %s is not kept: %s", len(answers), self.me.agent, peer, error.message)
            await self.mail.post((), done=done)
            return
        await self.push(peer, answers)

    async def push(self, peer: str, letters: Sequence[AgentMessage]) -> None:
        """Send what is kept already, if there is a conversation; else it leaves when there is one."""
        conversation = self.conversations.get(peer)
        if conversation is None or not conversation.is_open:
            return
        for letter in letters:
            conversation.push(letter)
        if conversation.is_full:
            await conversation.room()

    async def ask(
        self, letter: AgentMessage, *, seconds: float = limits.AGP_ANSWER_SECONDS
    ) -> AsyncIterator[AgentMessage]:
        """Send a question and yield the parts of its answer."""
        asked = self._asked[letter.id] = PendingAnswer(letter)
        try:
            await self.send(letter)
            while not asked.is_over:
                yield await asked.next(seconds)
        finally:
            del self._asked[letter.id]

    async def answer(self, letter: AgentMessage, *, seconds: float = limits.AGP_ANSWER_SECONDS) -> list[AgentMessage]:
        """Send a question and wait for its whole answer."""
        asked = self._asked[letter.id] = PendingAnswer(letter)
        parts = []
        try:
            await self.send(letter)
            while not asked.is_over:
                parts.append(await asked.next(seconds))
        finally:
            del self._asked[letter.id]
        return parts

    # --- Hearing (a Listener) --------------------------------------------------------------------

    async def accept(self, messages: Sequence[AgpMessage], *, verified: bool) -> None:
        for letter in await self.mail.accept(messages, verified=verified):
            self._heard(letter)

    async def room(self, peer: str) -> None:
        hearing = self._hearing.get(peer)
        if hearing is not None:
            await hearing.room()

    def _heard(self, letter: AgentMessage) -> None:
        hearing = self._hearing.get(letter.peer)
        if hearing is None:
            hearing = self._hearing[letter.peer] = InboundQueue(self, letter.peer)
        asked = self._asked.get(letter.content.reply_to or "")
        if asked is not None and asked.take(letter):
            hearing.finish(letter, [])
        else:
            hearing.put(letter)

    def forget(self, peer: str) -> None:
        self._hearing.pop(peer, None)

    async def hear(self, letter: AgentMessage) -> list[AgentMessage]:
        """Have it answered. Parts that others follow leave at once; the last one is what comes back, if there is one."""
        if letter.is_answer:
            if self.late is not None:
                await self.late(letter)
            return []
        handler = self.task if letter.kind == "task" else self.chat
        if handler is None:
            return [self._answer(letter, MessageContent(text=f"{self.me.agent} takes no messages of this kind."), 0)]
        contents = handler(letter, self.conversations.get(letter.peer))
        for part in range(limits.AGP_PARTS):
            try:
                content = await contents.__anext__()
            except StopAsyncIteration:
                return []
            except WaypostError as error:
                content = MessageContent(text=str(error))
            except Exception:
                log.exception("the handler of %s failed on message %s", self.me.agent, letter.id)
                content = MessageContent(text=_FAILURE_TEXT)
            answer = self._answer(letter, content, part)
            if not content.more:
                return [answer]
            await self.send(answer)
        return []

    def _answer(self, question: AgentMessage, content: MessageContent, part: int) -> AgentMessage:
        return AgentMessage(
            id=reply_id(question.id, part, last=not content.more),
            peer=question.peer,
            content=msgspec.structs.replace(content, reply_to=question.id),
            kind=question.kind,  # a result is a `task`, as its request was (adp.md §6.4)
            at=self._clock.now(),
        )


class InboundQueue:
    """The letters of one peer on their way to the handler, one after the other, whatever becomes of the line."""

    def __init__(self, correspondent: AgpEndpoint, peer: str) -> None:
        self._correspondent = correspondent
        self._peer = peer
        self._letters: deque[AgentMessage] = deque()
        self._finished: list[tuple[AgentMessage, list[AgentMessage]]] = []
        self._room = asyncio.Event()
        self._is_hearing = self._is_settling = False

    def put(self, letter: AgentMessage) -> None:
        self._letters.append(letter)
        if not self._is_hearing:
            self._is_hearing = True
            self._correspondent.begin(self._hear())

    async def room(self) -> None:
        while len(self._letters) + len(self._finished) >= limits.AGP_QUEUE:
            self._room.clear()
            await self._room.wait()

    async def _hear(self) -> None:
        try:
            while self._letters:
                letter = self._letters[0]
                last = await self._correspondent.hear(letter)
                self._letters.popleft()
                self.finish(letter, last)
                self._room.set()
        finally:
            self._is_hearing = False
            self._rest()

    def finish(self, letter: AgentMessage, answers: list[AgentMessage]) -> None:
        self._finished.append((letter, answers))
        if not self._is_settling:
            self._is_settling = True
            self._correspondent.begin(self._settle())

    async def _settle(self) -> None:
        """What was answered and that it is done, in one commit; whatever was finished meanwhile goes together."""
        try:
            while self._finished:
                batch, self._finished = self._finished, []
                answers = [answer for _, last in batch for answer in last]
                await self._correspondent.settle(self._peer, answers, [letter for letter, _ in batch])
                self._room.set()
        except WaypostError as error:  # it is done at the next start
            log.warning("what %s was answered could not be kept: %s", self._peer, error)
        finally:
            self._is_settling = False
            self._rest()

    def _rest(self) -> None:
        if not self._is_hearing and not self._is_settling and not self._letters:
            self._correspondent.forget(self._peer)


class PendingAnswer:
    """A question that waits for its answer."""

    def __init__(self, letter: AgentMessage) -> None:
        self.letter = letter
        self.is_over = False
        self._parts: deque[AgentMessage] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._count = 0
        self._is_derived: bool | None = None  # whether the peer makes ids of answers as we do

    def take(self, letter: AgentMessage) -> bool:
        """Whether it is a part of the answer. Ids that follow from the question are proof; other peers have none to give."""
        if letter.peer != self.letter.peer or self._count >= limits.AGP_PARTS:
            return False
        derived = letter.id == reply_id(self.letter.id, self._count, last=not letter.content.more)
        if self._is_derived is None:
            self._is_derived = derived
        if derived != self._is_derived:
            return False
        self._count += 1
        self._parts.append(letter)
        self._wake()
        return True

    async def next(self, seconds: float) -> AgentMessage:
        if not self._parts:
            await self._wait(seconds)
        if not self._parts:
            raise Timeout(
                f"{self.letter.peer} has not answered in {seconds:g} seconds.",
                path="to",
                hint="The message is kept and delivered; ask later, or wait longer with timeout.",
            )
        part = self._parts.popleft()
        self.is_over = not part.content.more
        return part

    async def _wait(self, seconds: float) -> None:
        """Until a part is here, or the time is over."""
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
