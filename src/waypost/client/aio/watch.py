"""Following the change log over connections that come and go."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from waypost import limits
from waypost.client.aio.connection import Connection
from waypost.client.calls import Call, change_of
from waypost.client.pause import async_pause
from waypost.client.results import Change
from waypost.client.streams import Events, ServerEvent
from waypost.errors import RateLimited, Unavailable, WaypostError
from waypost.model.events import EVENT_TYPES

READ_SECONDS = 2.5 * limits.WATCH_BOOKMARK_SECONDS  # a living service is never silent for so long


async def changes(
    connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None
) -> AsyncIterator[Change]:
    """Changes after `cursor`, each once, in order. A stream that was open once is taken up again where it broke."""
    attempt = 0
    opened = False
    while True:
        failure: WaypostError = Unavailable("The service ended the stream.", hint="Watch again.")
        try:
            async for event in _events(connection, params, cursor):
                opened = True
                cursor = event.id or cursor
                if event.event in EVENT_TYPES:
                    attempt = 0
                    yield change_of(event)
        except (Unavailable, RateLimited) as error:
            failure = error
        attempt += 1
        if not opened or cursor is None or attempt > limits.CLIENT_WATCH_ATTEMPTS:
            raise failure
        await async_pause((failure.retry_after or 0) + connection.retry.backoff(attempt, random.random()))


async def _events(
    connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None
) -> AsyncIterator[ServerEvent]:
    """What one connection brings, after an `open` that tells that it stands and from where."""
    start = () if cursor is None else (("from", cursor),)
    headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": cursor})
    call = Call(
        method="GET", path="/api/v1/watch", params=(*params, *start), headers=headers, read_seconds=READ_SECONDS
    )
    events = Events()
    async with connection.stream(call) as (headers_given, chunks):
        yield ServerEvent("open", "", headers_given.get("Waypost-Cursor") if cursor is None else None)
        async for chunk in chunks:
            for event in events.feed(chunk):
                yield event
