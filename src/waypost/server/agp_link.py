"""A WebSocket of the service as the link of a conversation, at the pace that one session may have (W5)."""

from __future__ import annotations

import asyncio

from waypost import limits
from waypost.errors import RateLimited
from waypost.meeting.link import LinkLost
from waypost.server.asgi import Receive, Send

_REASON_BYTES = 120


class AsgiLink:
    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        per_second: float = limits.AGP_MESSAGES_PER_SECOND,
        burst: float = limits.AGP_MESSAGES_BURST,
    ) -> None:
        self._receive = receive
        self._send = send
        self._per_second = per_second
        self._burst = self._left = float(burst)
        self._loop = asyncio.get_running_loop()
        self._counted_at = self._loop.time()
        self._is_closed = False

    def hasten(self, per_second: float, burst: float) -> None:
        """Another pace, for who speaks with many."""
        self._per_second, self._burst, self._left = per_second, float(burst), float(burst)

    async def receive(self) -> str | bytes:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_closed = True
            raise LinkLost(message.get("code", 1006), message.get("reason") or "")
        self._take()
        text = message.get("text")
        return str(text) if text is not None else bytes(message["bytes"])

    def _take(self) -> None:
        now = self._loop.time()
        self._left = min(self._burst, self._left + (now - self._counted_at) * self._per_second) - 1
        self._counted_at = now
        if self._left < 0:
            raise RateLimited(
                f"More than {self._per_second:g} messages a second.",
                path="$",
                hint="Slow down, and connect again in a while.",
                retry_after=5,
            )

    async def send(self, frame: str) -> None:
        if self._is_closed:
            raise LinkLost
        try:
            await self._send({"type": "websocket.send", "text": frame})
        except OSError:  # uvicorn's word for a client that left
            self._is_closed = True
            raise LinkLost from None

    async def close(self, code: int, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        told = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
        try:
            await self._send({"type": "websocket.close", "code": code, "reason": told})
        except OSError:
            return
