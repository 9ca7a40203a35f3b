"""A TCP server that answers HTTP requests as a test tells it, also in ways that no HTTP library would."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Handler = Callable[["Visitor"], Awaitable[None]]


class Visitor:
    """One request, and the connection to answer it on."""

    def __init__(self, method: str, path: str, writer: asyncio.StreamWriter) -> None:
        self.method = method
        self.path = path
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(
        self, status: int = 200, body: bytes = b"", kind: str = "application/json", more: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        await self.send(head.encode() + (b"" if self.method == "HEAD" else body))


class HostileServer:
    """Counts connections and requests."""

    def __init__(self, handler: Handler) -> None:
        self.url = ""
        self.connections = 0
        self.requests: list[str] = []
        self._handler = handler
        self._loop = asyncio.new_event_loop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                self.requests.append(f"{method} {path}")
                for line in head.lower().splitlines():
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.partition(":")[2]))
                await self._handler(Visitor(method, path, writer))
        writer.close()

    @contextmanager
    def running(self) -> Iterator[HostileServer]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        opening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(30)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(server), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(30)
            self._loop.close()

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
