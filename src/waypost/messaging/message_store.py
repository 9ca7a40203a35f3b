"""Outbox and inbox of an agent, so that a crash loses no message and repeats none.

An outgoing message is stored before it is sent, until its receiver acknowledges it. An incoming message is stored with its id
in one commit before it is acknowledged; a known id is acknowledged again and dropped. The answers of a handler and the end of
its message are one commit as well.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import QuotaExceeded
from waypost.protocols.adp.agp.messages import AgpMessage, MessageContent
from waypost.registry.ports import Clock, KeyValueStore, KeyValueWrite

OUTBOX_KIND: Final = "agp.out"
INBOX_KIND: Final = "agp.in"
SEEN_KIND: Final = "agp.seen"
_PAGE_SIZE = 500


class AgentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A chat or task message without its signature: it is signed whenever it is sent."""

    id: str
    peer: str
    content: MessageContent
    kind: str = "chat"
    at: float = 0.0
    again: bool = False  # it was passed to the handler before a restart
    verified: bool = False  # it arrived in a session that authenticated both sides

    @property
    def is_answer(self) -> bool:
        return self.content.reply_to is not None


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Retention times. Ids must be kept for longer than senders retry."""

    outbox_seconds: float = limits.AGP_OUTBOX_SECONDS
    seen_seconds: float = limits.AGP_DEDUP_SECONDS
    only_cut: bool = False  # answers are repeated only after a lost link: a peer that disconnects has received them


_encode = msgspec.msgpack.Encoder().encode  # MessagePack: texts need no escaping
_packed, _json = msgspec.msgpack.Decoder(AgentMessage), msgspec.json.Decoder(AgentMessage)


class MessageStore:
    """The messages of one agent."""

    def __init__(
        self, agent: str, store: KeyValueStore, clock: Clock, retention: RetentionPolicy | None = None
    ) -> None:
        self.agent = agent
        self._retention = retention or RetentionPolicy()
        self._store = store
        self._clock = clock
        self._last_order = 0
        self._outbox_keys: dict[str, str] = {}  # by message id
        self._signed_at: dict[str, int] = {}  # by message id: the second of its last signature
        self._outbox_counts: dict[str, int] = {}  # by peer; "" is the total
        self._removing: set[str] = set()  # acknowledged ids, while the commit runs

    @property
    def drops_answers(self) -> bool:
        """Whether answers are not repeated to a peer that disconnected."""
        return self._retention.only_cut

    async def post(self, messages: Sequence[AgentMessage], *, done: Sequence[AgentMessage] = ()) -> None:
        """Store outgoing messages, and remove the ones that they answer (`done`), in one commit."""
        now = self._clock.latest()
        peers = {message.peer for message in messages} if len(messages) > 1 else [message.peer for message in messages]
        for peer in peers:
            if not self._has_counted_room(peer, len(messages)):
                await self._check_room(peer, len(messages), now)
        writes = [self._outbox_write(message, now) for message in messages]
        if done:
            writes += [
                KeyValueWrite(kind=INBOX_KIND, key=self._inbox_key(message.peer, message.id), value=None)
                for message in done
            ]
        if writes:
            await self._store.commit(writes, now)
        counts = self._outbox_counts
        for message in messages:
            counts[message.peer] += 1
            counts[""] += 1

    def _has_counted_room(self, peer: str, more: int) -> bool:
        """Whether the cached counts allow more messages."""
        most, of_peer = limits.AGP_OUTBOX - more, limits.AGP_OUTBOX_PER_PEER - more
        return self._outbox_counts.get("", math.inf) <= most and self._outbox_counts.get(peer, math.inf) <= of_peer

    async def _check_room(self, peer: str, more: int, now: float) -> None:
        for name, most in (("", limits.AGP_OUTBOX), (peer, limits.AGP_OUTBOX_PER_PEER)):
            if (
                name not in self._outbox_counts or self._outbox_counts[name] + more > most
            ):  # count again: some have expired
                prefix = f"{self.agent} {name} " if name else f"{self.agent} "
                self._outbox_counts[name] = await self._store.count(OUTBOX_KIND, now, prefix=prefix)
            if self._outbox_counts[name] + more > most:
                raise QuotaExceeded(
                    f"The outbox of {self.agent} is full: {self._outbox_counts[name]} messages for {name or 'all peers'}.",
                    path="to",
                    hint="Wait until they are delivered, or expire.",
                    retry_after=60,
                )

    def _outbox_write(self, message: AgentMessage, now: float) -> KeyValueWrite:
        self._last_order = max(self._last_order + 1, int(now * 1_000_000))
        key = self._outbox_keys[message.id] = f"{self.agent} {message.peer} {self._last_order:020d} {message.id}"
        return KeyValueWrite(
            kind=OUTBOX_KIND, key=key, value=_encode(message), expires_at=now + self._retention.outbox_seconds
        )

    def signing_time(self, message: AgentMessage, now: float) -> float:
        """The time to sign a message with. A repeated message gets a later time, so that it differs from a replayed copy."""
        last = self._signed_at.get(message.id)
        at = int(now) if last is None else max(int(now), last + 1)
        self._signed_at[message.id] = at
        return float(at)

    async def unacknowledged(self, peer: str) -> list[AgentMessage]:
        """The messages that the peer has not acknowledged, in order."""
        found = []
        async for key, message in self._scan(OUTBOX_KIND, f"{self.agent} {peer} "):
            if message.id in self._removing:
                continue
            self._outbox_keys[message.id] = key
            self._signed_at.setdefault(message.id, int(message.at))  # it may have been sent before a restart
            found.append(message)
        return found

    async def pending_peers(self) -> list[str]:
        """The peers with messages in the outbox."""
        found: dict[str, None] = {}
        async for _, message in self._scan(OUTBOX_KIND, f"{self.agent} "):
            found[message.peer] = None
        return list(found)

    async def drop_answers(self, messages: Iterable[AgentMessage]) -> None:
        """The peer disconnected without acknowledging these messages."""
        if self._retention.only_cut:
            await self.acknowledge([message.id for message in messages if message.is_answer])

    async def acknowledge(self, ids: Sequence[str]) -> None:
        keys = [key for message_id in ids if (key := self._outbox_keys.pop(message_id, None)) is not None]
        counts = self._outbox_counts
        for key in keys:
            peer = key.split(" ", 2)[1]
            if counts.get(""):
                counts[""] -= 1
            if counts.get(peer):
                counts[peer] -= 1
        for message_id in ids:
            self._signed_at.pop(message_id, None)
        if keys:
            self._removing.update(ids)
            try:
                await self._store.commit(
                    [KeyValueWrite(kind=OUTBOX_KIND, key=key, value=None) for key in keys], self._clock.latest()
                )
            finally:
                self._removing.difference_update(ids)

    async def accept(self, received: Sequence[AgpMessage], *, verified: bool) -> list[AgentMessage]:
        """Store received messages; returns the new ones. Afterwards all of them may be acknowledged."""
        messages = [
            AgentMessage(
                id=each.id, peer=each.sender, content=each.content, kind=each.type, at=each.at, verified=verified
            )
            for each in received
        ]
        now = self._clock.latest()
        writes: list[KeyValueWrite] = []
        for message in messages:
            writes += self._inbox_writes(message, now)
        if await self._store.commit(writes, now):
            return messages
        return [message for message in messages if await self._store.commit(self._inbox_writes(message, now), now)]

    def _inbox_writes(self, message: AgentMessage, now: float) -> tuple[KeyValueWrite, KeyValueWrite]:
        key = self._inbox_key(message.peer, message.id)
        expires_at = now + self._retention.seen_seconds
        return (
            KeyValueWrite(kind=SEEN_KIND, key=key, value=b"1", expires_at=expires_at, expected=None),
            KeyValueWrite(kind=INBOX_KIND, key=key, value=_encode(message), expires_at=expires_at),
        )

    async def unfinished(self) -> list[AgentMessage]:
        """Messages that were received before a restart, and not finished."""
        found = [message async for _, message in self._scan(INBOX_KIND, f"{self.agent} ")]
        return [msgspec.structs.replace(each, again=True) for each in sorted(found, key=lambda message: message.at)]

    def _inbox_key(self, peer: str, message_id: str) -> str:
        return f"{self.agent} {peer} {message_id}"

    async def _scan(self, kind: str, prefix: str) -> AsyncIterator[tuple[str, AgentMessage]]:
        after = ""
        while True:
            page = await self._store.scan(kind, self._clock.latest(), prefix=prefix, after=after, limit=_PAGE_SIZE)
            for item in page:
                yield item.key, _decode_message(item.value)
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1].key


def _decode_message(value: bytes) -> AgentMessage:
    """Earlier versions stored JSON."""
    return (_json if value.startswith(b"{") else _packed).decode(value)
