"""HTTP/1.1 to the writing process, over a socket in the data folder: connections kept open, bodies and answers in parts.

It carries what it is given and knows no path. One connection carries one exchange at a time; what a slow client has not
taken yet is not read from the other side.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

import httptools

from waypost import limits
from waypost.errors import StoreUnavailable
from waypost.server.asgi import Headers

_AWAY = "The process that writes is being started anew."
_CUT = "The process that writes ended before it answered; the write may have been done."
_RETRY_SECONDS = 1


class Link(asyncio.Protocol):
    """One connection. `head` and `parts` wait for what arrives; a connection that is lost ends both with an error."""

    def __init__(self) -> None:
        self.is_lost = False
        self.keeps = True  # may carry another exchange
        self.idle_since = 0.0
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._has_head = False
        self._is_over = False
        self._parts: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()

    # --- From the loop ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what a stream connection is given

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._news.set()
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
        self._news.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- From the parser -------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200
        self.keeps = self._parser.should_keep_alive()
        if not self._has_head:
            self._headers.clear()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._waiting_bytes += len(body)
        if self._waiting_bytes > limits.FORWARD_PART_BYTES:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._is_over = self._has_head

    # --- One exchange ----------------------------------------------------------------------------

    def begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._has_head = self._is_over = False
        self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        await self._may_write.wait()
        if not self.is_lost:
            self._transport.write(data)

    async def head(self) -> tuple[int, Headers]:
        try:
            async with asyncio.timeout(limits.FORWARD_ANSWER_SECONDS):
                while not self._has_head:
                    await self._wait()
        except TimeoutError:
            raise StoreUnavailable("The process that writes does not answer.", retry_after=_RETRY_SECONDS) from None
        return self._parser.get_status_code(), self._headers

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting_bytes -= len(part)
                yield part
            if self._is_over:
                return
            if not self.is_lost:
                self._transport.resume_reading()
            await self._wait()

    async def _wait(self) -> None:
        if self.is_lost:
            raise StoreUnavailable(_CUT, hint="Look whether it was, and send it again.", retry_after=_RETRY_SECONDS)
        self._news.clear()
        await self._news.wait()

    def close(self) -> None:
        self.is_lost = True
        self._transport.abort()

    @property
    def takes_no_more(self) -> bool:
        """The answer has begun, and the connection ends with it: to write on could lose what is not read yet."""
        return self._has_head and not self.keeps

    @property
    def is_free(self) -> bool:
        """All that was asked was answered, and the connection stays."""
        return self._is_over and not self._parts and self.keeps and not self.is_lost


class Upstream:
    """The connections to the writing process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[Link] = []

    async def borrow(self) -> Link:
        """A connection that is free, or a new one."""
        while self._idle:
            link = self._idle.pop()
            if not link.is_lost and time.monotonic() - link.idle_since < limits.FORWARD_IDLE_SECONDS:
                link.begin()
                return link
            if not link.is_lost:
                link.close()
        try:
            _, link = await asyncio.get_running_loop().create_unix_connection(Link, self._path)
        except OSError:
            raise StoreUnavailable(
                _AWAY, hint="Reads are answered meanwhile; send it again.", retry_after=_RETRY_SECONDS
            ) from None
        return link

    def give_back(self, link: Link) -> None:
        if link.is_free and len(self._idle) < limits.FORWARD_IDLE:
            link.idle_since = time.monotonic()
            self._idle.append(link)
        elif not link.is_lost:
            link.close()

    def close(self) -> None:
        for link in self._idle:
            link.close()
        self._idle.clear()
