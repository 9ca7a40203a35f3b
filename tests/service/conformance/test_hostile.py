"""A hostile server costs a run no more than its bounds, and the report says what was wrong."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from support.hostile_server import Handler, HostileServer, Visitor
from support.server import clean_environment
from support.shell import Shell
from waypost import limits
from waypost.conformance import ConformanceReport, run
from waypost.conformance.rules import load_rules
from waypost.errors import InvalidParameter, Unavailable

PAGE = b"<!doctype html><title>Nothing</title>"
SECONDS = 0.3  # for one request


def check(
    handler: Handler, *specs: str, write: bool = False, **options: float
) -> tuple[ConformanceReport, HostileServer]:
    """Run against a server. Whatever it does, the bounds hold."""
    with HostileServer(handler).running() as server:
        report = run(server.url, specs=specs, write=write, timeout=SECONDS, **{"max_seconds": 60, **options})
    assert report.used.requests <= limits.CONFORMANCE_REQUESTS + limits.CONFORMANCE_CLEANUP_REQUESTS
    assert report.used.seconds <= report.bounds.seconds
    assert len(server.requests) <= report.used.requests + report.used.websockets
    return report, server


def messages(report: ConformanceReport) -> str:
    return " ".join(result.message for result in report.results)


def on_wellknown(handler: Handler) -> Handler:
    """Behave on all paths but the first page."""

    async def answer(visitor: Visitor) -> None:
        await (visitor.answer(body=PAGE, kind="text/html") if visitor.path == "/" else handler(visitor))

    return answer


async def endless(visitor: Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"[" * 65_536 + b"\r\n"
    while True:
        await visitor.send(chunk)


async def drip(visitor: Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ")
    while True:
        await visitor.send(b"x")
        await asyncio.sleep(0.02)


async def large_head(visitor: Visitor) -> None:
    await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    for number in range(1000):
        await visitor.send(b"X-%d: %s\r\n" % (number, b"x" * 10_000))
    await visitor.send(b"Content-Length: 2\r\n\r\n{}")


async def garbage(visitor: Visitor) -> None:
    await visitor.send(b"SMTP 220 hello\r\n\r\n\x00\xff\xfe")


async def nothing(visitor: Visitor) -> None:
    raise ConnectionError


def test_a_body_without_an_end_is_cut_off() -> None:
    report, _ = check(endless, "af", "adp")
    assert report.failures
    assert "does not end within" in messages(report) or "no complete answer" in messages(report)
    assert report.used.bytes <= limits.CONFORMANCE_TOTAL_BYTES + limits.MIB


def test_an_answer_that_drips_is_given_up_and_the_rest_left_out() -> None:
    report, server = check(on_wellknown(drip))
    assert "no complete answer within 0.3 seconds" in messages(report)
    causes = {result.cause for result in report.results if result.status == "untested"}
    assert "bound" in causes
    assert len(server.requests) < 60


def test_headers_of_10_mb_are_refused() -> None:
    report, _ = check(on_wellknown(large_head), "af", "profile")
    assert report.failures
    assert "no valid answer" in messages(report)


@pytest.mark.parametrize("handler", [garbage, nothing], ids=["another protocol", "closed connections"])
def test_what_is_no_http_is_named(handler: Handler) -> None:
    report, _ = check(on_wellknown(handler), "af", "rtfs", "announce")
    assert report.failures
    assert "no valid answer" in messages(report)


def test_a_service_that_never_answers_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="no complete answer within"):
        check(drip)


def test_redirects_are_reported_and_not_followed() -> None:
    with HostileServer(nothing).running() as elsewhere:

        async def redirect(visitor: Visitor) -> None:
            place = f"{elsewhere.url}/stolen" if "agent" in visitor.path else visitor.path
            await visitor.answer(302, more=f"Location: {place}\r\n")

        report, _ = check(redirect, write=True)
        assert elsewhere.connections == 0
    assert report.recognised == ()
    assert not report.ok
    assert any("Redirects are not followed" in note for note in report.notes)


def test_links_to_other_hosts_are_not_followed() -> None:
    with HostileServer(nothing).running() as elsewhere:
        document = {
            "protocol": "ADP/1.1",
            "identity": {"id": "agent:a.example", "domain": "a.example", "name": "A", "publicKey": {}},
            "endpoints": {
                "wellKnown": f"{elsewhere.url}/.well-known/agent.json",
                "chat": f"ws{elsewhere.url.removeprefix('http')}/chat",
                "tasks": f"{elsewhere.url}/tasks",
                "swarm": f"{elsewhere.url}/join",
            },
            "capabilities": [],
            "specVersion": "1.0",
            "entries": [{"type": "application/ai-registry+json", "url": f"{elsewhere.url}/ard"}],
            "type": f"{elsewhere.url}/problem",
        }

        async def link(visitor: Visitor) -> None:
            await visitor.answer(404 if "unknown" in visitor.path else 200, json.dumps(document).encode())

        report, _ = check(link, "adp", "ard", write=True)
        assert elsewhere.connections == 0
    assert report.result("ADP-36").cause == "not_observable"
    assert "another origin" in report.result("ADP-36").message


@pytest.mark.parametrize(
    "body",
    [
        b'{"agents": [',
        b'{"agents": [], "agents": [{}]}',
        b'{"agents": NaN}',
        b'{"agents": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"null",
        b'"ADP/1.1 protocol_version jsonrpc servers results"',
        b'{"agents": [null, 5, "x"], "candidates": {"a": 1}, "jsonrpc": 1, "result": [], "protocol_version": [], "entries": 1}',
        b'{"agents": [{"id": 5, "agent": 7, "name": []}], "servers": [[]], "results": [{}], "candidates": [{"id": {}}], '
        b'"identity": [], "endpoints": 5, "capabilities": {}, "protocol": "ADP/1.1", "jsonrpc": "2.0", "error": 5}',
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)
def test_wrong_json_fails_requirements_and_nothing_else(body: bytes) -> None:
    async def answer(visitor: Visitor) -> None:
        await visitor.answer(200, body, more='ETag: "x"\r\n')

    report, _ = check(answer)
    assert report.failures
    assert len(report.results) == sum(len(specification.rules) for specification in load_rules().values())


def test_pages_without_an_end_are_read_to_a_bound() -> None:
    numbers = itertools.count()

    async def answer(visitor: Visitor) -> None:
        number = next(numbers)
        agent = {"agent_id": f"00000000-0000-4000-8000-{number:012d}", "capabilities": {}, "transport": {}}
        page = {
            "protocol_version": "v1.0",
            "agents": [{"agent": agent, "matched": True, "protocol_version": "v1.0", "id": f"a{number}", "name": "A"}],
            "next_cursor": f"c{number}",
            "servers": [{"server": {"name": f"a/{number}", "version": "1"}, "_meta": {}}],
            "metadata": {"nextCursor": f"c{number}"},
            "results": [{"identifier": f"urn:air:a.example:{number}"}],
            "items": [],
            "pageToken": f"c{number}",
        }
        await visitor.answer(200, json.dumps(page).encode())

    report, server = check(answer)
    assert len(server.requests) < limits.CONFORMANCE_REQUESTS
    assert report.result("ANN-34").status != "untested"


def test_the_pause_that_a_service_asks_for_is_kept_within_the_bound() -> None:
    async def busy(visitor: Visitor) -> None:
        await visitor.answer(429, b"{}", more="Retry-After: 100000\r\n")

    report, server = check(on_wellknown(busy))
    assert report.recognised == ()
    assert "the service limits its callers" in report.specifications[0].found
    assert "has waited as long as it may" in report.specifications[1].found
    assert len(server.requests) == 2  # nothing more is sent to a service that asks for a long pause


def test_a_short_pause_is_kept_and_the_request_repeated() -> None:
    seen: set[str] = set()

    async def busy_once(visitor: Visitor) -> None:
        if visitor.path in seen:
            await visitor.answer(200, b'{"agents": []}')
        else:
            seen.add(visitor.path)
            await visitor.answer(429, b"{}", more="Retry-After: 0\r\n")

    report, server = check(busy_once, "af")
    assert report.result("AF-5").status == "passed"
    assert server.requests.count("GET /.well-known/agentframework/v1/agents") >= 2


def test_wrong_json_for_everything_that_is_written_fails_and_what_was_not_removed_is_named() -> None:
    async def answer(visitor: Visitor) -> None:
        known = visitor.method in ("GET", "POST")
        body = b'{"jsonrpc": "2.0", "result": {"agents": []}}' if visitor.path == "/rtfs" else b'{"candidates": []}'
        await visitor.answer(200 if known else 500, body)

    report, _ = check(answer, "profile", "rtfs", write=True)
    assert report.result("PRO-51").status == report.result("RTFS-40").status == "failed"
    assert any(note.startswith("Cleanup: ") for note in report.notes)


ENDPOINTS = {"wellKnown": "/.well-known/agent.json", "chat": "/agent/chat"}


def _documents(connection: ServerConnection, request: Request) -> Response | None:
    """ADP metadata with the chat at this server; every other path opens a WebSocket, if it asks for one."""
    if "upgrade" in request.headers:
        return None
    origin = request.headers["host"]
    document = {
        "protocol": "ADP/1.1",
        "identity": {"id": "agent:a.example", "domain": "a.example", "name": "A", "publicKey": {}},
        "endpoints": {name: f"http://{origin}{path}" for name, path in ENDPOINTS.items()},
        "capabilities": [],
    }
    return connection.respond(200, json.dumps({"protocol_version": "v1.0", "agents": [], **document}))


def _silence(connection: ServerConnection) -> None:
    for _ in connection:
        pass


def _flood(connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            connection.send(b"\x03" + b'{"matched":true,"query_id":"q-all"}')


def _oversize(connection: ServerConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        connection.send("x" * (2 * limits.MIB))


@pytest.mark.parametrize("talk", [_silence, _flood, _oversize], ids=["silent", "floods", "sends 2 MiB"])
def test_a_websocket_that_misbehaves_fails_and_is_left(talk: Callable[[ServerConnection], None]) -> None:
    with serve(talk, "127.0.0.1", 0, process_request=_documents, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        report = run(url, specs=["announce", "adp"], timeout=SECONDS, max_seconds=60)
        server.shutdown()
        thread.join(30)
    assert report.result("ANN-36").status == "failed"
    assert report.used.websockets <= limits.CONFORMANCE_SOCKETS
    assert report.used.seconds <= report.bounds.seconds


def test_a_page_for_every_path_is_recognised_as_nothing(tmp_path: Path) -> None:
    async def page(visitor: Visitor) -> None:
        await visitor.answer(body=PAGE, kind="text/html")

    with HostileServer(page).running() as server:
        ran = Shell(tmp_path, clean_environment())("conformance", server.url)
    assert ran.code == 1
    assert "Nothing was recognised" in ran.out


def test_control_characters_of_a_stranger_never_reach_the_terminal(tmp_path: Path) -> None:
    async def escape(visitor: Visitor) -> None:
        await visitor.answer(200, b'{"agents": [{"id": "\x1b[31m\xe2\x80\xae", "name": "\x1b]0;x\x07"}]}')

    with HostileServer(escape).running() as server:
        shell = Shell(tmp_path, clean_environment())
        ran = shell("conformance", server.url, "--all", "--junit", "report.xml")
    assert ran.code == 1
    assert "\x1b" not in ran.out + ran.err
    assert b"\x1b" not in (tmp_path / "report.xml").read_bytes()


def test_no_service_is_exit_code_69(tmp_path: Path) -> None:
    ran = Shell(tmp_path, clean_environment())("conformance", "http://127.0.0.1:1", "-o", "json")
    assert ran.code == 69
    assert json.loads(ran.err)["error"]["message"].startswith("http://127.0.0.1:1 cannot be checked")


@pytest.mark.parametrize(
    "url",
    ["ftp://a.example", "http://", "http://u:p@a.example", "http://a.example/?q", "http://a b/", "http://a:99999/"],
)
def test_an_address_that_cannot_be_used_is_a_usage_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="cannot be checked"):
        run(url)
    assert Shell(tmp_path, clean_environment())("conformance", url).code == 64
