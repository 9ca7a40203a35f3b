"""Read server-sent events from an ASGI application in this process."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

_TIMEOUT_SECONDS = 30.0
_CLIENT = ("127.0.0.1", 50000)


@dataclass(frozen=True)
class ServerSentEvent:
    cursor: str
    type: str
    data: dict[str, Any]


class EventStream:
    """An open stream: its events as they arrive, and its end."""

    def __init__(self, messages: asyncio.Queue[dict[str, Any]]) -> None:
        self._messages = messages
        self._text = ""
        self._events: deque[ServerSentEvent] = deque()

    async def next(self) -> ServerSentEvent | None:
        """The next event that is no bookmark, or None if the stream has ended. Fails if neither comes in time."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while not self._events:
                message = await self._messages.get()
                self._text += message["body"].decode()
                *blocks, self._text = self._text.split("\n\n")
                self._events += [event for block in blocks if (event := _parse(block)) and event.type != "bookmark"]
                if not message.get("more_body") and not self._events:
                    return None
        return self._events.popleft()


@asynccontextmanager
async def open_stream(
    app: Any, path: str, headers: Sequence[tuple[bytes, bytes]], *, client: tuple[str, int] = _CLIENT, **params: str
) -> AsyncIterator[EventStream]:
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    started = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # the client stays connected
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        else:
            await messages.put(message)
            started.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": urlencode(params).encode(),
        "headers": [(b"host", b"127.0.0.1"), *headers], "client": client, "server": ("127.0.0.1", 80),
        "state": {},
    }  # fmt: skip
    task = asyncio.create_task(app(scope, receive, send))
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await started.wait()
        yield EventStream(messages)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def read_events(app: Any, path: str, token: str, count: int, **params: str) -> list[ServerSentEvent]:
    """The first `count` events that are no bookmarks. Fails if they do not arrive in time."""
    async with open_stream(app, path, [(b"authorization", f"Bearer {token}".encode())], **params) as stream:
        events = [await stream.next() for _ in range(count)]
    assert None not in events, "the stream has ended"
    return [event for event in events if event is not None]


def _parse(block: str) -> ServerSentEvent | None:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
    if "data" not in fields:
        return None
    return ServerSentEvent(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
