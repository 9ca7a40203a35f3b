"""A connection on which nothing is asked is closed after a while; one on which something is answered is not."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from waypost.server.http.asgi import Receive, Response, Scope, Send
from waypost.server.http.connection import HttpConnection
from waypost.server.http.server import uvicorn_config


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Line:
    """A connection to an application that answers when it is let."""

    def __init__(self, idle_seconds: int) -> None:
        self.gate = asyncio.Event()
        self.transport = Transport()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self.gate.wait()
            await Response(200, b"answer").send(send)

        config: uvicorn.Config = uvicorn_config(answer)
        config.timeout_keep_alive = idle_seconds
        config.load()
        self.protocol = HttpConnection(config=config, server_state=ServerState(), app_state={})
        self.protocol.connection_made(self.transport)

    async def until(self, what: bytes) -> None:
        async with asyncio.timeout(20):
            while what not in self.transport.sent:
                await asyncio.sleep(0)

    async def until_closed(self) -> None:
        async with asyncio.timeout(20):
            await self.transport.closed.wait()


REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_whoever_says_nothing_is_let_go() -> None:
    line = Line(idle_seconds=0)
    await line.until_closed()
    assert line.transport.sent == b""


async def test_a_request_that_takes_its_time_is_answered_and_then_nothing_more_is_waited_for() -> None:
    line = Line(idle_seconds=0)
    line.protocol.data_received(REQUEST)
    await turns()
    assert not line.transport.is_closing()
    line.gate.set()
    await line.until(b"answer")
    await line.until_closed()


async def test_whoever_asks_again_in_time_is_kept() -> None:
    """The clock that rang in the first place rings again for what is left, and not for the requests between."""
    line = Line(idle_seconds=60)
    line.gate.set()
    for number in range(1, 4):
        line.protocol.data_received(REQUEST)
        async with asyncio.timeout(20):
            while line.transport.sent.count(b"answer") < number:
                await asyncio.sleep(0)
        line.protocol.timeout_keep_alive_handler()
        assert not line.transport.is_closing()
    line.protocol.connection_lost(None)
    assert line.protocol.timeout_keep_alive_task is None


async def test_half_a_head_is_not_idle() -> None:
    line = Line(idle_seconds=0)
    line.protocol.data_received(REQUEST[:10])
    await turns()
    assert not line.transport.is_closing()
    line.gate.set()
    line.protocol.data_received(REQUEST[10:])
    await line.until(b"answer")
    await line.until_closed()
