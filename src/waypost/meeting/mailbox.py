"""Messages kept for an agent that is away, as they came, within bounds: of number, size, sender and time.

They are not opened: the signature is for their receiver. After 300 seconds the receiver would have to refuse them (ADP-49), so
they are kept for less; whoever sent them still has them, and signs them anew.
"""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.errors import QuotaExceeded
from waypost.registry.keeping import Keeper, Write
from waypost.registry.ports import Clock
from waypost.wire.agp import Message

MAIL = "agp.mail"


class _Kept(msgspec.Struct, frozen=True):
    order: int
    frame: str


class Mailboxes:
    def __init__(self, keeper: Keeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._last = 0
        self._known: dict[str, dict[str, tuple[int, float]]] = {}  # by agent and key: the size, and the end

    async def deposit(self, agent: str, message: Message, frame: str) -> None:
        """Keep a message for `agent`. One that is there already is replaced: it was signed anew."""
        now = self._clock.now()
        sizes = await self._sizes_of(agent, now)
        key = _key(agent, message.sender, message.id)
        _check_room(agent, message.sender, len(frame), {name: size for name, size in sizes.items() if name != key})
        self._last = max(self._last + 1, int(now * 1_000_000))
        value = msgspec.json.encode(_Kept(self._last, frame))
        ends = min(now, message.at) + limits.AGP_MAILBOX_SECONDS
        await self._keeper.commit([Write(kind=MAIL, key=key, value=value, expires_at=ends)], now)
        self._known[agent][key] = (len(frame), ends)

    async def _sizes_of(self, agent: str, now: float) -> dict[str, int]:
        """What is there, by key. It is read once; after that we know."""
        if agent not in self._known:
            found = await self._keeper.scan(MAIL, now, prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1)
            self._known[agent] = {each.key: (len(each.value), each.expires_at or now) for each in found}
        known = self._known[agent] = {key: kept for key, kept in self._known[agent].items() if kept[1] > now}
        return {key: size for key, (size, _) in known.items()}

    async def frames(self, agent: str) -> list[tuple[str, str]]:
        """All of them with their senders, in the order in which they came. They stay until they are acknowledged."""
        self._known.pop(agent, None)  # nobody adds to it while the agent is here
        found = await self._keeper.scan(MAIL, self._clock.now(), prefix=f"{agent} ", limit=limits.AGP_MAILBOX + 1)
        kept = [(each.key.split(" ", 2)[1], msgspec.json.decode(each.value, type=_Kept)) for each in found]
        return [(sender, each.frame) for sender, each in sorted(kept, key=lambda pair: pair[1].order)]

    async def remove(self, agent: str, sender: str, ids: tuple[str, ...]) -> None:
        writes = [Write(kind=MAIL, key=_key(agent, sender, message_id), value=None) for message_id in ids]
        if writes:
            await self._keeper.commit(writes, self._clock.now())
        for write in writes:
            self._known.get(agent, {}).pop(write.key, None)


def _key(agent: str, sender: str, message_id: str) -> str:
    return f"{agent} {sender} {message_id}"


def _check_room(agent: str, sender: str, size: int, kept: dict[str, int]) -> None:
    prefix = f"{agent} {sender} "
    of_sender = sum(name.startswith(prefix) for name in kept)
    if (
        len(kept) >= limits.AGP_MAILBOX
        or of_sender >= limits.AGP_MAILBOX_OF_SENDER
        or sum(kept.values()) + size > limits.AGP_MAILBOX_BYTES
    ):
        raise QuotaExceeded(
            f"{agent} is away, and its mailbox is full.", path="$.to", hint="Come back later.", retry_after=30
        )
