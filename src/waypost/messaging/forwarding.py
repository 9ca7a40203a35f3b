"""Messages of the service to agents whose line another node of the cluster holds: that node sends them.

They pass through the store that all nodes share. A message is taken before it is sent, so it is sent at most once; what is lost
with a node can still be read where it came from, as the messages of a swarm.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.protocols.adp.agp.messages import MessageContent
from waypost.registry.ports import KeyValueStore, KeyValueWrite

FORWARDED_KIND = "agp.forwarded"


class _ForwardedMessage(msgspec.Struct, frozen=True, array_like=True):
    agent: str
    text: str
    content_type: str


_decode = msgspec.msgpack.Decoder(_ForwardedMessage).decode


class MessageForwarding:
    def __init__(self, store: KeyValueStore, now: Callable[[], float], node_url: str) -> None:
        """`node_url`: where other nodes reach this one. It is also its name here."""
        self._store = store
        self._now = now
        self._own = f"{node_url} "

    async def put(self, node_url: str, agent: str, content: MessageContent) -> bool:
        """Leave a message for an agent to another node; False if too many wait there."""
        now, prefix = self._now(), f"{node_url} "
        if await self._store.count(FORWARDED_KIND, now, prefix=prefix) >= limits.FORWARDED_MESSAGES:
            return False
        value = msgspec.msgpack.encode(_ForwardedMessage(agent, content.text, content.type))
        expires_at = now + limits.FORWARDED_SECONDS
        key = f"{prefix}{int(now * 1_000_000):020} {uuid.uuid4()}"
        return await self._store.commit([_write(key, value, expires_at)], now)

    async def take(self) -> list[tuple[str, MessageContent]]:
        """The messages that this node is to send, with their agents; the oldest first."""
        now = self._now()
        found = await self._store.scan(FORWARDED_KIND, now, prefix=self._own, limit=limits.FORWARDED_MESSAGES)
        if not found or not await self._store.commit([_write(item.key, None, None) for item in found], now):
            return []
        messages = [_decode(item.value) for item in found]
        return [(each.agent, MessageContent(text=each.text, type=each.content_type)) for each in messages]


def _write(key: str, value: bytes | None, expires_at: float | None) -> KeyValueWrite:
    return KeyValueWrite(kind=FORWARDED_KIND, key=key, value=value, expires_at=expires_at)
