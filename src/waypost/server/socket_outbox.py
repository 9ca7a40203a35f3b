"""What waits to be sent on one socket: bounded, in order. A reader that is too slow ends its session, not our memory (W6)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from waypost import limits
from waypost.server.asgi import Send

TRY_AGAIN = 1013


class Closing(Exception):
    """The session is over: the code and the words that the other side is told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class _Waiting(NamedTuple):
    data: bytes
    stream: str  # the subscription that it belongs to; empty: none
    cursor: str


class Outbox:
    def __init__(self, stall_seconds: float = limits.SOCKET_STALL_SECONDS) -> None:
        self.sent: dict[str, str] = {}  # how far each subscription has come on the wire
        self._stall_seconds = stall_seconds
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, data: bytes, stream: str = "", cursor: str = "") -> None:
        """Waits for room, for a while. What is dropped then can be had again from the cursor that is told."""
        try:
            async with asyncio.timeout(self._stall_seconds):
                while self._is_full():
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            resume = self.sent.get(stream, "")
            raise Closing(TRY_AGAIN, f"too slow; cursor={resume}" if resume else "too slow") from None
        self._waiting.append(_Waiting(data, stream, cursor))
        self._bytes += len(data)
        self._news.set()

    async def drain(self, send: Send) -> None:
        """Goes on until it is cancelled."""
        while True:
            while self._waiting:
                item = self._waiting.popleft()
                await send({"type": "websocket.send", "bytes": item.data})
                self._bytes -= len(item.data)
                if item.cursor:
                    self.sent[item.stream] = item.cursor
                self._room.set()
            self._news.clear()
            await self._news.wait()

    async def flush(self, seconds: float) -> None:
        """Give what waits a moment to leave, before a last word."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._waiting:
                    self._room.clear()
                    await self._room.wait()

    def _is_full(self) -> bool:
        return len(self._waiting) >= limits.SOCKET_QUEUE_MESSAGES or self._bytes >= limits.SOCKET_QUEUE_BYTES
