"""Messages kept for an agent that is away, as they came, within bounds: of number, size, sender and time.

They are not opened: the signature is for their receiver. After 300 seconds the receiver would have to refuse them (ADP-49), so
they are kept for less; whoever sent them still has them, and signs them anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from waypost import limits
from waypost.errors import (
    BadSignature,
    Conflict,
    FingerprintMismatch,
    Forbidden,
    QuotaExceeded,
    RateLimited,
    Unauthorized,
    Unavailable,
    WaypostError,
    agp_code_of,
    error_codes,
)
from waypost.messaging.connection import AgpConnection, AgpLink, LinkLost, PeerClosed, PeerError
from waypost.messaging.endpoint import AgpEndpoint
from waypost.messaging.peers import PeerKeySource, unknown_peer_error
from waypost.model.json import JsonObject
from waypost.protocols.adp.agp.hello import AgpIdentity, Hello, find_hello
from waypost.protocols.adp.agp.messages import (
    CLOSE_CODES,
    AgpMessage,
    acknowledged_ids,
    check_time,
    find_error_code,
    parse_message,
    read_frame,
    verify,
    write_action,
    write_message,
)
from waypost.protocols.adp.agp.session import RandomSource
from waypost.registry.ports import Clock, KeyValueStore, KeyValueWrite
from waypost.trust.keys.public_key import PublicKey

MAILBOX_KIND = "agp.mail"


class _MailboxItem(msgspec.Struct, frozen=True):
    order: int
    frame: str


class Mailboxes:
    def __init__(self, keeper: KeyValueStore, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._last = 0
        self._known: dict[str, dict[str, tuple[int, float]]] = {}  # by agent and key: the size, and the end

    async def deposit(self, agent: str, message: AgpMessage, frame: str) -> None:
        """Keep a message for `agent`. One that is there already is replaced: it was signed anew."""
        now = self._clock.now()
        sizes = await self._sizes_of(agent, now)
        key = _mailbox_key(agent, message.sender, message.id)
        _check_mailbox_room(
            agent, message.sender, len(frame), {name: size for name, size in sizes.items() if name != key}
        )
        self._last = max(self._last + 1, int(now * 1_000_000))
        value = msgspec.json.encode(_MailboxItem(self._last, frame))
        ends = min(now, message.at) + limits.AGP_MAILBOX_SECONDS
        await self._keeper.commit([KeyValueWrite(kind=MAILBOX_KIND, key=key, value=value, expires_at=ends)], now)
        self._known[agent][key] = (len(frame), ends)

    async def _sizes_of(self, agent: str, now: float) -> dict[str, int]:
        """What is there, by key. It is read once; after that we know."""
        if agent not in self._known:
            found = await self._keeper.scan(MAILBOX_KIND, now, prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1)
            self._known[agent] = {each.key: (len(each.value), each.expires_at or now) for each in found}
        known = self._known[agent] = {key: kept for key, kept in self._known[agent].items() if kept[1] > now}
        return {key: size for key, (size, _) in known.items()}

    async def frames(self, agent: str) -> list[tuple[str, str]]:
        """All of them with their senders, in the order in which they came. They stay until they are acknowledged."""
        self._known.pop(agent, None)  # nobody adds to it while the agent is here
        found = await self._keeper.scan(
            MAILBOX_KIND, self._clock.now(), prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1
        )
        kept = [(each.key.split(" ", 2)[1], msgspec.json.decode(each.value, type=_MailboxItem)) for each in found]
        return [(sender, each.frame) for sender, each in sorted(kept, key=lambda pair: pair[1].order)]

    async def remove(self, agent: str, sender: str, ids: tuple[str, ...]) -> None:
        writes = [
            KeyValueWrite(kind=MAILBOX_KIND, key=_mailbox_key(agent, sender, message_id), value=None)
            for message_id in ids
        ]
        if writes:
            await self._keeper.commit(writes, self._clock.now())
        for write in writes:
            self._known.get(agent, {}).pop(write.key, None)


def _mailbox_key(agent: str, sender: str, message_id: str) -> str:
    return f"{agent} {sender} {message_id}"


def _check_mailbox_room(agent: str, sender: str, size: int, kept: dict[str, int]) -> None:
    prefix = f"{agent} {sender} "
    of_sender = sum(name.startswith(prefix) for name in kept)
    if (
        len(kept) >= limits.AGP_MAILBOX
        or of_sender >= limits.AGP_MAILBOX_PER_SENDER
        or sum(kept.values()) + size > limits.AGP_MAILBOX_BYTES
    ):
        raise QuotaExceeded(
            f"{agent} is away, and its mailbox is full.", path="$.to", hint="Come back later.", retry_after=30
        )


# ---- A relay for agents that cannot be called: they hold a line to it, and what is for them arrives on that line, untouched.
#
# Whoever calls such an agent speaks with it, not with the relay: the hello, its answer and every message pass as they are, and
# prove themselves end to end. The relay looks at who sends, how much and how often; it verifies what it passes on to an agent, so
# that nobody is bothered in the name of another. While the agent is away, messages wait in its mailbox (`mailbox.py`).

RELAYED_KIND = "agp.relayed"

SERVICE_RESTART = 1012

_REASON = "the agent came back; call again"

_AWAY = "the agent went away; call again"

_RELAYED_TYPES = frozenset(("chat", "task", "ack"))


class AttachedLink:
    """The line of an agent to its relay, seen from the relay: what is for us is ours, the rest is passed on."""

    def __init__(self, link: AgpLink, me: str) -> None:
        self._link = link
        self._me = me
        self.passed_on: Callable[[JsonObject, str], Awaitable[None]] | None = None

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        while True:
            frame = await self._link.receive()
            if self.passed_on is None or isinstance(frame, bytes):
                return frame
            document = read_frame(frame)
            if str(document.get("to")).lower() == self._me:
                return frame
            await self.passed_on(document, frame)

    async def close(self, code: int, reason: str) -> None:
        await self._link.close(code, reason)


class RelayedPeer:
    """Somebody who calls an agent through the relay."""

    def __init__(self, link: AgpLink, agent: str, hello: Hello, key: PublicKey, *, live: bool) -> None:
        self.link = link
        self.agent = agent
        self.name = hello.agent
        self.key = key
        self.live = live  # the agent was there when it called
        self.is_greeted = False  # the agent has answered its hello


class Relay:
    def __init__(
        self, me: AgpIdentity, keeper: KeyValueStore, peers: PeerKeySource, clock: Clock, draws: RandomSource
    ) -> None:
        self._me = me
        self._keeper = keeper
        self._peers = peers
        self._clock = clock
        self._draws = draws
        self._boxes = Mailboxes(keeper, clock)
        self._lines: dict[str, tuple[AttachedLink, AgpConnection]] = {}
        self._guests: dict[str, dict[str, RelayedPeer]] = {}
        self._delivering: set[asyncio.Task[None]] = set()

    @property
    def attached(self) -> frozenset[str]:
        return frozenset(self._lines)

    async def serves(self, agent: str) -> bool:
        """Whether the agent holds a line here, or did so lately."""
        return agent in self._lines or await self._keeper.get(RELAYED_KIND, agent, self._clock.now()) is not None

    # --- The agent's side ------------------------------------------------------------------------

    async def attach(self, link: AttachedLink, conversation: AgpConnection) -> int:
        """The agent of a conversation holds its line from now on. How many messages wait for it."""
        agent = conversation.peer
        if agent not in self._lines and len(self._lines) >= limits.RELAY_AGENTS:
            raise RateLimited("Too many agents hold a line here.", path="$", hint="Come back later.", retry_after=60)
        now = self._clock.now()
        ends = now + limits.AGP_OUTBOX_SECONDS
        await self._keeper.commit([KeyValueWrite(kind=RELAYED_KIND, key=agent, value=b"1", expires_at=ends)], now)
        self._lines[agent] = (link, conversation)
        link.passed_on = lambda document, frame: self._from_agent(agent, document, frame)
        await self._dismiss(agent, _REASON)
        frames = await self._boxes.frames(agent)
        await conversation.control("attached", kept=len(frames))
        if frames:  # beside the reading: the agent acknowledges while it is sent more
            task = asyncio.create_task(self._deliver(agent, link, frames))
            self._delivering.add(task)
            task.add_done_callback(self._delivering.discard)
        return len(frames)

    async def _deliver(self, agent: str, link: AttachedLink, frames: list[tuple[str, str]]) -> None:
        """What waited. Whoever has called meanwhile says it again by itself."""
        with suppress(LinkLost):
            for sender, frame in frames:
                line = self._lines.get(agent)
                if line is None or line[0] is not link:
                    return
                if sender not in self._guests.get(agent, {}):
                    await link.send(frame)

    async def detach(self, link: AttachedLink, agent: str) -> None:
        if agent in self._lines and self._lines[agent][0] is link:
            del self._lines[agent]
            await self._dismiss(agent, _AWAY)

    async def _dismiss(self, agent: str, reason: str) -> None:
        for guest in list(self._guests.pop(agent, {}).values()):
            await guest.link.close(SERVICE_RESTART, reason)

    async def _from_agent(self, agent: str, document: JsonObject, frame: str) -> None:
        """What an agent says to somebody else: to who called it, or to nobody."""
        if str(document.get("from")).lower() != agent:
            raise Forbidden(f"This line is of {agent}.", path="$.from", hint="Speak for yourself.")
        to = str(document.get("to")).lower()
        if document.get("type") == "ack":
            await self._boxes.remove(agent, to, acknowledged_ids(parse_message(frame)))
        guest = self._guests.get(agent, {}).get(to)
        if guest is None:
            _, conversation = self._lines[agent]
            await conversation.control("gone", agent=to)
            return
        if not _is_expected(guest, document):
            return
        try:
            async with asyncio.timeout(limits.AGP_STALL_SECONDS):
                await guest.link.send(frame)
        except (LinkLost, TimeoutError):
            await guest.link.close(error_codes(Unavailable("")).ws_close, "too slow")
            return
        refused = find_error_code(frame) if document.get("type") == "system" else None
        if refused is not None:  # the agent speaks with it no more; only the relay can close its connection
            await guest.link.close(CLOSE_CODES.get(refused, CLOSE_CODES["internal"]), f"{agent} refuses: {refused}")

    # --- The caller's side -----------------------------------------------------------------------

    async def take(
        self,
        link: AgpLink,
        first: str | bytes,
        agent: str,
        *,
        peers: PeerKeySource | None = None,
        known: Callable[[], None] = lambda: None,
    ) -> None:
        """Somebody calls an agent of ours, until either side ends it. `known` is told once it has proven who it is."""
        caller: str | None = None
        try:
            hello = find_hello(read_frame(first))
            if hello is None or hello.message is None or isinstance(first, bytes):
                raise Unauthorized("The session begins with a hello.", path="$.type", hint="Say hello first.")
            caller = hello.agent
            guest = RelayedPeer(link, agent, hello, await self._proven(hello, peers), live=agent in self._lines)
            known()
            await self._seat(guest)
            try:
                await self._pass(guest, first, hello)
            finally:
                await self._leave(guest)
        except WaypostError as error:
            if caller is not None:
                with suppress(LinkLost):
                    code = agp_code_of(error)
                    await link.send(
                        self._control(caller, "error", code=code, message=str(error), retryable=code == "rate_limited")
                    )
            await link.close(error_codes(error).ws_close, error.message[:100])

    async def _proven(self, hello: Hello, peers: PeerKeySource | None) -> PublicKey:
        known = await (peers or self._peers).key_of(hello.agent)
        if known is None:
            raise unknown_peer_error(hello.agent)
        key = known.matched(hello.raw)
        message = hello.message
        if key.fingerprint() != hello.fingerprint:
            raise FingerprintMismatch(
                f"{hello.agent} shows another key than the one that is known of it.",
                path="$.body.content.fingerprint",
                hint="Use the key that the agent's domain publishes.",
            )
        if message is None or not verify(key, message.signature, message.signing_input):
            raise BadSignature("The hello is not signed by its key.", path="$.signature", hint="Sign it (ADP-42).")
        check_time(message, self._clock.now())
        return key

    async def _seat(self, guest: RelayedPeer) -> None:
        seats = self._guests.setdefault(guest.agent, {})
        if guest.name not in seats and len(seats) >= limits.RELAY_SESSIONS_PER_AGENT:
            raise RateLimited(f"{guest.agent} is busy.", path="$.to", hint="Come back later.", retry_after=10)
        before = seats.pop(guest.name, None)
        seats[guest.name] = guest
        if before is not None:
            await before.link.close(error_codes(Conflict("")).ws_close, "another line of this agent took its place")

    async def _pass(self, guest: RelayedPeer, first: str, hello: Hello) -> None:
        if guest.live:
            await self._to_agent(guest.agent, first)
        else:
            await guest.link.send(
                self._control(guest.name, "mailbox", agent=guest.agent, seconds=limits.AGP_MAILBOX_SECONDS)
            )
        while True:
            frame = await guest.link.receive()
            message = parse_message(frame)
            self._check(guest, message)
            if self._guests.get(guest.agent, {}).get(guest.name) is not guest:
                raise Conflict("Another line of this agent took its place.", path="$", hint="Use that one.")
            if guest.live:
                await self._to_agent(guest.agent, str(frame))
            elif message.type in ("chat", "task"):
                await self._boxes.deposit(guest.agent, message, str(frame))
                await guest.link.send(self._control(guest.name, "kept", ids=[message.id]))

    def _check(self, guest: RelayedPeer, message: AgpMessage) -> None:
        if message.sender != guest.name or message.to != guest.agent:
            raise Forbidden(
                f"This line is from {guest.name} to {guest.agent}.", path="$.to", hint="Open another one for others."
            )
        check_time(message, self._clock.now())
        if not verify(guest.key, message.signature, message.signing_input):
            raise BadSignature("The message is not signed by its sender's key.", path="$.signature", hint="Sign it.")

    async def _to_agent(self, agent: str, frame: str) -> None:
        line = self._lines.get(agent)
        if line is None:
            raise Unavailable(f"{agent} went away.", path="$.to", hint="Call again: its mailbox takes messages.")
        try:
            async with asyncio.timeout(limits.AGP_STALL_SECONDS):
                await line[0].send(frame)
        except (LinkLost, TimeoutError):
            raise Unavailable(f"{agent} takes nothing.", path="$.to", hint="Call again later.") from None

    async def _leave(self, guest: RelayedPeer) -> None:
        seats = self._guests.get(guest.agent, {})
        if seats.get(guest.name) is guest:
            del seats[guest.name]
            line = self._lines.get(guest.agent)
            if line is not None and guest.live:
                with suppress(LinkLost):
                    await line[1].control("gone", agent=guest.name)

    def _control(self, to: str, action: str, **members: object) -> str:
        return write_message(
            self._me.key,
            message_id=self._draws.message_id(),
            sender=self._me.agent,
            to=to,
            kind="system",
            at=self._clock.now(),
            content=write_action(action, **members),
        )


def _is_expected(guest: RelayedPeer, document: JsonObject) -> bool:
    """Whoever calls hears a hello first. What the agent still said to an earlier line of the same caller, or of letters that
    waited, is not of this conversation; what was not acknowledged in it is said again."""
    if document.get("type") in _RELAYED_TYPES:
        return guest.is_greeted
    guest.is_greeted = guest.is_greeted or find_hello(document) is not None
    return True


# ---- The agent's side of a relay: many conversations on one line, told apart by who speaks.

log = logging.getLogger("waypost.messaging")


class _PeerLink:
    """A conversation on the line of the relay: a link of its own, as far as it can tell."""

    def __init__(self, line: RelayClient) -> None:
        self._line = line
        self.frames: asyncio.Queue[str | LinkLost] = asyncio.Queue(limits.AGP_QUEUE)

    async def send(self, frame: str) -> None:
        await self._line.send(frame)

    async def receive(self) -> str | bytes:
        frame = await self.frames.get()
        if isinstance(frame, LinkLost):
            raise frame
        return frame

    async def close(self, code: int, reason: str) -> None:
        """The line stays: others speak on it."""

    def lose(self) -> None:
        while self.frames.full():
            self.frames.get_nowait()
        self.frames.put_nowait(LinkLost(1001, "the other side is gone"))


class RelayClient:
    """A line to a relay (a `Link` for the conversation with the relay itself)."""

    def __init__(self, link: AgpLink, correspondent: AgpEndpoint, relay: str) -> None:
        self._link = link
        self._correspondent = correspondent
        self._relay = relay
        self._guests: dict[str, _PeerLink] = {}

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        try:
            while True:
                frame = await self._link.receive()
                if isinstance(frame, bytes):
                    return frame
                document = read_frame(frame)
                sender = str(document.get("from")).lower()
                if sender == self._relay:
                    return frame
                await self._passed_on(sender, document, frame)
        except LinkLost:
            for guest in list(self._guests.values()):
                guest.lose()
            raise

    async def close(self, code: int, reason: str) -> None:
        for guest in list(self._guests.values()):
            guest.lose()
        await self._link.close(code, reason)

    async def _passed_on(self, sender: str, document: JsonObject, frame: str) -> None:
        """What somebody said to us. What cannot be used costs its sender the conversation, and nobody the line."""
        try:
            is_hello = find_hello(document) is not None
            guest = self._guests.get(sender)
            if is_hello and len(self._guests) < limits.RELAY_SESSIONS_PER_AGENT:
                if guest is not None:
                    guest.lose()
                guest = self._guests[sender] = _PeerLink(self)
                self._correspondent.begin(self._converse(sender, guest))
            if guest is not None:
                await guest.frames.put(frame)
            elif not is_hello:
                await self._correspondent.accept_relayed(frame, self.send)
        except WaypostError as error:
            log.debug("what %s said through the relay was refused: %s", sender, error)

    async def _converse(self, sender: str, guest: _PeerLink) -> None:
        try:
            await self._correspondent.converse(guest)
        except (LinkLost, PeerClosed, PeerError, WaypostError) as error:
            log.debug("the conversation with %s through the relay ended: %s", sender, error)
        finally:
            if self._guests.get(sender) is guest:
                del self._guests[sender]

    async def controlled(self, conversation: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
        """A word of the relay itself."""
        if action["action"] == "gone":
            guest = self._guests.get(str(action.get("agent")).lower())
            if guest is not None:
                guest.lose()
        return True


async def attach_to_relay(conversation: AgpConnection) -> None:
    """Ask the relay to keep this line for what is for us."""
    await conversation.control("attach")
