"""What is answered where it was read is answered as it would have been in a task; what turns out to wait goes on in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from support.service import service
from waypost import limits
from waypost.model.credentials import Issuer
from waypost.server.http import prompt
from waypost.server.http.asgi import Receive, Request, Response, Scope, Send, take_fast_path
from waypost.server.http.connection import HttpConnection
from waypost.server.http.server import uvicorn_config


class Application:
    """Says of each request whether it was in a task, and what it brought."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waits = asyncio.Event()

    def is_prompt(self, method: str, raw_path: bytes) -> bool:
        return not raw_path.startswith(b"/task")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        where = b"task" if asyncio.current_task() is not None else b"here"
        request = Request(scope, receive)
        if scope["path"] == "/fails":
            raise ValueError("as an application must not")
        if scope["path"] == "/waits":
            self.waits.set()
            await asyncio.sleep(0)
            await self.gate.wait()
            assert asyncio.current_task() is not None
        body = await request.body() if request.method == "POST" else b""
        told = b"%b %b %d" % (scope["raw_path"], where, len(body))
        whole = take_fast_path(scope)
        response = Response(200, told)
        if whole is None or not whole(200, response.headers, told):
            await response.send(send)


@asynccontextmanager
async def connected(app: Application) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, ServerState]]:
    config = uvicorn_config(app)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            yield reader, writer, state
        finally:
            writer.close()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: a", *headers, "", ""]).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return await reader.readexactly(int(lengths[0].partition(b":")[2]))


async def test_what_is_all_there_is_answered_where_it_was_read() -> None:
    async with connected(Application()) as (reader, writer, state):
        for wire, told in (
            (get("/a"), b"/a here 0"),
            (post("/b", b"xyz"), b"/b here 3"),
            (get("/task"), b"/task task 0"),
            (get("/c", "connection: keep-alive"), b"/c here 0"),
        ):
            writer.write(wire)
            assert await answer(reader) == told
        assert not state.tasks
        assert state.total_requests == 4


async def test_the_first_of_several_requests_is_answered_at_once_and_all_in_order() -> None:
    """Whoever sends a thousand at a time has one turn, as everybody."""
    async with connected(Application()) as (reader, writer, _):
        writer.write(b"".join(get(f"/{number}") for number in range(50)))
        told = [await answer(reader) for _ in range(50)]
        assert [each.split()[0] for each in told] == [b"/%d" % number for number in range(50)]
        assert told[0] == b"/0 here 0"
        assert told[1] == b"/1 task 0"


async def test_what_waits_goes_on_in_a_task_and_those_behind_it_wait_for_it() -> None:
    app = Application()
    async with connected(app) as (reader, writer, state):
        writer.write(get("/waits") + get("/behind"))
        async with asyncio.timeout(20):
            await app.waits.wait()
        assert len(state.tasks) == 1
        app.gate.set()
        assert await answer(reader) == b"/waits here 0"
        assert await answer(reader) == b"/behind task 0"
        writer.write(get("/again"))
        assert await answer(reader) == b"/again here 0"


async def test_a_body_that_is_still_to_come_is_waited_for_in_a_task() -> None:
    wire = post("/b", b"x" * 1000)
    async with connected(Application()) as (reader, writer, _):
        writer.write(wire[:-10])
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(wire[-10:])
        assert (await answer(reader)).split()[::2] == [b"/b", b"1000"]
        writer.write(post("/large", b"x" * (limits.REQUEST_BYTES + 1)))
        assert await answer(reader) == b"/large task %d" % (limits.REQUEST_BYTES + 1)


async def test_whoever_asks_whether_to_go_on_is_told_so() -> None:
    async with connected(Application()) as (reader, writer, _):
        wire = post("/b", b"xyz", "expect: 100-continue")
        writer.write(wire[:-3])
        async with asyncio.timeout(20):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(wire[-3:])
        assert await answer(reader) == b"/b task 3"


async def test_nothing_follows_a_request_that_closes_the_connection() -> None:
    async with connected(Application()) as (reader, writer, _):
        writer.write(get("/last", "connection: close") + get("/never"))
        assert await answer(reader) == b"/last task 0"
        async with asyncio.timeout(20):
            assert await reader.read() == b""


async def test_an_application_that_fails_is_told_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(Application()) as (reader, writer, _):
        writer.write(get("/fails"))
        assert await answer(reader) == b"Internal Server Error"
    assert "Exception in ASGI application" in caplog.text


# --- What the service promises ----------------------------------------------------------------------

_READS = (
    ("GET", b"/api/v1/agents/agent-1"),
    ("GET", b"/api/v1/agents/urn%3Aagent%3A1"),
    ("GET", b"/.well-known/agentframework/v1/agents"),
    ("GET", b"/.well-known/agentframework/v1/agents/agent-1"),
    ("POST", b"/profile/v1/discover"),
)


async def test_reads_of_what_is_held_wait_for_nobody(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        promises = bench.application.service.is_prompt
        assert all(promises(method, path) for method, path in _READS)
        for method, path in (
            ("POST", b"/api/v1/agents"),
            ("DELETE", b"/api/v1/agents/agent-1"),
            ("GET", b"/api/v1/agents/agent-1:verify"),
            ("GET", b"/api/v1/resolve"),
            ("GET", b"/api/v1/watch"),
            ("GET", b"/profile/v1/discover"),
        ):
            assert not promises(method, path)


async def test_where_outsiders_say_who_asks_they_may_have_to_be_asked(tmp_path: Path) -> None:
    outside = Issuer(issuer="https://id.example", jwks=("https://id.example/keys",))
    async with service(tmp_path, issuers=(outside,)) as bench:
        assert not any(bench.application.service.is_prompt(method, path) for method, path in _READS)


# --- The steps by themselves ------------------------------------------------------------------------


class _Given:
    """Waits once for what somebody sends."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield None)


async def test_a_cancellation_reaches_who_waits() -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            await asyncio.sleep(0)
            told.append("tidied")
            raise

    task = prompt.start(work(), asyncio.get_running_loop())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["cancelled", "tidied"]


async def test_an_error_after_waiting_is_the_task_s() -> None:
    async def work() -> None:
        assert await _Given() is None
        raise ValueError("late")

    task = prompt.start(work(), asyncio.get_running_loop())
    assert task is not None
    with pytest.raises(ValueError, match="late"):
        await task


async def test_an_error_before_waiting_is_the_caller_s() -> None:
    async def work() -> None:
        raise ValueError("early")

    with pytest.raises(ValueError, match="early"):
        prompt.start(work(), asyncio.get_running_loop())
