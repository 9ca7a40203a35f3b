"""A web server outside the service: it answers with raw bytes per path, counts connections, and may break the protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


class ExternalServer:
    """`pages` maps a path to the bytes of a response, or to a function that writes it."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.at_once = 0
        self.most_at_once = 0
        self.requests: list[bytes] = []
        self.pages: dict[str, bytes | Handler] = {}

    def json(self, path: str, document: Any, **headers: str) -> None:
        self.pages[path] = answer(msgspec.json.encode(document), content_type="application/json", **headers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            page = self.pages.get(head.split(b" ")[1].decode(), answer(b"", status="404 Not Found"))
            if isinstance(page, bytes):
                writer.write(page)
            else:
                await page(writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.at_once -= 1
            writer.close()


def answer(body: bytes, *, status: str = "200 OK", **headers: str) -> bytes:
    """The bytes of a response. Underscores in header names become hyphens."""
    named = {"content-length": str(len(body)), **{name.replace("_", "-"): text for name, text in headers.items()}}
    head = "".join(f"{name}: {text}\r\n" for name, text in named.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


@asynccontextmanager
async def external_server(
    host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ExternalServer]:
    site = ExternalServer()
    server = await asyncio.start_server(site.serve, host, port, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()  # from Python 3.12 on, wait_closed() would wait for clients that keep their connection
