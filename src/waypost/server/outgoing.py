"""What a connection sends, gathered: the head of an answer and its body leave in one call to the system, not in two.

Such a call costs as much as finding the answer, and each wakes the client. It stands where uvicorn keeps its transport, and
knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from typing import Any

from waypost import limits


class Outgoing:
    """A transport that holds back what is written until it is told to send, or until the loop goes on to others: whoever
    streams is not held up. Never more than `OUTGOING_BYTES`: beyond it the transport says when it has enough."""

    __slots__ = ("_is_planned", "_loop", "_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0
        self._is_planned = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > limits.OUTGOING_BYTES:
            self.send()
        elif not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._in_time)

    def write_now(self, data: bytes) -> None:
        """What is whole has nothing to wait for."""
        if self._parts:
            self._parts.append(data)
            self.send()
        else:
            self._transport.write(data)

    def _in_time(self) -> None:
        self._is_planned = False
        self.send()

    def send(self) -> None:
        parts = self._parts
        if parts:
            self._parts, self._size = [], 0
            self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.send()
        self._transport.close()
