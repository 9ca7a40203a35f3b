"""Reads in a cluster: they wait until this node has what other nodes have acknowledged, or are marked as stale.

Waypost-Stale: 12    the database is away; the response may lack changes of the last 12 seconds
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from waypost.server.http.asgi import App, Message, Receive, Scope, Send

STALE_HEADER = b"waypost-stale"

# Waits until the node is current; returns None, or the age of its state in seconds if the database does not answer.
ConfirmReads = Callable[[], Awaitable[float | None]]

_UNCHECKED_PATHS = frozenset(("/healthz", "/metrics"))  # about this process


class FreshReads:
    """An ASGI application in front of that of a node. Writes are checked, too: credentials may have changed elsewhere."""

    def __init__(self, app: App, confirm: ConfirmReads) -> None:
        self._app = app
        self._confirm = confirm

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _UNCHECKED_PATHS:
            age_seconds = await self._confirm()
            if age_seconds is not None:
                send = mark_stale(send, age_seconds)
        await self._app(scope, receive, send)


def mark_stale(send: Send, age_seconds: float) -> Send:
    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (STALE_HEADER, b"%d" % max(1, math.ceil(age_seconds)))]
            message = {**message, "headers": headers}
        await send(message)

    return send_marked
