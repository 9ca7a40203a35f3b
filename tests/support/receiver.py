"""A TLS server that records callbacks and answers as configured."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

WAIT_SECONDS = 60.0


class Taken(msgspec.Struct, kw_only=True):
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Receiver:
    """`answers` (status line and body) are sent in turn, then `204 No Content`."""

    def __init__(self) -> None:
        self.port = 0
        self.taken: list[Taken] = []
        self.answers: list[tuple[str, bytes]] = []
        self._came = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            self.taken.append(Taken(method=method, path=path, headers=headers, body=body))
            self._came.set()
            status, content = self.answers.pop(0) if self.answers else ("204 No Content", b"")
            kind = "location: https://127.0.0.1/elsewhere\r\n" if status.startswith("3") else ""
            writer.write(f"HTTP/1.1 {status}\r\n{kind}content-length: {len(content)}\r\n\r\n".encode() + content)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def wait(self, count: int = 1) -> list[Taken]:
        """Wait for this many requests."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.taken) < count:
                self._came.clear()
                await self._came.wait()
        return self.taken


@asynccontextmanager
async def receiver(tls: ssl.SSLContext, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, host, 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()  # from Python 3.12 on, wait_closed() would wait for clients that keep their connection
