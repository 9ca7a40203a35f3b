# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""Following the change log over connections that come and go."""

from __future__ import annotations

import random
from collections.abc import Iterator

from waypost import limits
from waypost.client.calls import Call, change_of
from waypost.client.pause import pause
from waypost.client.results import Change
from waypost.client.streams import Events, ServerEvent
from waypost.client.sync.connection import Connection
from waypost.errors import RateLimited, Unavailable, WaypostError
from waypost.model.events import EVENT_TYPES

READ_SECONDS = 2.5 * limits.WATCH_BOOKMARK_SECONDS  # a living service is never silent for so long


def changes(connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None) -> Iterator[Change]:
    """Changes after `cursor`, each once, in order. A stream that was open once is taken up again where it broke."""
    attempt = 0
    opened = False
    while True:
        failure: WaypostError = Unavailable("The service ended the stream.", hint="Watch again.")
        try:
            for event in _events(connection, params, cursor):
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
        pause((failure.retry_after or 0) + connection.retry.backoff(attempt, random.random()))


def _events(connection: Connection, params: tuple[tuple[str, str], ...], cursor: str | None) -> Iterator[ServerEvent]:
    """What one connection brings, after an `open` that tells that it stands and from where."""
    start = () if cursor is None else (("from", cursor),)
    headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": cursor})
    call = Call(
        method="GET", path="/api/v1/watch", params=(*params, *start), headers=headers, read_seconds=READ_SECONDS
    )
    events = Events()
    with connection.stream(call) as (headers_given, chunks):
        yield ServerEvent("open", "", headers_given.get("Waypost-Cursor") if cursor is None else None)
        for chunk in chunks:
            yield from events.feed(chunk)
