"""What a conversation needs of a socket, whoever opened it."""

from __future__ import annotations

from typing import Protocol


class LinkLost(Exception):
    """The connection is gone; with the code and the words of the other side, where it had any."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Link(Protocol):
    async def send(self, frame: str) -> None:
        """Waits while the other side takes nothing. LinkLost."""
        ...

    async def receive(self) -> str | bytes:
        """LinkLost."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


class Reread:
    """A link from which the first frame was already taken."""

    def __init__(self, link: Link, first: str | bytes) -> None:
        self._link = link
        self._first: str | bytes | None = first

    async def send(self, frame: str) -> None:
        await self._link.send(frame)

    async def receive(self) -> str | bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._link.receive()

    async def close(self, code: int, reason: str) -> None:
        await self._link.close(code, reason)
