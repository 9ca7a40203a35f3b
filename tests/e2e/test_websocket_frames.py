"""Raw bytes at `/ws` of a real service (THREATS W1–W5, W7; tests/vectors/websocket_frames.json)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.server import RunningServer, running_server
from support.vectors import load_own_vectors
from support.websocket_clients import OPCODE_BINARY, OPCODE_CLOSE, RawSocket

VECTORS: dict[str, Any] = load_own_vectors("websocket_frames")
CASES = {case["name"]: case for case in VECTORS["cases"]}
HANDSHAKES = {case["name"]: case for case in VECTORS["handshake"]}
HUGE = "declared 1 TiB frame, no data"
WANTED = {  # close codes; none: a STATUS, and the session goes on
    HUGE: 1009,
    "invalid utf-8 text": 1007,
    "type byte 0x00 (spec 003 framing)": None,
    "type byte 0x04 unknown": None,
    "type byte 0x01 with empty body": None,
    "10000 empty fragments": 1008,
}
REFUSED = {
    "Origin of another site with cookie or ambient auth": 403,
    "no token": 401,
    "token in query string": 401,
    "wrong subprotocol": 400,
    "version 12": 426,
    "Host not in allow-list (rebinding)": 421,
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory") as started:
        with RawSocket(started.url, started.headers) as first:  # memory that is allocated once is not counted below
            first.message(b"\x09{}")
            first.status_message()
        yield started


def resident_bytes(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("name", sorted(CASES))
def test_bytes_that_are_no_good_frames_end_as_they_must(server: RunningServer, name: str) -> None:
    """W3, W7."""
    case = CASES[name]
    data = bytes.fromhex(case.get("prefix", "")) + (
        bytes.fromhex(case["repeat"][0]) * case["repeat"][1] if "repeat" in case else bytes.fromhex(case["hex"])
    )
    before = resident_bytes(server.process.pid)
    with RawSocket(server.url, server.headers) as raw:
        assert raw.status == 101
        assert raw.headers["sec-websocket-protocol"] == "agent-discovery"
        with suppress(BrokenPipeError, ConnectionResetError):  # closed before all of it was read
            raw.send(data)
        wanted = WANTED.get(name, 1002)
        if wanted is None:
            assert raw.status_message()["code"] == "ErrMalformedPayload"
            raw.message(b'\x02{"protocol_version":"v1.0","query":{"capability":"*"}}')
            assert raw.status_message()["status"] == "done"
            return
        closing = raw.frame()
        assert closing is not None
        assert closing.opcode == OPCODE_CLOSE
        assert closing.close_code == wanted
    if name == HUGE:
        assert resident_bytes(server.process.pid) - before < 2 * 1024 * 1024


@pytest.mark.parametrize("name", sorted(HANDSHAKES))
def test_a_handshake_that_is_not_welcome_is_refused_before_the_upgrade(server: RunningServer, name: str) -> None:
    """W1, W2."""
    case = HANDSHAKES[name]
    headers = dict(case.get("headers", {}))
    path = "/ws"
    if name == "token in query string":
        path += f"?token={server.admin_token}&access_token={server.admin_token}"
    elif name != "no token":
        headers |= server.headers
    with RawSocket(server.url, headers, path) as raw:
        assert raw.status == REFUSED[name]
        problem = raw.body()
        assert problem["error"]["code"].startswith("Err")
        assert problem["hint"]
        if raw.status == 426:
            assert raw.headers["sec-websocket-version"] == "13"
        if raw.status == 401:
            assert raw.headers["www-authenticate"].startswith("Bearer")
    assert server.admin_token not in server.log.read_text()


def test_refusals_write_no_errors_to_the_log(server: RunningServer) -> None:
    """H15: repeated refusals do not fill the log."""
    for path in ("/ws", "/agent/chat"):
        for _ in range(3):
            with RawSocket(server.url, {"Origin": "https://elsewhere.example"}, path) as raw:
                assert raw.status in (401, 403)
                raw.body()
    with RawSocket(server.url, server.headers) as raw:  # by now everything is written
        assert raw.status == 101
    assert "handshake" not in server.log.read_text()


def test_compression_is_not_agreed_to(server: RunningServer) -> None:
    """W4."""
    with RawSocket(server.url, {**server.headers, "Sec-WebSocket-Extensions": "permessage-deflate"}) as raw:
        assert raw.status == 101
        assert "sec-websocket-extensions" not in raw.headers


def test_a_flood_of_messages_ends_the_session(server: RunningServer) -> None:
    """W5."""
    with RawSocket(server.url, server.headers) as raw:
        for _ in range(150):
            try:
                raw.message(b'\x02{"protocol_version":"v1.0","query":{"capability":"*"}}')
            except (BrokenPipeError, ConnectionResetError):
                break
        answered = 0
        while (frame := raw.frame()) is not None and frame.opcode == OPCODE_BINARY:
            answered += 1
        assert frame is not None
        assert frame.close_code == 1008
        assert answered <= 110


def test_a_flood_of_pings_ends_the_session(server: RunningServer) -> None:
    with RawSocket(server.url, server.headers) as raw:
        raw.send(b"\x89\x80\0\0\0\0" * 300)
        while (frame := raw.frame()) is not None and frame.opcode != OPCODE_CLOSE:
            pass
        assert frame is not None
        assert frame.close_code == 1008


def test_a_message_that_is_too_long_is_refused_by_its_header(server: RunningServer) -> None:
    with RawSocket(server.url, server.headers) as raw:
        raw.send(b"\x82\xff" + (64 * 1024 + 1).to_bytes(8, "big") + bytes(4))
        closing = raw.frame()
        assert closing is not None
        assert closing.close_code == 1009


def test_a_plain_request_gets_426_and_other_paths_are_no_websockets(server: RunningServer) -> None:
    with RawSocket(server.url, {**server.headers, "Upgrade": None, "Connection": "close"}) as raw:
        assert raw.status == 426
    with RawSocket(server.url, server.headers, "/api/v1/agents") as raw:
        assert raw.status == 200


def test_a_session_whose_messages_are_refused_again_and_again_ends(server: RunningServer) -> None:
    with RawSocket(server.url, server.headers) as raw:
        for _ in range(16):
            raw.message(b"\x09{}")
            assert raw.status_message()["code"] == "ErrMalformedPayload"
        closing = raw.frame()
        assert closing is not None
        assert closing.close_code == 4400
