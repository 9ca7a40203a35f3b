"""Malformed, incomplete and endless requests on a real socket: answered if possible, survived always."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

import httpx2
import pytest

from support.problems import complete
from support.raw_http import RawConnection
from support.server import RunningServer, running_server
from support.service import profile
from waypost import limits


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.fixture
def admin(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        yield client


# --- Bytes that are no request --------------------------------------------------------------------


def head(server: RunningServer, request: str = "POST /api/v1/agents", *headers: str) -> bytes:
    lines = (f"{request} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.admin_token}", *headers, "", "")
    return "\r\n".join(lines).encode()


def alive(server: RunningServer) -> None:
    assert httpx2.get(f"{server.url}/readyz", timeout=60).status_code == 200


def test_the_service_as_a_whole_names_its_methods(server: RunningServer) -> None:
    with RawConnection(server.url) as connection:
        connection.send_until_refused(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 1)
        answer = connection.answer()
    assert answer.status == 204
    assert answer.headers["allow"].split(", ") == ["delete", "get", "head", "post", "put", "options"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("FROB /api/v1/agents HTTP/1.1", 501),
        ("BREW /nowhere HTTP/1.0", 501),
        ("get /healthz HTTP/1.1", 501),  # methods are case-sensitive
        ("DESCRIBE /healthz HTTP/1.1", 501),  # of RTSP
        ("PROPFIND /healthz HTTP/1.1", 405),
        ("FR(OB /healthz HTTP/1.1", 400),
        ("GET: /healthz HTTP/1.1", 400),
        ("FROB  /healthz HTTP/1.1", 400),
        ("FROB /healthz HTTP/1.1 ", 400),
        ("FROB /healthz", 400),
        ("PRI * HTTP/2.0", 400),
    ],
)
def test_an_unknown_method_is_told_from_a_malformed_one(server: RunningServer, line: str, status: int) -> None:
    with RawConnection(server.url) as connection:
        connection.send_until_refused(f"{line}\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), 1)
        answer = connection.answer()
    assert answer.status == status
    complete(answer.problem)
    if status == 501:
        assert (answer.problem["path"], answer.problem["title"]) == ("method", "Method not implemented")
    alive(server)


def test_an_encoded_body_is_refused_and_the_connection_ends(server: RunningServer) -> None:
    encoded = head(server, "POST /api/v1/agents", "Content-Encoding: br", "Content-Length: 9") + b"GET / HTT"
    with RawConnection(server.url) as connection:
        connection.send_until_refused(encoded, 1)
        answer = connection.answer()
    assert (answer.status, answer.headers["accept-encoding"], answer.headers["connection"]) == (
        415,
        "identity",
        "close",
    )
    complete(answer.problem)
    alive(server)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"\x00\x01\x02\xff\xfe\r\n\r\n", 400, id="garbage"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="TLS to a plain port"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"GET /healthz HTTP/1.1\nHost: x\n\n", 400, id="bare line feeds"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two hosts"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 16_400 + b"\r\n\r\n", 431, id="long header"),
        pytest.param(b"GET /" + b"a" * 16_400 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="long path"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000, 431, id="header without end"),
        pytest.param(b"GET /healthz?" + b"a" * 16_400 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, id="long query"),
        pytest.param(b"GET /healthz?" + b"a" * 200_000, 414, id="query without end"),
        pytest.param(b"GET /" + b"a" * 200_000, 414, id="path without end"),
    ],
)
def test_bytes_that_are_no_request_are_refused(server: RunningServer, sent: bytes, status: int) -> None:
    with RawConnection(server.url) as connection:
        connection.send_until_refused(sent, 1)
        answer = connection.answer()
    assert answer.status == status
    complete(answer.problem)
    assert answer.headers["x-request-id"] == answer.problem["correlation_id"]
    alive(server)


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        pytest.param("Cookie: " + "a" * 20_000, 431, id="long head"),
        pytest.param("Content-Length: x", 400, id="broken length"),
        pytest.param("Host: another", 400, id="two hosts"),
    ],
)
def test_a_browser_gets_a_page_for_a_broken_request(server: RunningServer, broken: str, status: int) -> None:
    accept = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"
    with RawConnection(server.url) as connection:
        connection.send_until_refused(head(server, "GET /<b>", accept, broken), 1)
        answer = connection.answer()
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert answer.headers["x-request-id"].encode() in answer.body
    assert b"<b>" not in answer.body
    alive(server)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param(("Content-Length: 6", "Transfer-Encoding: chunked"), b"0\r\n\r\nG", id="length and chunks"),
        pytest.param(("Transfer-Encoding: chunked", "Content-Length: 6"), b"0\r\n\r\nG", id="chunks and length"),
        pytest.param(("Content-Length: 2", "Content-Length: 3"), b"{}x", id="two lengths"),
        pytest.param(("Content-Length: -1",), b"", id="negative length"),
        pytest.param(("Content-Length: 0x2",), b"{}", id="hexadecimal length"),
        pytest.param(("Content-Length: 99999999999999999999",), b"{}", id="length beyond any number"),
        pytest.param(("Transfer-Encoding : chunked",), b"0\r\n\r\n", id="space before the colon"),
        pytest.param(("Transfer-Encoding: xchunked",), b"{}", id="unknown coding"),
        pytest.param(("Transfer-Encoding: chunked",), b"zz\r\n{}\r\n0\r\n\r\n", id="chunk without a size"),
        pytest.param(("X-Folded: a", " b"), b"", id="folded header"),
    ],
)
def test_a_request_that_two_readers_would_cut_differently_is_refused(
    server: RunningServer, headers: tuple[str, ...], body: bytes
) -> None:
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", *headers) + body)
        connection.send_until_refused(b"GET /healthz HTTP/1.1\r\nHost: smuggled\r\n\r\n", 1)
        received = connection.read_all()
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", received) == [b"400"]
    alive(server)


def test_garbage_after_a_request_ends_the_connection_and_nothing_else(server: RunningServer) -> None:
    with RawConnection(server.url) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n\xff\xfe what is this\r\n\r\n")
        received = connection.read_all()
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", received) in ([], [b"200"], [b"200", b"400"])
    alive(server)


def test_requests_in_a_row_are_answered_in_a_row(server: RunningServer) -> None:
    with RawConnection(server.url) as connection:
        for path in ("/healthz", "/nowhere", "/healthz"):
            connection.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        connection.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = connection.read_all()
    statuses = [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200", b"200"]


def test_an_upgrade_that_is_not_offered_is_answered_as_a_plain_request(server: RunningServer) -> None:
    upgrade = (
        "Connection: Upgrade, close",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: eA==",
    )
    with RawConnection(server.url) as connection:
        connection.send(head(server, "GET /healthz", *upgrade))
        assert connection.answer().status == 200
    assert "pip install" not in server.log.read_text()


# --- Bodies that do not come, or do not end -------------------------------------------------------


SLOW = {
    "half a body": ("POST /api/v1/agents", b'{"id": "half'),
    "no body": ("POST /api/v1/agents", b""),
    "half a batch": ("POST /api/v1/agents:batch", b'{"id": "half'),
    "half a call": ("POST /rtfs", b'{"jsonrpc": "2.0"'),
}


def test_a_request_that_stops_half_way_gets_an_answer_and_the_service_lives(server: RunningServer) -> None:
    """All at once, since each takes as long as the service waits for a body."""
    with RawConnection(server.url) as half_head:
        half_head.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        connections = {name: RawConnection(server.url) for name in SLOW}
        try:
            for name, connection in connections.items():
                request, body = SLOW[name]
                headers = ("Content-Type: application/json", "Content-Length: 1000")
                connection.send(head(server, request, *headers) + body)
            alive(server)
            refused = half_head.answer()
            assert refused.status == 408
            complete(refused.problem)
            for name, connection in connections.items():
                answer = connection.answer()
                assert answer.status == 408, name
                told = json.loads(answer.body)
                assert str(limits.BODY_READ_SECONDS) in (told.get("message") or told["error"]["message"])
        finally:
            for connection in connections.values():
                connection.socket.close()
    alive(server)


def test_a_client_that_disconnects_during_a_request_changes_nothing(
    server: RunningServer, admin: httpx2.Client
) -> None:
    for _ in range(20):
        with RawConnection(server.url) as connection:
            connection.send(head(server, "POST /api/v1/agents", "Content-Length: 500") + b'{"id": "left"')
    alive(server)
    assert admin.get("/api/v1/agents/left").status_code == 404
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("path", "most"), [("/api/v1/agents", limits.DOCUMENT_BYTES), ("/api/v1/agents:batch", limits.BATCH_BYTES)]
)
def test_an_oversized_content_length_is_refused_at_once(
    server: RunningServer, admin: httpx2.Client, path: str, most: int
) -> None:
    document = json.dumps(profile("too-long")).encode() + b"\n"
    with RawConnection(server.url) as connection:
        connection.send(head(server, f"POST {path}", f"Content-Length: {most + 1}") + document)
        answer = connection.answer()
    assert answer.status == 413
    complete(answer.problem)
    assert admin.get("/api/v1/agents/too-long").status_code == 404


def test_an_oversized_request_with_expect_continue_is_refused_at_once(server: RunningServer) -> None:
    """H1."""
    headers = (f"Content-Length: {limits.DOCUMENT_BYTES + 1}", "Expect: 100-continue")
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", *headers))
        received = connection.read_all()
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", received) == [b"413"]
    alive(server)


def test_a_body_without_end_is_refused_before_it_is_read(server: RunningServer) -> None:
    part = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    most = 64 * limits.MIB
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", "Transfer-Encoding: chunked"))
        taken = connection.send_until_refused(part, most)
        answer = connection.answer()
    assert answer.status == 413
    complete(answer.problem)
    assert taken < most / 2  # the socket buffers on both sides, not all bytes that were sent
    alive(server)


def test_a_body_within_the_bound_is_read_however_it_is_cut(server: RunningServer, admin: httpx2.Client) -> None:
    document = json.dumps(profile("in-pieces")).encode()
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", "Transfer-Encoding: chunked", "Connection: close"))
        for index in range(len(document)):
            connection.send(b"1\r\n" + document[index : index + 1] + b"\r\n")
        connection.send(b"0\r\n\r\n")
        assert connection.answer().status == 201
    assert admin.get("/api/v1/agents/in-pieces").json() == profile("in-pieces")


def test_many_silent_connections_do_not_keep_others_from_being_answered(server: RunningServer) -> None:
    silent = [RawConnection(server.url) for _ in range(500)]
    try:
        for connection in silent[::2]:
            connection.send(b"GET /healthz HTTP/1.1\r\n")
        alive(server)
    finally:
        for connection in silent:
            connection.socket.close()


def test_a_watcher_that_never_reads_does_not_stop_the_others(server: RunningServer, admin: httpx2.Client) -> None:
    with RawConnection(server.url) as deaf:
        deaf.send(head(server, "GET /api/v1/watch?from=0&include=agent"))
        deaf.read_until(b"watching")
        heard: list[str] = []

        def listen() -> None:
            with admin.stream("GET", "/api/v1/watch") as stream:
                for line in stream.iter_lines():
                    heard.append(line)
                    if "the-last-one" in line:
                        return

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        _until(lambda: any("watching" in line for line in heard))
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as writer:
            for number in range(20):
                writer.post("/api/v1/agents", json=profile("noisy", description="x" * 4000, version=f"1.{number}.0"))
            writer.post("/api/v1/agents", json=profile("the-last-one"))
        thread.join(60)
        assert not thread.is_alive()


def _until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """A bounded poll."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_an_oversized_body_is_answered_with_the_reason(admin: httpx2.Client) -> None:
    """The answer comes before the body has ended; a connection that is closed at once would take it along."""
    for _ in range(5):
        answer = admin.post("/api/v1/agents", content=b"x" * 6_000_000)
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"


# --- What every answer tells ----------------------------------------------------------------------


def test_a_change_is_not_newer_than_the_answer_that_tells_it(admin: httpx2.Client) -> None:
    """RFC 9110 §8.8.2.1, at once after each of many changes."""
    for at in range(20):
        admin.put("/profile/v1/agents/dated", json=profile("dated", description=f"Version {at}."))
        headers = admin.get("/profile/v1/agents/dated").headers
        assert parsedate_to_datetime(headers["last-modified"]) <= parsedate_to_datetime(headers["date"])
