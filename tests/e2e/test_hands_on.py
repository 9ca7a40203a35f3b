"""What a stranger meets who does everything wrong, against a real process: each error says what, where and what to do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.raw_http import RawConnection
from support.server import RunningServer, clean_environment, running_server, start_server, stop_server
from support.service import profile
from waypost import limits
from waypost.app import mint_locally
from waypost.net.clock import ManualClock
from waypost.settings import Settings

STOP_SECONDS = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.fixture
def admin(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as client:
        yield client


def caller(server: RunningServer, subject: str, *scopes: str, now: float | None = None) -> httpx.Client:
    wanted = scopes or ("discover:read", "discover:write")
    clock = None if now is None else ManualClock(now)
    token, _ = mint_locally(Settings(data=server.data), subject, wanted, 3600, clock=clock)
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer: it says what happened, where, and what to do."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["code"] == code
    complete(told)
    return told


def complete(told: dict[str, Any]) -> None:
    for member in ("message", "path", "hint", "correlation_id"):
        assert told.get(member), f"{member} is missing: {told}"
    assert told["message"].endswith((".", "?"))
    assert "Traceback" not in told["message"]
    assert "/src/" not in json.dumps(told)


# --- Documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        pytest.param(b"", "$", "empty", id="nothing"),
        pytest.param(b'{"id": "x", "name": ', "$", "line 1", id="cut off"),
        pytest.param(b'{\n "id": "x",\n "name": nil\n}', "$", "line 3", id="not JSON"),
        pytest.param(b"id: x\nname: y\n", "$", "line 1", id="YAML"),
        pytest.param(b'{"id":"x","id":"y"}', "$.id", "twice", id="a member twice"),
        pytest.param(b'{"id":"x","a":[{"b":NaN}]}', "$.a[0].b", "NaN", id="NaN"),
        pytest.param(b'{"id":"x","n":12345678901234567890}', "$.n", "2^53", id="a number too large"),
        pytest.param(b'{"id":"\\ud800"}', "$.id", "surrogate", id="half a character"),
        pytest.param(b'{"id":"\xff"}', "$", "UTF-8", id="Latin-1"),
        pytest.param(b'\xef\xbb\xbf{"id":"x"}', "$", "byte order mark", id="byte order mark"),
        pytest.param(b'["an array"]', "$", "object", id="an array"),
        pytest.param(b'"a text"', "$", "object", id="a text"),
    ],
)
def test_broken_json_is_located(admin: httpx.Client, document: bytes, path: str, says: str) -> None:
    told = problem(admin.post("/api/v1/agents", content=document), 400, "invalid_request")
    assert told["path"] == path
    assert says in told["detail"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": 7}, "$.name"),
    ({"name": ""}, "$.name"),
    ({"description": None}, "$.description"),
    ({"tags": "finance"}, "$.tags"),
    ({"tags": ["ok", 3]}, "$.tags[1]"),
    ({"bindings": {}}, "$.bindings"),
    ({"bindings": [{"protocol": "https"}]}, "$.bindings[0].endpoint"),
    ({"bindings": [{"protocol": "https", "endpoint": "https://a b"}]}, "$.bindings[0].endpoint"),
    ({"bindings": [{"protocol": "https", "endpoint": "https://a", "priority": "high"}]}, "$.bindings[0].priority"),
    ({"examples": ["do it"]}, "$.examples[0]"),
    ({"status": "asleep"}, "$.status"),
    ({"updated_at": "yesterday"}, "$.updated_at"),
    ({"updated_at": "2999-01-01T00:00:00Z"}, "$.updated_at"),
    ({"expires_at": "2001-01-01T00:00:00Z"}, "$.expires_at"),
    ({"auth": []}, "$.auth"),
    ({"visibility": "secret"}, "$.visibility"),
    ({"id": "two words"}, "$.id"),
]


@pytest.mark.parametrize(("members", "path"), WRONG, ids=[str(members)[:40] for members, _ in WRONG])
def test_a_member_of_the_wrong_type_is_named(admin: httpx.Client, members: dict[str, Any], path: str) -> None:
    document = {**profile("wrong-type"), **members}
    told = problem(admin.post("/api/v1/agents", json=document), 400, "invalid_request")
    assert told["path"] == path


def test_a_document_of_no_dialect_is_answered_with_what_each_looks_like(admin: httpx.Client) -> None:
    told = problem(admin.post("/api/v1/agents", json={"kind": "Deployment"}), 400, "invalid_request")
    assert all(dialect in told["hint"] for dialect in ("profile", "a2a", "mcp", "rtfs"))


def test_a_dialect_that_does_not_exist_is_answered_with_the_nearest(admin: httpx.Client) -> None:
    told = problem(admin.post("/api/v1/agents?dialect=a2", json=profile()), 400, "invalid_request")
    assert "'a2a'" in told["hint"]
    told = problem(admin.get("/api/v1/agents/x", params={"as": "oafs"}), 400, "invalid_request")
    assert "'oasf'" in told["hint"]


def test_a_stale_update_names_the_mark_that_is_older(admin: httpx.Client) -> None:
    held = profile("stale", version="1.2.0", updated_at="2026-05-08T00:00:00Z")
    assert admin.post("/api/v1/agents", json=held).status_code == 201
    older = {**held, "name": "Older", "updated_at": "2026-05-07T00:00:00Z"}
    assert problem(admin.post("/api/v1/agents", json=older), 409, "stale_metadata")["path"] == "$.updated_at"
    lower = {**held, "name": "Lower", "version": "1.1.9"}
    assert problem(admin.post("/api/v1/agents", json=lower), 409, "stale_metadata")["path"] == "$.version"
    assert admin.get("/api/v1/agents/stale").json() == held


# --- Rights ---------------------------------------------------------------------------------------


def test_a_foreign_agent_is_neither_changed_nor_withdrawn(server: RunningServer, admin: httpx.Client) -> None:
    with caller(server, "alice") as alice, caller(server, "mallory") as mallory:
        assert alice.post("/api/v1/agents", json=profile("of-alice")).status_code == 201
        problem(mallory.post("/api/v1/agents", json=profile("of-alice", name="Mine")), 409, "conflict")
        problem(mallory.delete("/api/v1/agents/of-alice"), 403, "forbidden")
        problem(mallory.post("/api/v1/agents/of-alice:renew"), 403, "forbidden")
        assert alice.get("/api/v1/agents/of-alice").json()["name"] == "Minimal Agent"
        assert admin.delete("/api/v1/agents/of-alice").status_code == 204


def test_an_expired_token_is_refused_with_the_way_to_a_new_one(server: RunningServer) -> None:
    with caller(server, "late", now=time.time() - 7200) as late:
        told = problem(late.get("/api/v1/agents"), 401, "unauthorized")
        assert "expired" in told["message"]
        assert "waypost token mint" in told["hint"]


def test_a_token_from_the_future_is_refused(server: RunningServer) -> None:
    with caller(server, "early", now=time.time() + 7200) as early:
        assert "future" in problem(early.get("/api/v1/agents"), 401, "unauthorized")["message"]


@pytest.mark.parametrize("header", ["Bearer", "Bearer x.y.z", "Basic YTpi", "Bearer " + "a" * 9000, "nonsense"])
def test_a_credential_that_is_none_is_refused(server: RunningServer, header: str) -> None:
    answer = httpx.get(f"{server.url}/api/v1/agents", headers={"Authorization": header})
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_missing_scope_is_named(server: RunningServer) -> None:
    with caller(server, "reader", "discover:read") as reader:
        told = problem(reader.post("/api/v1/agents", json=profile("x")), 403, "forbidden")
        assert "discover:write" in told["message"]
        assert "--scope discover:write" in told["hint"]


def test_nobody_is_told_how_to_get_a_token(server: RunningServer) -> None:
    told = problem(httpx.post(f"{server.url}/api/v1/agents", json=profile("x")), 401, "unauthorized")
    assert "waypost token mint" in told["hint"]


def test_a_path_that_is_not_there_leads_to_the_reference(admin: httpx.Client) -> None:
    assert "/docs" in problem(admin.get("/api/v2/agents"), 404, "not_found")["hint"]


# --- Starting and stopping ------------------------------------------------------------------------


def failed_start(folder: Path, *flags: str) -> str:
    """`waypost serve` that must not start; what it said."""
    ran = subprocess.run(
        [sys.executable, "-m", "waypost", "serve", *flags],
        capture_output=True,
        text=True,
        cwd=folder,
        env=clean_environment(),
        timeout=60,
        check=False,
    )
    assert ran.returncode == 78, ran.stderr
    assert ran.stdout == ""
    assert "error: " in ran.stderr
    assert "hint: " in ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_a_port_in_use_is_a_matter_of_configuration(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = failed_start(tmp_path, "--port", str(taken.getsockname()[1]), "--data", str(tmp_path / "data"))
    assert "--port" in said


def test_a_data_folder_that_cannot_be_written_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    said = failed_start(tmp_path, "--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert "--data" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "sealed").mkdir(mode=0o500)
    assert "--data" in failed_start(tmp_path, "--port", "0", "--data", str(tmp_path / "sealed" / "data"))


def test_a_second_server_on_the_same_folder_is_refused_and_the_first_goes_on(
    server: RunningServer, admin: httpx.Client, tmp_path: Path
) -> None:
    said = failed_start(tmp_path, "--port", "0", "--data", str(server.data))
    assert str(server.process.pid) in said
    assert admin.get("/readyz").status_code == 200


def test_a_setting_that_nobody_knows_is_answered_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text("anonymus_read = true\n")
    assert "anonymous_read" in failed_start(tmp_path, "--data", str(tmp_path / "data"))


def test_an_open_service_is_refused_beyond_loopback(tmp_path: Path) -> None:
    assert "127.0.0.1" in failed_start(tmp_path, "--open", "--host", "0.0.0.0", "--data", str(tmp_path / "data"))


def test_a_signal_ends_the_service_and_its_watch_streams(tmp_path: Path) -> None:
    running = start_server(folder=tmp_path)
    try:
        with httpx.Client(base_url=running.url, headers=running.headers, timeout=30) as client:
            client.post("/api/v1/agents", json=profile("kept"))
            with client.stream("GET", "/api/v1/watch", params={"from": "0"}) as stream:
                lines = stream.iter_lines()
                assert any("kept" in line for line in lines)
                started = time.monotonic()
                running.process.send_signal(signal.SIGTERM)
                list(lines)  # ends, and does not break
                assert running.process.wait(STOP_SECONDS) == 0
                assert time.monotonic() - started < STOP_SECONDS
        assert "Traceback" not in running.log.read_text()
    finally:
        stop_server(running)


def test_what_was_acknowledged_outlives_a_power_cut(tmp_path: Path) -> None:
    running = start_server(folder=tmp_path)
    documents = [profile(f"agent-{number}", tags=["kept"], name=f"Kestrel {number}") for number in range(20)]
    with httpx.Client(base_url=running.url, headers=running.headers, timeout=30) as client:
        for document in documents:
            assert client.post("/api/v1/agents", json=document).status_code == 201
        client.post("/api/v1/agents", json=profile("leased", name="Leased"), params={"ttl_seconds": 3600})
        client.delete("/api/v1/agents/agent-0")
        first = next(line for line in _watch_lines(client, "0") if line.startswith("id: ")).removeprefix("id: ")
    token = running.admin_token
    running.kill()
    stop_server(running)
    again = start_server(folder=tmp_path, data=running.data)
    try:
        assert again.admin_token == token
        with httpx.Client(base_url=again.url, headers=again.headers, timeout=30) as client:
            listed = client.get("/api/v1/agents", params={"tag": "kept", "limit": 200}).json()["agents"]
            assert sorted(agent["id"] for agent in listed) == sorted(f"agent-{number}" for number in range(1, 20))
            assert {agent["id"]: agent for agent in listed} == {d["id"]: d for d in documents[1:]}
            found = client.post("/profile/v1/discover", json={"query": "kestrel", "limit": 100}).json()["candidates"]
            assert {hit["id"] for hit in found} == {agent["id"] for agent in listed}
            assert client.post("/api/v1/agents/leased:renew").json()["outcome"] == "refreshed"
            told = [json.loads(line[6:]) for line in _watch_lines(client, first) if line.startswith('data: {"type"')]
            assert [event["id"] for event in told][:19] == [f"agent-{number}" for number in range(1, 20)]
            assert ("withdrawn", "agent-0") in [(event["type"], event["id"]) for event in told]
    finally:
        stop_server(again)


def _watch_lines(client: httpx.Client, cursor: str) -> list[str]:
    """What a watcher hears from a cursor on, until it hears of a change that is made for this."""
    lines: list[str] = []
    mark = f"mark-{time.monotonic_ns()}"
    client.post("/api/v1/agents", json=profile(mark))
    with client.stream("GET", "/api/v1/watch", params={"from": cursor}) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if mark in line:
                return lines
    raise AssertionError("the stream ended")


# --- Bytes that are no request --------------------------------------------------------------------


def head(server: RunningServer, request: str = "POST /api/v1/agents", *headers: str) -> bytes:
    lines = (f"{request} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.admin_token}", *headers, "", "")
    return "\r\n".join(lines).encode()


def alive(server: RunningServer) -> None:
    assert httpx.get(f"{server.url}/readyz", timeout=10).status_code == 200


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
        pytest.param(b"GET /" + b"a" * 16_400 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, id="long path"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000, 431, id="header without end"),
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


def test_a_client_that_leaves_half_way_leaves_no_trace(server: RunningServer, admin: httpx.Client) -> None:
    for _ in range(20):
        with RawConnection(server.url) as connection:
            connection.send(head(server, "POST /api/v1/agents", "Content-Length: 500") + b'{"id": "left"')
    alive(server)
    assert admin.get("/api/v1/agents/left").status_code == 404
    assert "Traceback" not in server.log.read_text()


def test_a_body_that_says_that_it_is_too_long_is_not_waited_for(server: RunningServer) -> None:
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", f"Content-Length: {limits.DOCUMENT_BYTES + 1}"))
        answer = connection.answer()
    assert answer.status == 413
    complete(answer.problem)


def test_a_body_without_end_is_refused_before_it_is_read(server: RunningServer) -> None:
    part = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    most = 64 * limits.MIB
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", "Transfer-Encoding: chunked"))
        taken = connection.send_until_refused(part, most)
        answer = connection.answer()
    assert answer.status == 413
    complete(answer.problem)
    assert taken < most / 2  # what the sockets on both sides hold, not what was sent
    alive(server)


def test_a_body_within_the_bound_is_read_however_it_is_cut(server: RunningServer, admin: httpx.Client) -> None:
    document = json.dumps(profile("in-pieces")).encode()
    with RawConnection(server.url) as connection:
        connection.send(head(server, "POST /api/v1/agents", "Transfer-Encoding: chunked", "Connection: close"))
        for index in range(len(document)):
            connection.send(b"1\r\n" + document[index : index + 1] + b"\r\n")
        connection.send(b"0\r\n\r\n")
        assert connection.answer().status == 201
    assert admin.get("/api/v1/agents/in-pieces").json() == profile("in-pieces")


def test_many_silent_connections_do_not_keep_others_from_being_answered(server: RunningServer) -> None:
    silent = [RawConnection(server.url) for _ in range(200)]
    try:
        for connection in silent[::2]:
            connection.send(b"GET /healthz HTTP/1.1\r\n")
        alive(server)
    finally:
        for connection in silent:
            connection.socket.close()


def test_a_watcher_that_never_reads_does_not_stop_the_others(server: RunningServer, admin: httpx.Client) -> None:
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
        with httpx.Client(base_url=server.url, headers=server.headers, timeout=30) as writer:
            for number in range(20):
                writer.post("/api/v1/agents", json=profile("noisy", description="x" * 4000, version=f"1.{number}.0"))
            writer.post("/api/v1/agents", json=profile("the-last-one"))
        thread.join(20)
        assert not thread.is_alive()


def _until(holds: Any, seconds: float = 20.0) -> None:
    """A bounded poll."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)
