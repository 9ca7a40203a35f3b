"""What a conversation needs of a socket, whoever opened it."""

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


class LinkLost(Exception):
    """The connection is gone; with the code and the words of the other side, where it had any."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class AgpLink(Protocol):
    async def send(self, frame: str) -> None:
        """Waits while the other side takes nothing. LinkLost."""
        ...

    async def receive(self) -> str | bytes:
        """LinkLost."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class PushbackLink:
    """A link from which the first frame was already taken."""

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


# ---- A second thread that helps with signatures when several wait: libsodium works without the interpreter's lock.
#
# Whoever has the work begins it at once and never waits for the helper: what the helper has not finished in the end is done
# again. So a helper that sleeps, is held up or died in a fork costs nothing but its help, and the order stays with the caller.

Job = TypeVar("Job")

Done = TypeVar("Done")


class SharedBatch(Generic[Job, Done]):
    """Jobs that two do together: one takes them from the front, the other from the back."""

    __slots__ = ("_do", "_done", "_jobs", "_left")

    def __init__(self, do: Callable[[Job], Done], jobs: Sequence[Job]) -> None:
        self._do = do
        self._jobs = jobs
        self._done: list[Done | None] = [None] * len(jobs)
        self._left = list(range(len(jobs)))  # only popped: that is one step, whoever does it

    def help(self) -> None:
        self._take(0)

    def finish(self) -> list[Done]:
        self._take(-1)
        do = self._do
        return [do(job) if done is None else done for done, job in zip(self._done, self._jobs, strict=True)]

    def _take(self, end: int) -> None:
        do, jobs, done, pop = self._do, self._jobs, self._done, self._left.pop
        while self._left:
            try:
                at = pop(end)
            except IndexError:  # the other took the last one
                return
            done[at] = do(jobs[at])


class SignaturePool:
    """The helper of one process. Its thread begins when there is something to share, and then waits for more."""

    def __init__(self) -> None:
        self._handed: SimpleQueue[SharedBatch[object, object]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_of_use = (os.cpu_count() or 1) > 1

    def do(self, do: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
        """What `do` makes of each job, in their order. For what needs no lock of the interpreter and may be done twice."""
        if len(jobs) < limits.AGP_POOL_MIN_SIGNATURES or not self._is_of_use:
            return [do(job) for job in jobs]
        sharing = SharedBatch(do, jobs)
        self._hand(sharing)  # type: ignore[arg-type]
        return sharing.finish()

    def _hand(self, sharing: SharedBatch[object, object]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._help, name="waypost-signatures", daemon=True)
            self._thread.start()
        if self._handed.empty():  # else it is busy with another's, or gone
            self._handed.put(sharing)

    def _help(self) -> None:
        while True:
            self._handed.get().help()


signature_pool = SignaturePool()


# ---- One conversation over one link: the handshake, then letters both ways until either side ends it.
#
# It drives a session (`protocols/adp/agp/session.py`), keeps letters by `mail.py`, and asks `peers.py` for the key.
# Frames are read one by
# one; letters that came together are kept in one commit and acknowledged by one message. Every queue has a bound, and a full one
# stops the reading, so that a flood waits on the sender's side.

log = logging.getLogger("waypost.messaging")

NORMAL_CLOSURE = 1000

_CLEAN_CLOSE_CODES = (NORMAL_CLOSURE, 1001, 1005)  # how a socket says good-bye (RFC 6455 §7.4.1)

_REASON_BYTES = 120


class PeerClosed(Exception):
    """The peer said that it is over."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PeerError(Exception):
    """The peer refused what we said, and told why."""

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
    """Who hears what is said. It outlives the link."""

    async def accept(self, messages: Sequence[AgpMessage], *, verified: bool) -> None:
        """Keep what came, and hand over what was never here before. Afterwards all of it may be acknowledged."""
        ...

    async def room(self, peer: str) -> None:
        """Waits while too much of what came from there is not yet heard."""
        ...


ControlHandler = Callable[["AgpConnection", JsonObject, AgpMessage], Awaitable[bool]]


class AgpConnection:
    # fmt: off
    __slots__ = (  # thousands may be open and silent
        "_acked", "_acknowledged_last", "_acknowledging", "_arrived", "_beat", "_clock", "_deadline", "_fault",
        "_flight", "_group", "_heard_at", "_is_keeping", "_is_loaded", "_is_over", "_is_parted", "_is_sending",
        "_link", "_listener", "_loop", "_mail", "_on_control", "_on_open", "_outgoing", "_parting", "_peers",
        "_room", "_sending_since", "_sent_at", "_taken", "_timing", "_unacknowledged", "opened", "peer_key",
        "session",
    )
    # fmt: on

    def __init__(
        self,
        link: AgpLink,
        session: AgpSession,
        *,
        peers: PeerKeySource,
        mail: MessageStore,
        listener: MessageReceiver,
        clock: Clock,
        timing: AgpTimeouts | None = None,
        on_open: Callable[[AgpConnection], Awaitable[None]] | None = None,
        on_control: ControlHandler | None = None,
    ) -> None:
        self.session = session
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer_key: PeerIdentity | None = None
        self._link = link
        self._peers = peers
        self._mail = mail
        self._listener = listener
        self._clock = clock
        self._timing = timing or AgpTimeouts()
        self._on_open = on_open
        self._on_control = on_control
        self._group = asyncio.TaskGroup()
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._sent_at = self._loop.time()
        self._sending_since: float | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._fault: asyncio.Future[None] = self._loop.create_future()
        self._arrived: list[AgpMessage] = []
        self._taken: asyncio.Future[None] | None = None  # whoever reads waits for it while too much has arrived
        self._outgoing: deque[AgentMessage] = deque()
        self._flight: dict[str, AgentMessage] = {}  # sent, not acknowledged
        self._acked: dict[str, asyncio.Future[None]] = {}
        self._unacknowledged: list[str] = []
        self._acknowledged_last = 0  # how many the last acknowledgement covered
        self._acknowledging: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._deadline: asyncio.Timeout | None = None
        self._parting: asyncio.Future[None] | None = None
        self._is_parted = False
        self._is_sending = self._is_keeping = self._is_loaded = self._is_over = False

    @property
    def peer(self) -> str:
        return self.session.peer or ""

    @property
    def is_open(self) -> bool:
        return self.session.is_open

    def verdict(self) -> Verdict | None:
        if self.peer_key is None or not self.is_open:
            return None
        return peer_verdict(self.peer_key, verified=self.session.is_verified, now=self._clock.now())

    # --- The whole of it -------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it ends. LinkLost, Ended, PeerFault or the fault of the other side says why."""
        error: Exception | None = None
        try:
            async with self._group:
                self._group.create_task(self._watched())
                await self._handshake()
                self._listen()
                await self._open()
                await self._read()
        except* (LinkLost, PeerClosed, PeerError, WaypostError) as group:
            error = _first_error(group)
        finally:
            self._is_over = True
            self._room.set()
            for timer in (self._beat, self._acknowledging):
                if timer is not None:
                    timer.cancel()
            self._settle_opened(error)
        if error is not None:
            try:
                if not _is_cut(error):
                    await self._mail.left(self._flight.values())
            finally:
                self._is_parted = True
                _settle_future(self._parting)
            await self._end(error)
            raise error

    async def part(self) -> None:
        """The peer is here anew. Whether it left this conversation in order, or was cut off, may be seen in a moment; then
        it is not told again what it was told last."""
        if self._flight and not self._is_parted:
            self._parting = self._parting or self._loop.create_future()
            await asyncio.wait((self._parting,), timeout=limits.AGP_RECONNECT_SECONDS)

    async def close(self, reason: str = "") -> None:
        """Say good-bye, and end."""
        if self.is_open:
            with suppress(LinkLost):
                await self._send(self.session.control("disconnect", self._clock.now(), reason=reason or None))
        self._fail(PeerClosed(reason))

    async def _end(self, error: Exception) -> None:
        """Tell the other side why, if it is our decision, and let go. Then whoever runs it hears the same."""
        if isinstance(error, WaypostError):
            with suppress(LinkLost, WaypostError, TimeoutError):
                async with asyncio.timeout(self._timing.stall_seconds):
                    await self._link.send(self.session.fault_frame(error, self._clock.now()))
            await self._link.close(error_codes(error).ws_close, _reason(error.message))
        elif not isinstance(error, LinkLost):
            self.session.end()
            await self._link.close(NORMAL_CLOSURE, "")

    def _settle_opened(self, error: Exception | None = None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or LinkLost())
            self.opened.exception()  # nobody has to ask
        for waiting in self._acked.values():
            if not waiting.done():
                waiting.cancel()

    # --- The handshake ---------------------------------------------------------------------------

    async def _handshake(self) -> None:
        try:
            async with asyncio.timeout(self._timing.handshake_seconds) as self._deadline:
                if self.session.peer is not None:
                    await self._send(self.session.call(self._clock.now()))
                while not self.session.is_open:
                    await self._meet(await self._link.receive())
        except TimeoutError:
            raise HandshakeTimeout(
                f"The handshake was not over in {self._timing.handshake_seconds:g} seconds.",
                path="$",
                hint="Say hello as soon as you are connected, and acknowledge ours.",
            ) from None

    async def _meet(self, frame: str | bytes) -> None:
        match self.session.receive(frame, self._clock.now()):
            case HelloReceived(hello):
                known = await self._peers.key_of(hello.agent)
                if known is None:
                    raise unknown_peer_error(hello.agent)
                self.peer_key = known
                for answer in self.session.admit(known.matched(hello.raw), self._clock.now()):
                    await self._send(answer)
            case ControlReceived(action, message, verified):
                await self._controlled(action, message, verified)
            case SessionOpened():
                pass

    async def _open(self) -> None:
        if self._on_open is not None:
            await self._on_open(self)
        waiting = await self._mail.waiting(self.peer)
        known = {letter.id for letter in waiting}
        self._outgoing = deque((*waiting, *(letter for letter in self._outgoing if letter.id not in known)))
        self._is_loaded = True
        self._send_soon()
        if not self.opened.done():
            self.opened.set_result(None)

    # --- What comes in ---------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            frame = await self._link.receive()
            self._heard_at = self._loop.time()
            await self._take(frame)

    async def _take(self, frame: str | bytes) -> None:
        match self.session.receive(frame, self._clock.now()):
            case MessageReceived(message):
                self._arrive(message)
                while len(self._arrived) >= limits.AGP_QUEUE:
                    self._taken = self._loop.create_future()
                    await self._taken
            case AckReceived(ids):
                await self._acknowledged(ids)
            case ControlReceived(action, message, verified):
                await self._controlled(action, message, verified)

    async def _controlled(self, action: JsonObject, message: AgpMessage, verified: bool) -> None:
        match action["action"]:
            case "heartbeat" if verified:
                await self._send(self.session.acknowledge((message.id,), self._clock.now()))
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

    def _arrive(self, message: AgpMessage) -> None:
        self._arrived.append(message)
        if not self._is_keeping:
            self._is_keeping = True
            self._begin(self._keep())

    async def _keep(self) -> None:
        """Have kept what came, and acknowledge it. Whatever came meanwhile goes together."""
        try:
            while self._arrived:
                batch = self._arrived[: limits.AGP_ACK_IDS]
                del self._arrived[: limits.AGP_ACK_IDS]
                _settle_future(self._taken)
                # What is kept is handed over as well, also when the line is cut in between.
                await asyncio.shield(self._listener.accept(batch, verified=self.session.is_verified))
                self._unacknowledged.extend(message.id for message in batch)
                await self._acknowledge()
                await self._listener.room(self.peer)
        finally:
            self._is_keeping = False

    async def _acknowledge(self) -> None:
        """At once to who says one thing at a time; in a stream a moment later, since a signature costs more than a wait."""
        is_stream = len(self._unacknowledged) > 1 or self._acknowledged_last > 1
        if is_stream and len(self._unacknowledged) < limits.AGP_ACK_BATCH:
            if self._acknowledging is None:
                self._acknowledging = self._loop.call_later(
                    limits.AGP_ACK_SECONDS, lambda: self._begin(self._acknowledge_now())
                )
            return
        await self._acknowledge_now()

    async def _acknowledge_now(self) -> None:
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        while self._unacknowledged:
            ids = tuple(self._unacknowledged[: limits.AGP_ACK_IDS])
            del self._unacknowledged[: limits.AGP_ACK_IDS]
            self._acknowledged_last = len(ids)
            await self._send(self.session.acknowledge(ids, self._clock.now()))

    # --- What goes out ---------------------------------------------------------------------------

    def push(self, letter: AgentMessage) -> None:
        """Send a letter that is kept already."""
        self._outgoing.append(letter)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._is_loaded and self._outgoing and not self._is_sending:
            self._is_sending = True
            self._begin(self._drain())

    @property
    def is_full(self) -> bool:
        """Whether enough waits to be sent."""
        return len(self._outgoing) > limits.AGP_QUEUE

    async def room(self) -> None:
        while self.is_full and not self._is_over:
            self._room.clear()
            await self._room.wait()

    def acknowledgement(self, letter_id: str) -> asyncio.Future[None]:
        """Done when the peer has acknowledged it; cancelled when the conversation ends first."""
        return self._acked.setdefault(letter_id, self._loop.create_future())

    async def _drain(self) -> None:
        """Some at once. Then those are written that are signed, so that the peer verifies them while others are signed."""
        try:
            while self._outgoing:
                while len(self._flight) >= limits.AGP_WINDOW:
                    self._room.clear()
                    await self._room.wait()
                letters = self._leaving()
                for letter, frame in zip(letters, self._written(letters), strict=False):
                    self._flight[letter.id] = letter
                    await self._send(frame)
                if self._outgoing:
                    await asyncio.sleep(0)
        finally:
            self._is_sending = False

    def _leaving(self) -> list[AgentMessage]:
        """Those that leave now, as far as there is room for them on their way."""
        count = min(limits.AGP_SIGN_SLICE, limits.AGP_WINDOW - len(self._flight), len(self._outgoing))
        return [self._outgoing.popleft() for _ in range(count)]

    def _written(self, letters: Sequence[AgentMessage]) -> Iterator[str]:
        now, signing_time = self._clock.now(), self._mail.signing_time
        return self.session.write_each(
            [UnsignedMessage(letter.id, letter.kind, letter.content, signing_time(letter, now)) for letter in letters],
            signature_pool.do,
        )

    async def _acknowledged(self, ids: tuple[str, ...]) -> None:
        known = [letter_id for letter_id in ids if self._flight.pop(letter_id, None) is not None]
        if not known:
            return
        await self._mail.acknowledged(known)
        self._room.set()
        for letter_id in known:
            waiting = self._acked.pop(letter_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    async def leave(self) -> int:
        """The peer is away, and its relay keeps messages for it: leave those that wait. They stay ours until it has
        acknowledged them itself. How many there were."""
        if self._deadline is not None:
            self._deadline.reschedule(None)
        letters = (await self._mail.waiting(self.peer))[: limits.AGP_MAILBOX_PER_SENDER]
        for letter in letters:
            at = self._mail.signing_time(letter, self._clock.now())
            await self._send(self.session.write(letter.kind, letter.content, at, message_id=letter.id))
        return len(letters)

    async def control(self, action: str, **members: Any) -> None:
        await self._send(self.session.control(action, self._clock.now(), **members))

    async def _send(self, frame: str) -> None:
        self._sending_since = self._sent_at = self._loop.time()
        await self._link.send(frame)
        self._sending_since = None

    # --- The heartbeat ---------------------------------------------------------------------------

    def _listen(self) -> None:
        self._beat = self._loop.call_later(self._timing.heartbeat_seconds / 3, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self._sending_since is not None and now - self._sending_since > self._timing.stall_seconds:
            self._fail(Unavailable("The peer takes nothing.", path="link", hint="It is tried again later."))
            return
        if now - self._heard_at > self._timing.silence_seconds and not self._is_full():
            self._fail(Unavailable("Nothing was heard of the peer.", path="link", hint="It is tried again later."))
            return
        if now - self._sent_at >= self._timing.heartbeat_seconds and self._sending_since is None:
            self._begin(self.control("heartbeat"))
        self._listen()

    def _is_full(self) -> bool:
        """It is we who do not listen."""
        return len(self._arrived) >= limits.AGP_QUEUE

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside the rest, while there is a rest: what ends takes up nothing new."""
        try:
            self._group.create_task(work)
        except RuntimeError:
            work.close()

    def _fail(self, error: Exception) -> None:
        if not self._fault.done() and not self._is_over:
            self._fault.set_exception(error)

    async def _watched(self) -> None:
        await self._fault


def _settle_future(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _first_error(group: BaseExceptionGroup[Any]) -> Exception:
    """Of what ended together, our own decision tells most."""
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
    """Whether the peer may have missed what it was sent last: it did not leave, the line did."""
    return isinstance(error, Unavailable) or (isinstance(error, LinkLost) and error.code not in _CLEAN_CLOSE_CODES)


def _reason(text: str) -> str:
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")
