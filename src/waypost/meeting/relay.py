"""A relay for agents that cannot be called: they hold a line to it, and what is for them arrives on that line, untouched.

Whoever calls such an agent speaks with it, not with the relay: the hello, its answer and every message pass as they are, and
prove themselves end to end. The relay looks at who sends, how much and how often; it verifies what it passes on to an agent, so
that nobody is bothered in the name of another. While the agent is away, messages wait in its mailbox (`mailbox.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from waypost import limits
from waypost.errors import (
    BadSignature,
    Conflict,
    FingerprintMismatch,
    Forbidden,
    RateLimited,
    Unauthorized,
    Unavailable,
    WaypostError,
    agp_code_of,
    codes_of,
)
from waypost.meeting.conversation import Conversation
from waypost.meeting.link import Link, LinkLost
from waypost.meeting.mailbox import Mailboxes
from waypost.meeting.peers import PeerKeys, unknown_peer
from waypost.model.json import JsonObject
from waypost.registry.keeping import Keeper, Write
from waypost.registry.ports import Clock
from waypost.trust.keys import PublicKey
from waypost.wire.agp import (
    CLOSES,
    Message,
    acknowledged_ids,
    check_time,
    find_fault,
    parse_message,
    read_frame,
    write_action,
    write_message,
)
from waypost.wire.agp_hello import Hello, Party, find_hello
from waypost.wire.agp_session import Draws
from waypost.wire.agp_signing import verify

RELAYED = "agp.relayed"
RESTART = 1012
_REASON = "the agent came back; call again"
_AWAY = "the agent went away; call again"
_SPOKEN = frozenset(("chat", "task", "ack"))


class RelayedLink:
    """The line of an agent to its relay, seen from the relay: what is for us is ours, the rest is passed on."""

    def __init__(self, link: Link, me: str) -> None:
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


class Guest:
    """Somebody who calls an agent through the relay."""

    def __init__(self, link: Link, agent: str, hello: Hello, key: PublicKey, *, live: bool) -> None:
        self.link = link
        self.agent = agent
        self.name = hello.agent
        self.key = key
        self.live = live  # the agent was there when it called
        self.is_greeted = False  # the agent has answered its hello


class Relay:
    def __init__(self, me: Party, keeper: Keeper, peers: PeerKeys, clock: Clock, draws: Draws) -> None:
        self._me = me
        self._keeper = keeper
        self._peers = peers
        self._clock = clock
        self._draws = draws
        self._boxes = Mailboxes(keeper, clock)
        self._lines: dict[str, tuple[RelayedLink, Conversation]] = {}
        self._guests: dict[str, dict[str, Guest]] = {}
        self._delivering: set[asyncio.Task[None]] = set()

    @property
    def attached(self) -> frozenset[str]:
        return frozenset(self._lines)

    async def serves(self, agent: str) -> bool:
        """Whether the agent holds a line here, or did so lately."""
        return agent in self._lines or await self._keeper.get(RELAYED, agent, self._clock.now()) is not None

    # --- The agent's side ------------------------------------------------------------------------

    async def attach(self, link: RelayedLink, conversation: Conversation) -> int:
        """The agent of a conversation holds its line from now on. How many messages wait for it."""
        agent = conversation.peer
        if agent not in self._lines and len(self._lines) >= limits.AGP_RELAYED:
            raise RateLimited("Too many agents hold a line here.", path="$", hint="Come back later.", retry_after=60)
        now = self._clock.now()
        ends = now + limits.AGP_OUTBOX_SECONDS
        await self._keeper.commit([Write(kind=RELAYED, key=agent, value=b"1", expires_at=ends)], now)
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

    async def _deliver(self, agent: str, link: RelayedLink, frames: list[tuple[str, str]]) -> None:
        """What waited. Whoever has called meanwhile says it again by itself."""
        with suppress(LinkLost):
            for sender, frame in frames:
                line = self._lines.get(agent)
                if line is None or line[0] is not link:
                    return
                if sender not in self._guests.get(agent, {}):
                    await link.send(frame)

    async def detach(self, link: RelayedLink, agent: str) -> None:
        if agent in self._lines and self._lines[agent][0] is link:
            del self._lines[agent]
            await self._dismiss(agent, _AWAY)

    async def _dismiss(self, agent: str, reason: str) -> None:
        for guest in list(self._guests.pop(agent, {}).values()):
            await guest.link.close(RESTART, reason)

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
        if not _is_due(guest, document):
            return
        try:
            async with asyncio.timeout(limits.AGP_STALL_SECONDS):
                await guest.link.send(frame)
        except (LinkLost, TimeoutError):
            await guest.link.close(codes_of(Unavailable("")).ws_close, "too slow")
            return
        refused = find_fault(frame) if document.get("type") == "system" else None
        if refused is not None:  # the agent speaks with it no more; only the relay can close its connection
            await guest.link.close(CLOSES.get(refused, CLOSES["internal"]), f"{agent} refuses: {refused}")

    # --- The caller's side -----------------------------------------------------------------------

    async def take(
        self,
        link: Link,
        first: str | bytes,
        agent: str,
        *,
        peers: PeerKeys | None = None,
        known: Callable[[], None] = lambda: None,
    ) -> None:
        """Somebody calls an agent of ours, until either side ends it. `known` is told once it has proven who it is."""
        caller: str | None = None
        try:
            hello = find_hello(read_frame(first))
            if hello is None or hello.message is None or isinstance(first, bytes):
                raise Unauthorized("The session begins with a hello.", path="$.type", hint="Say hello first.")
            caller = hello.agent
            guest = Guest(link, agent, hello, await self._proven(hello, peers), live=agent in self._lines)
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
            await link.close(codes_of(error).ws_close, error.message[:100])

    async def _proven(self, hello: Hello, peers: PeerKeys | None) -> PublicKey:
        known = await (peers or self._peers).key_of(hello.agent)
        if known is None:
            raise unknown_peer(hello.agent)
        key = known.matched(hello.raw)
        message = hello.message
        if key.fingerprint() != hello.fingerprint:
            raise FingerprintMismatch(
                f"{hello.agent} shows another key than the one that is known of it.",
                path="$.body.content.fingerprint",
                hint="Use the key that the agent's domain publishes.",
            )
        if message is None or not verify(key, message.signature, message.covered):
            raise BadSignature("The hello is not signed by its key.", path="$.signature", hint="Sign it (ADP-42).")
        check_time(message, self._clock.now())
        return key

    async def _seat(self, guest: Guest) -> None:
        seats = self._guests.setdefault(guest.agent, {})
        if guest.name not in seats and len(seats) >= limits.AGP_GUESTS:
            raise RateLimited(f"{guest.agent} is busy.", path="$.to", hint="Come back later.", retry_after=10)
        before = seats.pop(guest.name, None)
        seats[guest.name] = guest
        if before is not None:
            await before.link.close(codes_of(Conflict("")).ws_close, "another line of this agent took its place")

    async def _pass(self, guest: Guest, first: str, hello: Hello) -> None:
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

    def _check(self, guest: Guest, message: Message) -> None:
        if message.sender != guest.name or message.to != guest.agent:
            raise Forbidden(
                f"This line is from {guest.name} to {guest.agent}.", path="$.to", hint="Open another one for others."
            )
        check_time(message, self._clock.now())
        if not verify(guest.key, message.signature, message.covered):
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

    async def _leave(self, guest: Guest) -> None:
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


def _is_due(guest: Guest, document: JsonObject) -> bool:
    """Whoever calls hears a hello first. What the agent still said to an earlier line of the same caller, or of letters that
    waited, is not of this conversation; what was not acknowledged in it is said again."""
    if document.get("type") in _SPOKEN:
        return guest.is_greeted
    guest.is_greeted = guest.is_greeted or find_hello(document) is not None
    return True
