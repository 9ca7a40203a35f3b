"""The log of requests: one line each, with route and request id, without paths, queries and credentials."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import running_server
from support.service import profile, service
from support.websocket_clients import socket_service
from support.worker_processes import both, wait_for
from waypost import limits
from waypost.cli.commands.service.serve import JsonFormatter, TextFormatter
from waypost.model.json import parse_object
from waypost.server.http.admission import OverloadResponse
from waypost.server.http.request_log import RequestLog

MEMBERS = {"method", "route", "status", "milliseconds", "bytes", "request_id", "subject"}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [record.__dict__["fields"] for record in self.records]

    @property
    def text(self) -> str:
        return "".join(f"{TextFormatter().format(each)}\n{JsonFormatter().format(each)}\n" for each in self.records)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("waypost.access")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_every_request_is_one_line_with_the_route_and_not_the_path(tmp_path: Path, lines: Lines) -> None:
    async with service(tmp_path, access_log=True) as bench:
        alice = bench.as_("alice")
        await alice.post("/api/v1/agents", json=profile("urn:example:hidden-name"))
        found = await alice.get("/api/v1/agents/urn:example:hidden-name", headers={"X-Request-Id": "mine"})
        await alice.post("/profile/v1/discover", json={"query": "canaryquery"})
        await alice.get("/.well-known/agentframework/v1/agents/urn%3Aexample%3Ahidden-name")
        await alice.get("/agents", params={"capability": "canaryquery"})
        await bench.anonymous().get("/no/such/canarypath", params={"token": "canarytoken"})
        await bench.client("canary.token.value").get("/api/v1/agents?q=canaryquery")
    assert [(row["method"], row["route"], row["status"], row["subject"]) for row in lines.fields] == [
        ("POST", "/api/v1/agents", 201, "alice"),
        ("GET", "/api/v1/agents/{id}", 200, "alice"),
        ("POST", "/profile/v1/discover", 200, "alice"),
        ("GET", "/.well-known/agentframework/v1/agents/{id}", 200, "alice"),
        ("GET", "/agents", 200, "alice"),
        ("GET", "unmatched", 404, "-"),
        ("GET", "/api/v1/agents", 401, "-"),
    ]
    assert lines.fields[1]["request_id"] == "mine"
    assert lines.fields[1]["bytes"] == len(found.content)
    assert all(row.keys() == MEMBERS and row["milliseconds"] >= 0 for row in lines.fields)
    assert "canary" not in lines.text
    assert "hidden-name" not in lines.text


async def test_without_the_access_log_only_errors_are_written_with_their_correlation_id(
    tmp_path: Path, lines: Lines
) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").get("/api/v1/agents")
        answers = [
            await bench.anonymous().get("/api/v1/agents"),
            await bench.as_("alice").get("/api/v1/agents/nobody"),
            await bench.as_("alice").post("/api/v1/agents", content=b"{"),
            await bench.as_("alice").get("/.well-known/agentframework/v1/agents/nobody"),
            await bench.as_("alice").get("/agents/not-an-id"),
        ]
    assert [row["request_id"] for row in lines.fields] == [answer.json()["correlation_id"] for answer in answers]
    assert [row["status"] for row in lines.fields] == [answer.status_code for answer in answers]


def test_errors_cannot_fill_the_log_unless_every_request_is_logged(lines: Lines) -> None:
    now = 0.0
    log = RequestLog(now=lambda: now)

    def answer(status: int) -> None:
        log.write({"method": "GET"}, route="/x", status=status, seconds=0.1, body_bytes=0, request_id="r")

    for _ in range(limits.LOGGED_ERRORS_PER_MINUTE + 50):
        answer(404)
    assert len(lines.records) == limits.LOGGED_ERRORS_PER_MINUTE
    now = 60.0
    answer(500)
    assert lines.fields[-1]["errors_not_logged"] == 50
    log.logs_all = True
    for _ in range(limits.LOGGED_ERRORS_PER_MINUTE + 50):
        answer(200)
    assert len(lines.records) == 2 * limits.LOGGED_ERRORS_PER_MINUTE + 51


def test_a_value_cannot_forge_a_field_or_a_line(lines: Lines) -> None:
    log = RequestLog(logs_all=True)
    scope = {"method": "GET", "waypost.caller": {"subject": 'a status=200 "x"\nINFO forged'}}
    log.write(scope, route="/x", status=404, seconds=0.00126, body_bytes=7, request_id="a b")
    text = TextFormatter().format(lines.records[0])
    assert len(text.splitlines()) == 1
    assert text.endswith(
        "method=GET route=/x status=404 milliseconds=1.3 bytes=7 "
        r'request_id="a b" subject="a status=200 \"x\"\nINFO forged"'
    )
    told = parse_object(JsonFormatter().format(lines.records[0]).encode())
    assert (told["status"], told["request_id"], told["logger"]) == (404, "a b", "waypost.access")


async def test_a_websocket_is_one_line_at_its_end(tmp_path: Path, lines: Lines) -> None:
    async with socket_service(tmp_path, access_log=True) as sockets:
        session = await sockets.session("alice", headers={"X-Request-Id": "session-1"})
        await session.send(1, {"agent": {}})
        await session.next()
        assert lines.records == []
        await session.connection.close()
        for _ in range(400):
            if lines.records:
                break
            await asyncio.sleep(0.05)
    (row,) = lines.fields
    assert (row["route"], row["status"], row["subject"], row["request_id"]) == ("/ws", 101, "alice", "session-1")
    assert row["bytes"] > 0


async def test_a_refused_websocket_is_one_line(tmp_path: Path, lines: Lines) -> None:
    async with socket_service(tmp_path, access_log=True) as sockets:
        with pytest.raises(Exception, match="401"):
            await sockets.session_with("x.y.z")
    assert [(row["route"], row["status"]) for row in lines.fields] == [("/ws", 401)]


def test_every_process_writes_the_lines_of_its_requests_as_json() -> None:
    flags = ("--workers", "2", "--access-log", "--log-format", "json", "--log-level", "error")
    with running_server(*flags) as server, both(server) as (writer, follower):
        for number, http in enumerate((writer, follower)):
            http.get("/api/v1/agents", headers={"X-Request-Id": f"read-{number}"})
            http.post(
                "/api/v1/agents", json=profile(f"urn:example:{number}"), headers={"X-Request-Id": f"write-{number}"}
            )
            with http.stream("GET", "/api/v1/watch", headers={"X-Request-Id": f"watch-{number}"}) as stream:
                next(stream.iter_raw())

        def logged() -> list[dict[str, Any]]:
            rows = [parse_object(line.encode()) for line in server.log.read_text().splitlines() if line[:1] == "{"]
            mine = [row for row in rows if str(row.get("request_id")).startswith(("read-", "write-", "watch-"))]
            return mine if len(mine) >= 6 else []

        rows = wait_for(logged)
    assert sorted(row["request_id"] for row in rows) == [
        "read-0", "read-1", "watch-0", "watch-1", "write-0", "write-1"
    ]  # fmt: skip
    assert {row["subject"] for row in rows} == {"admin"}
    assert {row["request_id"]: row["status"] for row in rows}["write-1"] == 201
    assert len({row["process"] for row in rows}) == 2


async def test_a_broken_request_is_logged_with_its_correlation_id(tmp_path: Path, lines: Lines) -> None:
    async with socket_service(tmp_path) as sockets:
        host, port = sockets.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        answer = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")[2]
        writer.close()
    problem = parse_object(answer)
    assert [(row["route"], row["status"], row["request_id"]) for row in lines.fields] == [
        ("refused", problem["status"], problem["correlation_id"])
    ]


async def test_a_request_shed_by_overload_is_logged_with_its_correlation_id(lines: Lines) -> None:
    answer = OverloadResponse().render(is_head=False, is_kept=True).partition(b"\r\n\r\n")[2]
    assert [(row["route"], row["status"], row["request_id"]) for row in lines.fields] == [
        ("refused", 503, parse_object(answer)["correlation_id"])
    ]
