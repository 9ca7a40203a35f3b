"""A relay for agents that cannot accept connections: they connect to it, and messages for them arrive on that connection.

A peer that connects to such an agent talks to it end to end: hello and messages pass unchanged, and are authenticated by the
agent. The relay checks sender, size and rate, and verifies signatures, so that no agent receives forged messages. While an agent
is away, messages are stored unopened in its mailbox, within limits of number, size, sender and time. The receiver would reject
them after 300 seconds (ADP-49), so they are kept for less; the sender still has them, and signs them again.
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
    HOW_TO_SIGN,
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
from waypost.registry.ports import ANY_VALUE, Clock, KeyValueStore, KeyValueWrite
from waypost.trust.keys.public_key import PublicKey

log = logging.getLogger("waypost.messaging")

MAILBOX_KIND = "agp.mail"

RELAYED_KIND = "agp.relayed"

SERVICE_RESTART = 1012

_RETURNED_REASON = "the agent is back; connect again"

_AWAY_REASON = "the agent is away; connect again"

_NO_NODE = b"1"  # the row of an agent that is not attached, or to the only node

_RELAYED_TYPES = frozenset(("chat", "task", "ack"))


class _MailboxItem(msgspec.Struct, frozen=True):
    order: int
    frame: str


class Mailboxes:
    def __init__(self, store: KeyValueStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last_order = 0
        self._sizes: dict[str, dict[str, tuple[int, float]]] = {}  # by agent and key: size and expiry

    async def deposit(self, agent: str, message: AgpMessage, frame: str) -> None:
        """Store a message for `agent`. A known id is replaced: the message was signed again."""
        now = self._clock.latest()
        sizes = await self._sizes_of(agent, now)
        key = _mailbox_key(agent, message.sender, message.id)
        _check_mailbox_capacity(
            agent, message.sender, len(frame), {name: size for name, size in sizes.items() if name != key}
        )
        self._last_order = max(self._last_order + 1, int(now * 1_000_000))
        value = msgspec.json.encode(_MailboxItem(self._last_order, frame))
        expires_at = min(now, message.at) + limits.AGP_MAILBOX_SECONDS
        await self._store.commit([KeyValueWrite(kind=MAILBOX_KIND, key=key, value=value, expires_at=expires_at)], now)
        self._sizes[agent][key] = (len(frame), expires_at)

    async def _sizes_of(self, agent: str, now: float) -> dict[str, int]:
        """Sizes by key. The store is read once."""
        if agent not in self._sizes:
            found = await self._store.scan(MAILBOX_KIND, now, prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1)
            self._sizes[agent] = {each.key: (len(each.value), each.expires_at or now) for each in found}
        known = self._sizes[agent] = {key: entry for key, entry in self._sizes[agent].items() if entry[1] > now}
        return {key: size for key, (size, _) in known.items()}

    async def frames(self, agent: str) -> list[tuple[str, str]]:
        """All senders and frames, in order. They stay stored until they are acknowledged."""
        self._sizes.pop(agent, None)  # while the agent is connected, nothing is added
        found = await self._store.scan(
            MAILBOX_KIND, self._clock.latest(), prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1
        )
        items = [(each.key.split(" ", 2)[1], msgspec.json.decode(each.value, type=_MailboxItem)) for each in found]
        return [(sender, each.frame) for sender, each in sorted(items, key=lambda pair: pair[1].order)]

    async def remove(self, agent: str, sender: str, ids: tuple[str, ...]) -> None:
        writes = [
            KeyValueWrite(kind=MAILBOX_KIND, key=_mailbox_key(agent, sender, message_id), value=None)
            for message_id in ids
        ]
        if writes:
            await self._store.commit(writes, self._clock.latest())
        for write in writes:
            self._sizes.get(agent, {}).pop(write.key, None)


def _mailbox_key(agent: str, sender: str, message_id: str) -> str:
    return f"{agent} {sender} {message_id}"


def _check_mailbox_capacity(agent: str, sender: str, size: int, sizes: dict[str, int]) -> None:
    prefix = f"{agent} {sender} "
    sender_count = sum(name.startswith(prefix) for name in sizes)
    if (
        len(sizes) >= limits.AGP_MAILBOX
        or sender_count >= limits.AGP_MAILBOX_PER_SENDER
        or sum(sizes.values()) + size > limits.AGP_MAILBOX_BYTES
    ):
        raise QuotaExceeded(
            f"{agent} is away, and its mailbox is full.", path="$.to", hint="Try again later.", retry_after=30
        )


class AttachedLink:
    """The link of an attached agent. Frames for other agents go to `on_foreign_frame`."""

    def __init__(self, link: AgpLink, me: str) -> None:
        self._link = link
        self._me = me
        self.on_foreign_frame: Callable[[JsonObject, str], Awaitable[None]] | None = None

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        while True:
            frame = await self._link.receive()
            if self.on_foreign_frame is None or isinstance(frame, bytes):
                return frame
            document = read_frame(frame)
            if str(document.get("to")).lower() == self._me:
                return frame
            await self.on_foreign_frame(document, frame)

    async def close(self, code: int, reason: str) -> None:
        await self._link.close(code, reason)


class RelayedPeer:
    """A peer that is connected to an agent through the relay."""

    def __init__(self, link: AgpLink, agent: str, hello: Hello, key: PublicKey, *, live: bool) -> None:
        self.link = link
        self.agent = agent
        self.name = hello.agent
        self.key = key
        self.live = live  # the agent was attached when the peer connected
        self.is_hello_answered = False  # the agent has answered the hello


class Relay:
    def __init__(
        self,
        me: AgpIdentity,
        store: KeyValueStore,
        peers: PeerKeySource,
        clock: Clock,
        random: RandomSource,
        node_url: str | None = None,
    ) -> None:
        """`node_url`: where other nodes of the cluster reach this one."""
        self._me = me
        self._row = _NO_NODE if node_url is None else node_url.encode()
        self._store = store
        self._peers = peers
        self._clock = clock
        self._random = random
        self._mailboxes = Mailboxes(store, clock)
        self._attached: dict[str, tuple[AttachedLink, AgpConnection]] = {}
        self._callers: dict[str, dict[str, RelayedPeer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def attached(self) -> frozenset[str]:
        return frozenset(self._attached)

    async def serves(self, agent: str) -> bool:
        """Whether the agent is attached, or was recently."""
        return agent in self._attached or await self._store.get(RELAYED_KIND, agent, self._clock.latest()) is not None

    async def find_node(self, agent: str) -> str | None:
        """The URL of the other node that the agent is attached to, as far as this one knows."""
        row = await self._store.get(RELAYED_KIND, agent, self._clock.latest())
        return None if row is None or row in (_NO_NODE, self._row) else row.decode()

    async def attach(self, link: AttachedLink, connection: AgpConnection) -> int:
        """Attach the peer of a connection; returns the number of messages in its mailbox."""
        agent = connection.peer
        if agent not in self._attached and len(self._attached) >= limits.RELAY_AGENTS:
            raise RateLimited(
                "Too many agents are attached to this relay.", path="$", hint="Try again later.", retry_after=60
            )
        await self._write_row(agent, self._row)
        self._attached[agent] = (link, connection)
        link.on_foreign_frame = lambda document, frame: self._relay_from_agent(agent, document, frame)
        await self._disconnect_peers(agent, _RETURNED_REASON)
        frames = await self._mailboxes.frames(agent)
        await connection.control("attached", kept=len(frames))
        if frames:  # in a task: the agent acknowledges while more is sent
            task = asyncio.create_task(self._deliver(agent, link, frames))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(frames)

    async def _deliver(self, agent: str, link: AttachedLink, frames: list[tuple[str, str]]) -> None:
        """Send the mailbox. A sender that has connected in the meantime repeats its messages itself."""
        with suppress(LinkLost):
            for sender, frame in frames:
                attached = self._attached.get(agent)
                if attached is None or attached[0] is not link:
                    return
                if sender not in self._callers.get(agent, {}):
                    await link.send(frame)

    async def detach(self, link: AttachedLink, agent: str) -> None:
        if agent in self._attached and self._attached[agent][0] is link:
            del self._attached[agent]
            await self._disconnect_peers(agent, _AWAY_REASON)
            if self._row != _NO_NODE:
                with suppress(WaypostError):  # a row that stays costs callers one attempt to connect
                    await self._write_row(agent, _NO_NODE, expected=self._row)

    async def _write_row(self, agent: str, row: bytes, expected: bytes = ANY_VALUE) -> None:
        now = self._clock.latest()
        expires_at = now + limits.AGP_OUTBOX_SECONDS
        write = KeyValueWrite(kind=RELAYED_KIND, key=agent, value=row, expires_at=expires_at, expected=expected)
        await self._store.commit([write], now)

    async def _disconnect_peers(self, agent: str, reason: str) -> None:
        for peer in list(self._callers.pop(agent, {}).values()):
            await peer.link.close(SERVICE_RESTART, reason)

    async def _relay_from_agent(self, agent: str, document: JsonObject, frame: str) -> None:
        """Forward a frame of an attached agent to a peer that is connected to it."""
        if str(document.get("from")).lower() != agent:
            raise Forbidden(f"This connection is of {agent}.", path="$.from", hint="Send messages of this agent only.")
        to = str(document.get("to")).lower()
        if document.get("type") == "ack":
            await self._mailboxes.remove(agent, to, acknowledged_ids(parse_message(frame)))
        peer = self._callers.get(agent, {}).get(to)
        if peer is None:
            _, connection = self._attached[agent]
            await connection.control("gone", agent=to)
            return
        if not _is_expected(peer, document):
            return
        try:
            async with asyncio.timeout(limits.AGP_STALL_SECONDS):
                await peer.link.send(frame)
        except (LinkLost, TimeoutError):
            await peer.link.close(error_codes(Unavailable("")).ws_close, "too slow")
            return
        code = find_error_code(frame) if document.get("type") == "system" else None
        if code is not None:  # the agent has ended the conversation; only the relay can close the link
            await peer.link.close(CLOSE_CODES.get(code, CLOSE_CODES["internal"]), f"{agent} refuses: {code}")

    async def relay(
        self,
        link: AgpLink,
        first: str | bytes,
        agent: str,
        *,
        peers: PeerKeySource | None = None,
        on_authenticated: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect a caller to an attached agent until either side ends it. `on_authenticated` is called after the hello."""
        caller: str | None = None
        try:
            hello = find_hello(read_frame(first))
            if hello is None or hello.message is None or isinstance(first, bytes):
                raise Unauthorized("A session begins with a hello.", path="$.type", hint="Send a hello first.")
            caller = hello.agent
            peer = RelayedPeer(link, agent, hello, await self._authenticate(hello, peers), live=agent in self._attached)
            on_authenticated()
            await self._register(peer)
            try:
                await self._forward(peer, first, hello)
            finally:
                await self._unregister(peer)
        except WaypostError as error:
            if caller is not None:
                with suppress(LinkLost):
                    code = agp_code_of(error)
                    await link.send(
                        self._control_frame(
                            caller, "error", code=code, message=str(error), retryable=code == "rate_limited"
                        )
                    )
            await link.close(error_codes(error).ws_close, error.message[:100])

    async def _authenticate(self, hello: Hello, peers: PeerKeySource | None) -> PublicKey:
        known = await (peers or self._peers).key_of(hello.agent)
        if known is None:
            raise unknown_peer_error(hello.agent)
        key = known.matched(hello.raw)
        message = hello.message
        if key.fingerprint() != hello.fingerprint:
            raise FingerprintMismatch(
                f"{hello.agent} uses another key than the known one.",
                path="$.body.content.fingerprint",
                hint="Use the key that the agent's domain publishes.",
            )
        if message is None or not verify(key, message.signature, message.signing_input):
            raise BadSignature("The hello is not signed with its key.", path="$.signature", hint=HOW_TO_SIGN)
        check_time(message, self._clock.latest())
        return key

    async def _register(self, peer: RelayedPeer) -> None:
        peers = self._callers.setdefault(peer.agent, {})
        if peer.name not in peers and len(peers) >= limits.RELAY_SESSIONS_PER_AGENT:
            raise RateLimited(
                f"{peer.agent} has too many connections.", path="$.to", hint="Try again later.", retry_after=10
            )
        before = peers.pop(peer.name, None)
        peers[peer.name] = peer
        if before is not None:
            await before.link.close(error_codes(Conflict("")).ws_close, "replaced by another connection of this agent")

    async def _forward(self, peer: RelayedPeer, first: str, hello: Hello) -> None:
        if peer.live:
            await self._send_to_agent(peer.agent, first)
        else:
            await peer.link.send(
                self._control_frame(peer.name, "mailbox", agent=peer.agent, seconds=limits.AGP_MAILBOX_SECONDS)
            )
        while True:
            frame = await peer.link.receive()
            message = parse_message(frame)
            self._check(peer, message)
            if self._callers.get(peer.agent, {}).get(peer.name) is not peer:
                raise Conflict("Replaced by another connection of this agent.", path="$", hint="Use that one.")
            if peer.live:
                await self._send_to_agent(peer.agent, str(frame))
            elif message.type in ("chat", "task"):
                await self._mailboxes.deposit(peer.agent, message, str(frame))
                await peer.link.send(self._control_frame(peer.name, "kept", ids=[message.id]))

    def _check(self, peer: RelayedPeer, message: AgpMessage) -> None:
        if message.sender != peer.name or message.to != peer.agent:
            raise Forbidden(
                f"This connection is from {peer.name} to {peer.agent}.",
                path="$.to",
                hint="Open another one for others.",
            )
        check_time(message, self._clock.latest())
        if not verify(peer.key, message.signature, message.signing_input):
            raise BadSignature(
                "The message is not signed with the key of its sender.", path="$.signature", hint="Sign it."
            )

    async def _send_to_agent(self, agent: str, frame: str) -> None:
        attached = self._attached.get(agent)
        if attached is None:
            raise Unavailable(f"{agent} is away.", path="$.to", hint="Connect again: its mailbox accepts messages.")
        try:
            async with asyncio.timeout(limits.AGP_STALL_SECONDS):
                await attached[0].send(frame)
        except (LinkLost, TimeoutError):
            raise Unavailable(f"{agent} does not read.", path="$.to", hint="Try again later.") from None

    async def _unregister(self, peer: RelayedPeer) -> None:
        peers = self._callers.get(peer.agent, {})
        if peers.get(peer.name) is peer:
            del peers[peer.name]
            attached = self._attached.get(peer.agent)
            if attached is not None and peer.live:
                with suppress(LinkLost):
                    await attached[1].control("gone", agent=peer.name)

    def _control_frame(self, to: str, action: str, **members: object) -> str:
        return write_message(
            self._me.key,
            message_id=self._random.message_id(),
            sender=self._me.agent,
            to=to,
            kind="system",
            at=self._clock.latest(),
            content=write_action(action, **members),
        )


def _is_expected(peer: RelayedPeer, document: JsonObject) -> bool:
    """A caller gets a hello first. Earlier frames belong to a previous connection of the same caller or to its mailbox; messages
    without an acknowledgement are repeated anyway."""
    if document.get("type") in _RELAYED_TYPES:
        return peer.is_hello_answered
    peer.is_hello_answered = peer.is_hello_answered or find_hello(document) is not None
    return True


class _PeerLink:
    """The link of one peer within the connection to the relay."""

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
        """The connection to the relay stays open for other peers."""

    def close_lost(self) -> None:
        while self.frames.full():
            self.frames.get_nowait()
        self.frames.put_nowait(LinkLost(1001, "the peer is gone"))


class RelayClient:
    """The agent's side of a relay: splits one link into the links of several peers. An `AgpLink` to the relay itself."""

    def __init__(self, link: AgpLink, endpoint: AgpEndpoint, relay: str) -> None:
        self._link = link
        self._endpoint = endpoint
        self._relay = relay
        self._links: dict[str, _PeerLink] = {}

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
                await self._receive_from_peer(sender, document, frame)
        except LinkLost:
            for peer in list(self._links.values()):
                peer.close_lost()
            raise

    async def close(self, code: int, reason: str) -> None:
        for peer in list(self._links.values()):
            peer.close_lost()
        await self._link.close(code, reason)

    async def _receive_from_peer(self, sender: str, document: JsonObject, frame: str) -> None:
        """A rejected frame ends the connection of its peer, but not the link to the relay."""
        try:
            is_hello = find_hello(document) is not None
            peer = self._links.get(sender)
            if is_hello and len(self._links) < limits.RELAY_SESSIONS_PER_AGENT:
                if peer is not None:
                    peer.close_lost()
                peer = self._links[sender] = _PeerLink(self)
                self._endpoint.start_task(self._run_connection(sender, peer))
            if peer is not None:
                await peer.frames.put(frame)
            elif not is_hello:
                await self._endpoint.accept_relayed(frame, self.send)
        except WaypostError as error:
            log.debug("relayed frame of %s rejected: %s", sender, error)

    async def _run_connection(self, sender: str, peer: _PeerLink) -> None:
        try:
            await self._endpoint.run_connection(peer)
        except (LinkLost, PeerClosed, PeerError, WaypostError) as error:
            log.debug("relayed connection with %s ended: %s", sender, error)
        finally:
            if self._links.get(sender) is peer:
                del self._links[sender]

    async def on_control(self, connection: AgpConnection, action: JsonObject, message: AgpMessage) -> bool:
        """A control message of the relay itself."""
        if action["action"] == "gone":
            peer = self._links.get(str(action.get("agent")).lower())
            if peer is not None:
                peer.close_lost()
        return True


async def attach_to_relay(connection: AgpConnection) -> None:
    """Ask the relay to deliver messages for this agent on this connection."""
    await connection.control("attach")
