"""Read server-sent events from an ASGI application in this process."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class ServerSentEvent:
    cursor: str
    type: str
    data: dict[str, Any]


async def read_events(app: Any, path: str, token: str, count: int, **params: str) -> list[ServerSentEvent]:
    """The first `count` events that are no bookmarks. Fails if they do not arrive in time."""
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # the client stays connected
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        else:
            await queue.put(message["body"])

    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": urlencode(params).encode(),
        "headers": headers, "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    task = asyncio.create_task(app(scope, receive, send))
    events: list[ServerSentEvent] = []
    text = ""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while len(events) < count:
                text += (await queue.get()).decode()
                *blocks, text = text.split("\n\n")
                events += [event for block in blocks if (event := _parse(block)) and event.type != "bookmark"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return events[:count]


def _parse(block: str) -> ServerSentEvent | None:
    fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
    if "data" not in fields:
        return None
    return ServerSentEvent(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
