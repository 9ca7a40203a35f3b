"""Letters on their way and letters that came, kept so that a crash loses none and repeats none.

A letter that is to be sent is kept before it leaves, until its receiver acknowledges it. One that came is kept with its id in
one commit before it is acknowledged: it is handed over, and an id that was there before is acknowledged again and dropped.
What a handler answered and that it is done are one commit as well. Nothing here knows a socket or a signature.
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
    """A chat or a task, without its signature: it is signed whenever it leaves."""

    id: str
    peer: str
    content: MessageContent
    kind: str = "chat"
    at: float = 0.0
    again: bool = False  # it was handed over before, and nobody knows how far that went
    verified: bool = False  # it came in a session that proved both sides

    @property
    def is_answer(self) -> bool:
        return self.content.reply_to is not None


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """For how long. Ids are known for longer than their senders send them, or they are heard twice."""

    outbox_seconds: float = limits.AGP_OUTBOX_SECONDS
    seen_seconds: float = limits.AGP_DEDUP_SECONDS
    only_cut: bool = False  # answers are said again only after a line was cut: who leaves in order heard them


_encode = msgspec.msgpack.Encoder().encode  # a text stays as it is: nothing in it is looked for
_packed, _json = msgspec.msgpack.Decoder(AgentMessage), msgspec.json.Decoder(AgentMessage)


class MessageStore:
    """The letters of one agent."""

    def __init__(self, me: str, keeper: KeyValueStore, clock: Clock, keeping: RetentionPolicy | None = None) -> None:
        self.me = me
        self._keeping = keeping or RetentionPolicy()
        self._keeper = keeper
        self._clock = clock
        self._last = 0
        self._places: dict[str, str] = {}  # by id: the key of a letter that waits
        self._signed: dict[str, int] = {}  # by id: the second as of which it left
        self._waiting: dict[str, int] = {}  # letters by peer; "" is all of them
        self._leaving: set[str] = set()  # ids of letters that are taken, while that is written

    @property
    def forgets_answers(self) -> bool:
        """Whether answers are not said again to who left in order."""
        return self._keeping.only_cut

    # --- Out -------------------------------------------------------------------------------------

    async def post(self, letters: Sequence[AgentMessage], *, done: Sequence[AgentMessage] = ()) -> None:
        """Keep letters that are to leave, and forget those that they answer, in one commit."""
        now = self._clock.now()
        peers = {letter.peer for letter in letters} if len(letters) > 1 else [letter.peer for letter in letters]
        for peer in peers:
            if not self._has_room(peer, len(letters)):
                await self._check_room(peer, len(letters), now)
        writes = [self._out(letter, now) for letter in letters]
        if done:
            writes += [
                KeyValueWrite(kind=INBOX_KIND, key=self._in_key(letter.peer, letter.id), value=None) for letter in done
            ]
        if writes:
            await self._keeper.commit(writes, now)
        waiting = self._waiting
        for letter in letters:
            waiting[letter.peer] += 1
            waiting[""] += 1

    def _has_room(self, peer: str, more: int) -> bool:
        """As far as it was counted before."""
        most, of_peer = limits.AGP_OUTBOX - more, limits.AGP_OUTBOX_PER_PEER - more
        return self._waiting.get("", math.inf) <= most and self._waiting.get(peer, math.inf) <= of_peer

    async def _check_room(self, peer: str, more: int, now: float) -> None:
        for name, most in (("", limits.AGP_OUTBOX), (peer, limits.AGP_OUTBOX_PER_PEER)):
            if name not in self._waiting or self._waiting[name] + more > most:  # counted anew: some were given up
                prefix = f"{self.me} {name} " if name else f"{self.me} "
                self._waiting[name] = await self._keeper.count(OUTBOX_KIND, now, prefix=prefix)
            if self._waiting[name] + more > most:
                raise QuotaExceeded(
                    f"{self._waiting[name]} messages of {self.me} wait for {name or 'their receivers'}.",
                    path="to",
                    hint="Wait until they are taken, or are given up.",
                    retry_after=60,
                )

    def _out(self, letter: AgentMessage, now: float) -> KeyValueWrite:
        self._last = max(self._last + 1, int(now * 1_000_000))
        key = self._places[letter.id] = f"{self.me} {letter.peer} {self._last:020d} {letter.id}"
        return KeyValueWrite(
            kind=OUTBOX_KIND, key=key, value=_encode(letter), expires_at=now + self._keeping.outbox_seconds
        )

    def signing_time(self, letter: AgentMessage, now: float) -> float:
        """As of when a letter is signed that leaves now. Sent again, it is signed anew with a later time: only then does it
        differ from a copy that somebody else sends."""
        last = self._signed.get(letter.id)
        at = int(now) if last is None else max(int(now), last + 1)
        self._signed[letter.id] = at
        return float(at)

    async def waiting(self, peer: str) -> list[AgentMessage]:
        """What has not been acknowledged by `peer`, in the order in which it was posted."""
        found = []
        async for key, letter in self._all(OUTBOX_KIND, f"{self.me} {peer} "):
            if letter.id in self._leaving:
                continue
            self._places[letter.id] = key
            self._signed.setdefault(letter.id, int(letter.at))  # it may have left before a restart
            found.append(letter)
        return found

    async def peers(self) -> list[str]:
        """Those that have something to take."""
        found: dict[str, None] = {}
        async for _, letter in self._all(OUTBOX_KIND, f"{self.me} "):
            found[letter.peer] = None
        return list(found)

    async def left(self, letters: Iterable[AgentMessage]) -> None:
        """A peer left in order that was sent `letters` and acknowledged none of them."""
        if self._keeping.only_cut:
            await self.acknowledged([letter.id for letter in letters if letter.is_answer])

    async def acknowledged(self, ids: Sequence[str]) -> None:
        keys = [key for letter_id in ids if (key := self._places.pop(letter_id, None)) is not None]
        waiting = self._waiting
        for key in keys:
            peer = key.split(" ", 2)[1]
            if waiting.get(""):
                waiting[""] -= 1
            if waiting.get(peer):
                waiting[peer] -= 1
        for letter_id in ids:
            self._signed.pop(letter_id, None)
        if keys:
            self._leaving.update(ids)
            try:
                await self._keeper.commit(
                    [KeyValueWrite(kind=OUTBOX_KIND, key=key, value=None) for key in keys], self._clock.now()
                )
            finally:
                self._leaving.difference_update(ids)

    # --- In --------------------------------------------------------------------------------------

    async def accept(self, messages: Sequence[AgpMessage], *, verified: bool) -> list[AgentMessage]:
        """Keep what came; those letters that were never here before. Afterwards all of them may be acknowledged."""
        letters = [
            AgentMessage(
                id=each.id, peer=each.sender, content=each.content, kind=each.type, at=each.at, verified=verified
            )
            for each in messages
        ]
        now = self._clock.now()
        writes: list[KeyValueWrite] = []
        for letter in letters:
            writes += self._in(letter, now)
        if await self._keeper.commit(writes, now):
            return letters
        return [letter for letter in letters if await self._keeper.commit(self._in(letter, now), now)]

    def _in(self, letter: AgentMessage, now: float) -> tuple[KeyValueWrite, KeyValueWrite]:
        key = self._in_key(letter.peer, letter.id)
        ends = now + self._keeping.seen_seconds
        return (
            KeyValueWrite(kind=SEEN_KIND, key=key, value=b"1", expires_at=ends, expected=None),
            KeyValueWrite(kind=INBOX_KIND, key=key, value=_encode(letter), expires_at=ends),
        )

    async def unfinished(self) -> list[AgentMessage]:
        """What came before a restart, and was not finished."""
        found = [letter async for _, letter in self._all(INBOX_KIND, f"{self.me} ")]
        return [msgspec.structs.replace(each, again=True) for each in sorted(found, key=lambda letter: letter.at)]

    def _in_key(self, peer: str, letter_id: str) -> str:
        return f"{self.me} {peer} {letter_id}"

    async def _all(self, kind: str, prefix: str) -> AsyncIterator[tuple[str, AgentMessage]]:
        after = ""
        while True:
            page = await self._keeper.scan(kind, self._clock.now(), prefix=prefix, after=after, limit=_PAGE_SIZE)
            for kept in page:
                yield kept.key, _decode_message(kept.value)
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1].key


def _decode_message(value: bytes) -> AgentMessage:
    """A letter as it is kept. Those of earlier versions are JSON."""
    return (_json if value.startswith(b"{") else _packed).decode(value)
