"""An answer that leaves in one step is the answer that would have left in parts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from uvicorn.server import ServerState

from waypost.server.http.asgi import App, Headers, Receive, Request, Response, Scope, Send, take_fast_path
from waypost.server.http.connection import HttpConnection
from waypost.server.http.server import uvicorn_config

_ANSWERS: dict[str, tuple[int, bytes, Headers]] = {
    "/agent": (200, b'{"id": "a"}', [(b"etag", b'"a"'), (b"x-note", b"a\tb")]),
    "/nothing": (204, b"", [(b"etag", b'"a"')]),
    "/unchanged": (304, b"", [(b"etag", b'"a"')]),
    "/large": (200, b"x" * 300_000, []),
    "/last": (400, b"no", [(b"connection", b"close")]),
    "/empty": (200, b"", []),
}
_SPLIT: Headers = [(b"location", b"/a\r\nset-cookie: b")]


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers in one step, or in parts below /parts; `/split` holds what would end its line."""
    whole = take_fast_path(scope)
    assert whole is not None
    path = scope["path"]
    if path == "/split":
        assert not whole(200, _SPLIT, b"")
        await Response(200, b"refused").send(send)
        return
    status, body, headers = _ANSWERS[path.removeprefix("/parts")]
    if path.startswith("/parts") or not whole(status, headers, body):
        answer = Response(status, headers=list(headers))
        answer.body = body
        await answer.send(send, head=Request(scope, receive).method == "HEAD")
    else:
        assert take_fast_path(scope) is None


@asynccontextmanager
async def _connected(app: App = _app) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn_config(app)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: HttpConnection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


async def _exchanged(*requests: str) -> bytes:
    """All that comes back for these requests, sent at once; the last one ends the connection."""
    *first, last = [f"{request} HTTP/1.1\r\nHost: a\r\n" for request in requests]
    async with _connected() as (reader, writer):
        writer.write("".join([*(f"{wire}\r\n" for wire in first), last, "Connection: close\r\n\r\n"]).encode())
        found = await asyncio.wait_for(reader.read(), 60)
    return re.sub(rb"\r\ndate: [^\r]*", b"", found)


@pytest.mark.parametrize("path", _ANSWERS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_one_step_sends_what_parts_would_have_sent(method: str, path: str) -> None:
    whole = await _exchanged(f"{method} {path}", "GET /empty")
    assert whole == await _exchanged(f"{method} /parts{path}", "GET /empty")
    status, body, _ = _ANSWERS[path]
    assert whole.startswith(b"HTTP/1.1 %d " % status)
    assert (body in whole) == (method == "GET" or not body)


async def test_many_requests_at_once_are_answered_in_their_order() -> None:
    asked = ["GET /agent", "GET /large", "GET /parts/agent", "GET /nothing", "HEAD /large", "GET /agent"]
    found = await _exchanged(*asked)
    statuses = re.findall(rb"HTTP/1\.1 (\d+) ", found)
    assert statuses == [b"200", b"200", b"200", b"204", b"200", b"200"]
    assert found.count(b"x" * 300_000) == 1


async def test_a_value_that_would_end_its_line_does_not_leave() -> None:
    found = await _exchanged("GET /split")
    assert b"refused" in found
    assert b"set-cookie" not in found


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(200, await Request(scope, receive).body()).send(send)


async def _echoed(*parts: bytes) -> bytes:
    """What comes back for a request that is sent in these parts."""
    async with _connected(_echo) as (reader, writer):
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0)
        found = await asyncio.wait_for(reader.read(), 60)
    return re.sub(rb"\r\ndate: [^\r]*", b"", found)


async def test_a_body_that_came_with_its_head_is_the_body_that_comes_after_it() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n"
    whole = await _echoed(head + b"\r\nabcdef")
    assert whole.startswith(b"HTTP/1.1 200 ")
    assert whole.endswith(b"\r\n\r\nabcdef")
    assert await _echoed(head + b"\r\n", b"abc", b"def") == whole
    assert await _echoed(head + b"Expect: 100-continue\r\n\r\nabcdef") == b"HTTP/1.1 100 Continue\r\n\r\n" + whole
