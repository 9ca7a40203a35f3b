"""The change log as watchers read it: each at its own pace, in order, from a cursor.

Nothing is pushed into a queue of a watcher: each one pulls from the log and waits for a signal. So a slow watcher costs no
memory. One that falls behind the oldest stored event is cut off with an explicit item; it never skips events silently.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import zlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from waypost import limits
from waypost.errors import CursorTooOld, InvalidCursor, Unavailable
from waypost.model.events import Event, EventType, event_type_for
from waypost.model.query import Match
from waypost.registry.ports import Clock, Store
from waypost.trust.cursor_cipher import CURSOR_KEY_BYTES, CursorCipher

_KEY_NAME = "cursor"


class CursorKeys(Protocol):
    """Keys that can be rotated while the service runs."""

    def adopt(self, key: bytes) -> None:
        """Use this key, unless there are keys already."""

    def accepted(self) -> Sequence[bytes]:
        """The current key first."""


class Cursors:
    """The key is stored, so that a cursor is valid after a restart and in every process of a service. Without `keys` the one in
    the store is used alone."""

    def __init__(self, store: Store, clock: Clock, keys: CursorKeys | None = None) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._cipher: CursorCipher | None = None

    async def load(self) -> None:
        """Read the key from the open store, or make it."""
        first = await self._store.secret(_KEY_NAME, lambda: secrets.token_bytes(CURSOR_KEY_BYTES))
        if self._keys is None:
            self._cipher = CursorCipher(first)
        else:
            self._keys.adopt(first)
            self._cipher = CursorCipher(self._keys.accepted)

    def seal(self, purpose: str, payload: bytes) -> str:
        """A cursor without an end of validity. The same payload gives the same cursor."""
        return self._get_cipher().seal(purpose, payload)

    def open(self, purpose: str, cursor: str) -> bytes:
        return self._get_cipher().open(purpose, cursor)

    def seal_page(self, purpose: str, position: Any, *context: str) -> str:
        """A position in a list, valid for a day or two, and only with the same context."""
        return self._get_cipher().seal_page(purpose, msgspec.msgpack.encode(position), self._clock.now(), *context)

    def open_page(self, purpose: str, cursor: str, kind: Any, *context: str) -> Any:
        """The position of type `kind` in a cursor of `seal_page`."""
        payload = self._get_cipher().open_page(purpose, cursor, self._clock.now(), *context)
        try:
            return msgspec.msgpack.decode(payload, type=kind)
        except msgspec.DecodeError:  # an earlier release wrote the position in another form
            raise InvalidCursor(
                "This cursor was issued by an earlier version of the service.", path="cursor", hint="Start without one."
            ) from None

    def _get_cipher(self) -> CursorCipher:
        if self._cipher is None:
            raise Unavailable("The registry is starting.", retry_after=1)
        return self._cipher


_PURPOSE = "watch"

_REVISION = struct.Struct(">Q")  # a cursor of earlier releases
_POSITION = struct.Struct(">QI")  # a revision, and the mark of its event

_NONCE_BYTES = 8
_NO_MARK = 0  # the event was not known: the cursor is valid whatever it was
_AHEAD_SECONDS = 1.0  # a node of a cluster may be this far behind the one that issued a cursor

_WITHOUT_HINT = "Leave it out to watch from now on, or send 0 for all stored changes."


class WatchEvent(msgspec.Struct, frozen=True):
    """An event as one audience sees it, with the cursor to resume after it."""

    cursor: str
    type: EventType
    event: Event
    match: Match | None = None  # of a standing query


class WatchBookmark(msgspec.Struct, frozen=True):
    """A cursor without an event: how far the log was read."""

    cursor: str


class WatchCutOff(msgspec.Struct, frozen=True):
    """The last item of a watcher that is too slow."""

    cursor: str


WatchItem = WatchEvent | WatchBookmark | WatchCutOff


class EventFilter(Protocol):
    """Chooses the events of a standing query."""

    async def select(self, events: Sequence[WatchEvent], *, is_behind: bool) -> Sequence[WatchEvent]:
        """The events to send, in their order. `is_behind`: more events are waiting in the log."""
        ...


def mark_event(event: Event) -> int:
    """Tells an event from another one with the same revision. A database that failed over, or was restored, may have lost
    the end of its log and given the same revisions again."""
    return zlib.crc32(f"{event.type} {event.id} {event.at!r} {event.etag}".encode()) or 1


class ChangeLog:
    def __init__(self, store: Store, cursors: Cursors) -> None:
        self._store = store
        self._cursors = cursors
        self._recent: deque[Event] = deque()
        self.recent_bytes = 0
        self.revision = 0
        self._signal: asyncio.Event = asyncio.Event()
        self._closed = False

    async def load(self) -> None:
        """Start at the revision of the open store."""
        self.revision = await self._store.revision()

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._recent.append(event)
            self.recent_bytes += len(event.record or b"")
        while len(self._recent) > limits.WATCH_RECENT or self.recent_bytes > limits.WATCH_RECENT_BYTES:
            self.recent_bytes -= len(self._recent.popleft().record or b"")
        if events:
            self.revision = events[-1].revision
            self._wake()

    def forget_recent(self) -> None:
        """Read from the store from now on, as after a restart."""
        self._recent.clear()
        self.recent_bytes = 0

    def skip_to(self, revision: int) -> None:
        """The events in between are gone: watchers that have not read them are cut off."""
        self.forget_recent()
        self.revision = revision
        self._wake()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        signal, self._signal = self._signal, asyncio.Event()
        signal.set()

    # --- Cursors ---------------------------------------------------------------------------------

    def cursor(self, revision: int, mark: int = _NO_MARK) -> str:
        """The same cursor for the same event, every time."""
        return self._cursors.seal(_PURPOSE, _POSITION.pack(revision, mark))

    def bookmark(self, revision: int, mark: int = _NO_MARK) -> str:
        """A new cursor each time: equal bookmarks would reveal that nothing hidden happened in between."""
        return self._cursors.seal(_PURPOSE, _POSITION.pack(revision, mark) + secrets.token_bytes(_NONCE_BYTES))

    async def parse_cursor(self, text: str | None) -> int:
        """The revision to read after. Absent: now. `0`: the oldest stored event."""
        if text is None:
            return self.revision
        if text == "0":
            return await self._store.oldest_event() - 1
        try:
            payload = self._cursors.open(_PURPOSE, text)
        except InvalidCursor as error:
            raise InvalidCursor(error.message, path="from", hint=_WITHOUT_HINT) from None
        revision, mark = _unpack_cursor(payload)
        if revision > self.revision and not await self._reach(revision):
            raise _too_old("This cursor belongs to a change that the registry no longer has.")
        if revision + 1 < await self._store.oldest_event():
            raise _too_old()
        if mark != _NO_MARK and await self.find_mark(revision) not in (mark, _NO_MARK):
            raise _too_old("This cursor belongs to a change that the registry no longer has.")
        return revision

    async def find_mark(self, revision: int) -> int:
        """The mark of the event with this revision, if it is still stored."""
        if not 0 < revision <= self.revision:
            return _NO_MARK
        if self._recent and self._recent[0].revision <= revision:
            return mark_event(self._recent[revision - self._recent[0].revision])  # revisions have no gaps
        events = await self._store.events(revision - 1, 1)
        return mark_event(events[0]) if events and events[0].revision == revision else _NO_MARK

    async def _reach(self, revision: int) -> bool:
        """Wait until this node has a revision that another node issued a cursor for."""
        try:
            async with asyncio.timeout(_AHEAD_SECONDS):
                while self.revision < revision and not self._closed:
                    await self._signal.wait()
        except TimeoutError:
            pass
        return self.revision >= revision

    # --- Reading ---------------------------------------------------------------------------------

    async def read(self, after: int) -> Sequence[Event]:
        """The next events after a revision, in order; none at the end of the log."""
        if after >= self.revision:
            return ()
        events = await self._read(after)
        if not events or events[0].revision != after + 1:
            raise _too_old()
        return events

    async def wait_beyond(self, revision: int, seconds: float) -> bool:
        """Wait until there is an event after a revision, at most this long. Returns whether there is one."""
        if revision >= self.revision and not self._closed:
            await _wait(self._signal, seconds)
        return revision < self.revision

    async def _read(self, after: int) -> Sequence[Event]:
        if self._recent and self._recent[0].revision <= after + 1:
            start = after + 1 - self._recent[0].revision  # revisions have no gaps
            size = len(self._recent)
            return [self._recent[index] for index in range(start, min(size, start + limits.WATCH_BATCH))]
        return await self._store.events(after, limits.WATCH_BATCH)

    async def follow(
        self,
        after: int,
        audience: frozenset[str] | None,
        *,
        renewals: bool = False,
        event_filter: EventFilter | None = None,
    ) -> AsyncIterator[WatchItem]:
        """Events after a revision, until the reader leaves."""
        loop = asyncio.get_running_loop()
        mark = await self.find_mark(after)
        next_bookmark = loop.time() + limits.WATCH_BOOKMARK_SECONDS
        while not self._closed:
            signal = self._signal
            is_behind = after < self.revision
            events = await self._read(after) if is_behind else ()
            if is_behind and (not events or events[0].revision != after + 1):
                yield WatchCutOff(self.bookmark(after, mark))  # events were pruned before this watcher read them
                return
            visible = self._visible_events(events, audience, renewals=renewals)
            is_behind = bool(events) and events[-1].revision < self.revision
            chosen = await event_filter.select(visible, is_behind=is_behind) if event_filter and visible else visible
            for item in chosen:
                after, mark = (
                    item.event.revision,
                    mark_event(item.event),
                )  # a reader that leaves resumes after the last event that it got
                yield item
            if events:
                after, mark = events[-1].revision, mark_event(events[-1])
            if loop.time() >= next_bookmark:
                next_bookmark = loop.time() + limits.WATCH_BOOKMARK_SECONDS
                yield WatchBookmark(self.bookmark(after, mark))
            if after >= self.revision:
                await _wait(signal, next_bookmark - loop.time())

    def _visible_events(
        self, events: Sequence[Event], audience: frozenset[str] | None, *, renewals: bool
    ) -> list[WatchEvent]:
        kinds = ((event, event_type_for(event, audience)) for event in events)
        return [
            WatchEvent(self.cursor(event.revision, mark_event(event)), kind, event)
            for event, kind in kinds
            if kind is not None and (renewals or kind != "renewed")
        ]


def _unpack_cursor(payload: bytes) -> tuple[int, int]:
    """The revision and the mark."""
    if len(payload) in (_POSITION.size, _POSITION.size + _NONCE_BYTES):
        revision, mark = _POSITION.unpack_from(payload)
        return int(revision), int(mark)
    if len(payload) in (_REVISION.size, _REVISION.size + _NONCE_BYTES):
        return int(_REVISION.unpack_from(payload)[0]), _NO_MARK
    raise InvalidCursor("This cursor was not issued by this service.", path="from", hint=_WITHOUT_HINT)


def _too_old(message: str = "The change log no longer reaches back to this cursor.") -> CursorTooOld:
    return CursorTooOld(
        message,
        path="from",
        hint="List the agents again (GET /api/v1/agents), then watch without a cursor.",
        details={"links": {"list": "/api/v1/agents", "watch": "/api/v1/watch"}},
    )


async def _wait(signal: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await signal.wait()
    except TimeoutError:
        return
