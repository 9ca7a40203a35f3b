"""Requests that a follower forwards unchanged to the leader, and what the leader trusts of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from waypost import limits
from waypost.app import Application, build
from waypost.app.workers import WorkerTable
from waypost.server.http.asgi import Message, Receive, Scope, Send
from waypost.server.http.follower import LeaderApp
from waypost.server.http.metrics import Metrics
from waypost.server.http.server import WORKER_SOCKET
from waypost.settings import Settings

ANSWER = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\ndate: then\r\nx-own: yes\r\n\r\nok"


class FakeLeader:
    """The other side of the socket: records requests and gives the same answer to all."""

    def __init__(self, answer: bytes = ANSWER) -> None:
        self.answer = answer
        self.connections = 0
        self.requests: list[bytes] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            if b"transfer-encoding: chunked" in head:
                head += await reader.readuntil(b"0\r\n\r\n")
            elif b"content-length: " in head:
                head += await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
            self.requests.append(head)
            writer.write(self.answer)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def writing(data: Path, answer: bytes = ANSWER) -> AsyncIterator[FakeLeader]:
    leader = FakeLeader(answer)
    server = await asyncio.start_unix_server(leader.take, data / WORKER_SOCKET)
    try:
        yield leader
    finally:
        server.close()


@asynccontextmanager
async def following(data: Path, answer: bytes = ANSWER) -> AsyncIterator[tuple[Application, FakeLeader]]:
    """A follower, and a fake leader."""
    application = build(Settings(data=data, workers=2), slot=WorkerTable(2).slot(1))
    assert application.follower is not None
    async with writing(data, answer) as leader:
        try:
            yield application, leader
        finally:
            application.follower.upstream.close()
            async with asyncio.timeout(60):
                await asyncio.gather(*leader.tasks)


async def ask(
    application: Application, *parts: bytes, messages: list[Message] | None = None, **scope: Any
) -> list[Message]:
    """One request through the application, with these parts of a body or other `messages`; returns the sent messages."""
    sent: list[Message] = []
    waiting: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting[-1]["more_body"] = False
    waiting = waiting if messages is None else messages

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    whole = {
        "type": "http",
        "method": "PUT",
        "scheme": "http",
        "path": "/profile/v1/agents/a/b",
        "raw_path": b"/profile/v1/agents/a%2Fb",
        "query_string": b"",
        "headers": [(b"host", b"agents.example")],
        "client": ("192.0.2.7", 4711),
        **scope,
    }
    async with asyncio.timeout(60):
        await application.app(whole, receive, send)
    return sent


async def test_a_request_is_passed_on_as_it_came_with_its_origin(tmp_path: Path) -> None:
    headers = [(b"host", b"agents.example"), (b"content-length", b"5"), (b"connection", b"keep-alive")]
    async with following(tmp_path) as (application, leader):
        sent = await ask(application, b"hello", headers=headers, query_string=b"ttl_seconds=60")
    assert leader.requests == [
        b"PUT /profile/v1/agents/a%2Fb?ttl_seconds=60 HTTP/1.1\r\nhost: agents.example\r\ncontent-length: 5\r\n"
        b"waypost-origin: http 4711 192.0.2.7\r\n\r\nhello"
    ]
    assert sent[0]["status"] == 201
    assert sent[0]["headers"] == [(b"content-length", b"2"), (b"x-own", b"yes")]
    assert b"".join(message["body"] for message in sent[1:]) == b"ok"


async def test_an_origin_that_a_client_claims_is_thrown_away(tmp_path: Path) -> None:
    headers = [(b"host", b"agents.example"), (b"waypost-origin", b"https 1 10.0.0.1")]
    async with following(tmp_path) as (application, leader):
        await ask(application, b"", headers=headers, method="DELETE")
    assert leader.requests[0].count(b"waypost-origin") == 1
    assert b"waypost-origin: http 4711 192.0.2.7\r\n" in leader.requests[0]


async def test_a_body_of_unknown_length_goes_on_in_parts(tmp_path: Path) -> None:
    headers = [(b"host", b"agents.example"), (b"transfer-encoding", b"chunked")]
    async with following(tmp_path) as (application, leader):
        await ask(application, b"one", b"", b"three", headers=headers)
    assert leader.requests[0].endswith(b"\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n")


async def test_a_connection_is_used_again(tmp_path: Path) -> None:
    async with following(tmp_path) as (application, leader):
        for _ in range(5):
            await ask(application, b"", method="DELETE")
    assert (leader.connections, len(leader.requests)) == (1, 5)


async def test_a_connection_that_the_other_side_ends_is_not(tmp_path: Path) -> None:
    closing = ANSWER.replace(b"x-own: yes", b"connection: close")
    async with following(tmp_path, closing) as (application, leader):
        for _ in range(3):
            sent = await ask(application, b"", method="DELETE")
            assert (b"connection", b"close") in sent[0]["headers"]
    assert leader.connections == 3


async def test_a_head_whose_client_left_before_its_body_is_not_forwarded(tmp_path: Path) -> None:
    """The leader may answer it at once and still wait for the body: the next request would be taken for that (E1)."""
    headers = [(b"host", b"agents.example"), (b"content-length", b"50")]
    async with following(tmp_path) as (application, leader):
        await ask(application, b"", method="DELETE")
        left = {"type": "http.disconnect"}
        assert await ask(application, b"", headers=headers, messages=[left]) == []
        sent = await ask(application, b"", method="DELETE")
    assert sent[0]["status"] == 201
    assert [request.split()[0] for request in leader.requests] == [b"DELETE", b"DELETE"]


@pytest.mark.parametrize("path", [b"/api/v1/agents", b"/profile/v1/discover"])
async def test_a_body_that_never_begins_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    monkeypatch.setattr(limits, "BODY_READ_SECONDS", 0.1)
    headers = [(b"host", b"agents.example"), (b"content-length", b"50")]
    async with following(tmp_path) as (application, leader):
        scope = {"method": "POST", "path": path.decode(), "raw_path": path, "headers": headers}
        sent = await ask(application, b"", messages=[], **scope)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert leader.connections == 0


async def test_a_connection_with_an_answer_that_nobody_asked_for_is_not_used_again(tmp_path: Path) -> None:
    async with following(tmp_path, ANSWER + ANSWER) as (application, leader):
        for _ in range(3):
            assert len(await ask(application, b"", method="DELETE")) == 3
            await asyncio.sleep(0.05)
    assert (leader.connections, len(leader.requests)) == (3, 3)


async def test_an_unreachable_leader_process_is_a_temporary_error(tmp_path: Path) -> None:
    application = build(Settings(data=tmp_path, workers=2), slot=WorkerTable(2).slot(1))
    sent = await ask(application, b"", method="DELETE")
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"1") in sent[0]["headers"]


async def test_an_answer_without_a_body_is_whole(tmp_path: Path) -> None:
    async with following(tmp_path, b"HTTP/1.1 204 No Content\r\n\r\n") as (application, leader):
        for _ in range(2):
            sent = await ask(application, b"", method="DELETE")
            assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert leader.connections == 1


# --- On the other side ----------------------------------------------------------------------------


class RecordingApp:
    """Stands in for the service and records the scope."""

    scope: Scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope


async def test_the_forwarded_origin_is_trusted_on_the_internal_socket() -> None:
    seen = RecordingApp()
    scope = {
        "type": "http",
        "raw_path": b"/",
        "client": None,
        "scheme": "http",
        "headers": [(b"waypost-origin", b"https 4711 2001:db8::7"), (b"host", b"agents.example")],
    }
    await LeaderApp(seen, Metrics())(scope, None, None)  # type: ignore[arg-type]
    assert (seen.scope["scheme"], seen.scope["client"]) == ("https", ("2001:db8::7", 4711))
    assert seen.scope["headers"] == [(b"host", b"agents.example")]


async def test_a_client_cannot_report_metrics_of_a_process(tmp_path: Path) -> None:
    liar = Metrics()
    liar.observe("GET", "/forged", 200, 0.1)
    forged = liar.report(1, 100)
    headers = [(b"host", b"agents.example"), (b"content-length", str(len(forged)).encode())]
    async with following(tmp_path) as (application, leader):
        await ask(application, forged, headers=headers, method="POST", raw_path=b"/report", path="/report")
    passed = [tuple(line.split(b": ", 1)) for line in leader.requests[0].split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
    seen, metrics = RecordingApp(), Metrics()
    scope = {"type": "http", "raw_path": b"/report", "headers": passed}
    await LeaderApp(seen, metrics)(scope, None, None)  # type: ignore[arg-type]
    assert seen.scope["raw_path"] == b"/report"
    assert b"/forged" in liar.render_all({})
    assert b"/forged" not in metrics.render_all({})
