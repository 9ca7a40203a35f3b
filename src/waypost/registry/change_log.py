"""The change log as watchers read it: at their own pace, in order, from a cursor.

Nothing is pushed into a watcher's queue: each one pulls from the log and waits for a pulse. So a slow watcher costs no
memory, and one that falls behind what the log keeps is told so and cut off, never skipped silently.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from waypost import limits
from waypost.errors import CursorTooOld, InvalidCursor
from waypost.model.events import Event, EventType, event_type_for
from waypost.registry.ports import Store
from waypost.trust.cursor_cipher import CursorCipher

_PURPOSE = "watch"
_RECENT = 10_000
_WITHOUT = "Leave it out for what happens from now on, or send 0 for all that is kept."


class WatchEvent(msgspec.Struct, frozen=True):
    """An event as one audience sees it, with the cursor to go on from."""

    cursor: str
    type: EventType
    event: Event


class WatchBookmark(msgspec.Struct, frozen=True):
    """A cursor without an event: how far the log was read."""

    cursor: str


class WatchCutOff(msgspec.Struct, frozen=True):
    """The last word to a watcher that is too slow."""

    cursor: str


WatchItem = WatchEvent | WatchBookmark | WatchCutOff


class ChangeLog:
    def __init__(self, store: Store, seal: CursorCipher, revision: int, *, nonce: Callable[[], bytes]) -> None:
        self._store = store
        self._seal = seal
        self._nonce = nonce
        self._recent: deque[Event] = deque(maxlen=_RECENT)
        self.revision = revision
        self._pulse: asyncio.Event = asyncio.Event()
        self._closed = False

    def append(self, events: Sequence[Event]) -> None:
        self._recent.extend(events)
        if events:
            self.revision = events[-1].revision
            self._wake()

    def forget_recent(self) -> None:
        """Read from the store from now on, as after a restart."""
        self._recent.clear()

    def skip_to(self, revision: int) -> None:
        """What lies between is not in the log any more: whoever still waits for it is cut off."""
        self._recent.clear()
        self.revision = revision
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    # --- Cursors ---------------------------------------------------------------------------------

    def cursor(self, revision: int) -> str:
        """The same for the same event, every time."""
        return self._seal.seal(_PURPOSE, struct.pack(">Q", revision))

    def bookmark(self, revision: int) -> str:
        """Never the same twice: equal bookmarks would tell that nothing hidden happened in between."""
        return self._seal.seal(_PURPOSE, struct.pack(">Q", revision) + self._nonce())

    async def parse_cursor(self, text: str | None) -> int:
        """The revision to read after. Absent: now. `0`: the beginning of what is kept."""
        if text is None:
            return self.revision
        if text == "0":
            return await self._store.oldest_event() - 1
        try:
            payload = self._seal.open(_PURPOSE, text)
        except InvalidCursor as error:
            raise InvalidCursor(error.message, path="from", hint=_WITHOUT) from None
        if len(payload) not in (8, 16):
            raise InvalidCursor("This cursor was not given by this service.", path="from", hint=_WITHOUT)
        (revision,) = struct.unpack(">Q", payload[:8])
        if revision > self.revision:
            raise InvalidCursor("This cursor is from another history.", path="from", hint="List anew, then watch.")
        if revision + 1 < await self._store.oldest_event():
            raise CursorTooOld(
                "The change log no longer reaches back to this cursor.",
                path="from",
                hint="List the agents anew (GET /api/v1/agents), then watch without a cursor.",
                details={"links": {"list": "/api/v1/agents", "watch": "/api/v1/watch"}},
            )
        return int(revision)

    # --- Reading ---------------------------------------------------------------------------------

    async def _read(self, after: int) -> Sequence[Event]:
        if self._recent and self._recent[0].revision <= after + 1:
            start = after + 1 - self._recent[0].revision
            size = len(self._recent)
            # Revisions are dense, so the place in the ring follows from the number.
            return [self._recent[index] for index in range(start, min(size, start + limits.WATCH_BATCH))]
        return await self._store.events(after, limits.WATCH_BATCH)

    async def follow(
        self, after: int, audience: frozenset[str] | None, *, renewals: bool = False
    ) -> AsyncIterator[WatchItem]:
        """Events after a revision, for as long as the reader stays."""
        loop = asyncio.get_running_loop()
        next_bookmark = loop.time() + limits.WATCH_BOOKMARK_SECONDS
        while not self._closed:
            pulse = self._pulse
            is_behind = after < self.revision
            events = await self._read(after) if is_behind else ()
            if is_behind and (not events or events[0].revision != after + 1):
                yield WatchCutOff(
                    self.bookmark(after)
                )  # the log went on without it: what is gone must not look like nothing
                return
            for event in events:
                after = event.revision
                kind = event_type_for(event, audience)
                if kind is not None and (renewals or kind != "renewed"):
                    yield WatchEvent(self.cursor(event.revision), kind, event)
            if loop.time() >= next_bookmark:
                next_bookmark = loop.time() + limits.WATCH_BOOKMARK_SECONDS
                yield WatchBookmark(self.bookmark(after))
            if after >= self.revision:
                await _wait(pulse, next_bookmark - loop.time())


async def _wait(pulse: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await pulse.wait()
    except TimeoutError:
        return
