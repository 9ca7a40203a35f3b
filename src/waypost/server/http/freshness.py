"""Reads in a cluster: they wait until this node has what other nodes have acknowledged, or are marked as stale.

Waypost-Stale: 12                 the database is away; the response may lack changes of the last 12 seconds
Waypost-Consistency-Token: …      with `reads = bounded`, in the response to a write: a request that carries it sees the write,
                                  on every node
"""

from __future__ import annotations

import math
import secrets
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from waypost.errors import InvalidCursor
from waypost.server.http.asgi import App, Message, Receive, Scope, Send

STALE_HEADER = b"waypost-stale"

TOKEN_HEADER = b"waypost-consistency-token"

# Waits until the node is current, or has at least this position of the log; returns None, or the age of its state in seconds
# if the database does not answer.
ConfirmReads = Callable[[int], Awaitable[float | None]]

_PURPOSE: Final = "consistency"
_POSITION: Final = struct.Struct(">q")
_NONCE_BYTES: Final = 8
_NEWEST: Final = (1 << 63) - 1  # wait for everything
_READ_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))

_UNCHECKED_PATHS = frozenset(("/healthz", "/metrics"))  # about this process


class TokenCipher(Protocol):
    """Seals what callers must not read."""

    def seal(self, purpose: str, payload: bytes) -> str: ...

    def open(self, purpose: str, cursor: str) -> bytes: ...


class ConsistencyTokens:
    """A position in the log of the cluster, sealed: it would tell of changes that the caller may not see."""

    def __init__(self, cipher: TokenCipher) -> None:
        self._cipher = cipher

    def make(self, position: int) -> bytes:
        """A new one each time: equal tokens would reveal that nothing hidden happened in between."""
        return self._cipher.seal(_PURPOSE, _POSITION.pack(position) + secrets.token_bytes(_NONCE_BYTES)).encode()

    def find_position(self, headers: Iterable[tuple[bytes, bytes]]) -> int:
        """The position to wait for. A token that cannot be read, perhaps of another cluster, means everything."""
        for name, value in headers:
            if name == TOKEN_HEADER:
                try:
                    return int(_POSITION.unpack_from(self._cipher.open(_PURPOSE, value.decode("latin-1")))[0])
                except (InvalidCursor, struct.error):
                    return _NEWEST
        return 0


class FreshReads:
    """An ASGI application in front of that of a node. Writes are checked, too: credentials may have changed elsewhere."""

    def __init__(
        self, app: App, confirm: ConfirmReads, tokens: ConsistencyTokens, position: Callable[[], int] | None = None
    ) -> None:
        """`position` is that of this node, if responses to writes get a token."""
        self._app = app
        self._confirm = confirm
        self._tokens = tokens
        self._position = position

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _UNCHECKED_PATHS:
            age_seconds = await self._confirm(self._tokens.find_position(scope["headers"]))
            if age_seconds is not None:
                send = mark_stale(send, age_seconds)
            if self._position is not None and scope["method"] not in _READ_METHODS:
                send = self._add_token(send, self._position)
        await self._app(scope, receive, send)

    def _add_token(self, send: Send, position: Callable[[], int]) -> Send:
        async def send_with_token(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                headers = [*message.get("headers", ()), (TOKEN_HEADER, self._tokens.make(position()))]
                message = {**message, "headers": headers}
            await send(message)

        return send_with_token


def mark_stale(send: Send, age_seconds: float) -> Send:
    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (STALE_HEADER, b"%d" % max(1, math.ceil(age_seconds)))]
            message = {**message, "headers": headers}
        await send(message)

    return send_marked
