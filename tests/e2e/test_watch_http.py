"""Watching over a real connection: server-sent events as a browser or the SDK reads them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema
import pytest

from support.server import RunningServer, running_server
from support.service import profile
from waypost.responses.agents import Change
from waypost.server.http.openapi import answer_schema


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory") as running:
        yield running


def events(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    for line in lines:
        if not line:
            if "data" in event:
                found.append(event)
                if len(found) == count:
                    return found
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
    return found


def test_changes_arrive_as_they_happen_and_a_second_connection_goes_on_from_the_cursor(server: RunningServer) -> None:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        with client.stream("GET", "/api/v1/watch", params={"include": "agent"}) as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            client.post("/api/v1/agents", json=profile("one"))
            client.post("/api/v1/agents", json=profile("two"))
            seen = events(lines, 2)
        for event in seen:
            jsonschema.validate(event["data"], answer_schema(Change))
            assert event["event"] == event["data"]["type"] == "registered"
        assert [event["data"]["agent"]["id"] for event in seen] == ["one", "two"]
        client.delete("/api/v1/agents/one")
        headers = {"Last-Event-ID": seen[0]["id"]}
        with client.stream("GET", "/api/v1/watch", params={"from": "0"}, headers=headers) as stream:
            resumed = events(stream.iter_lines(), 2)
        assert [(event["event"], event["data"]["id"]) for event in resumed] == [
            ("registered", "two"),
            ("withdrawn", "one"),
        ]
        assert resumed[0]["id"] == seen[1]["id"]


@pytest.mark.parametrize(
    ("params", "status"),
    [({"from": "never-given"}, 400), ({"renewals": "maybe"}, 400), ({"include": "everything"}, 400)],
)
def test_a_bad_watch_is_refused_before_the_stream_begins(
    server: RunningServer, params: dict[str, str], status: int
) -> None:
    answer = httpx2.get(f"{server.url}/api/v1/watch", params=params, headers=server.headers, timeout=60)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_changes_are_retained_as_configured() -> None:
    kept = ("--watch-keep-seconds", "1", "--watch-keep-changes", "1")
    with (
        running_server(*kept) as running,
        httpx2.Client(base_url=running.url, headers=running.headers, timeout=60) as admin,
    ):
        for name in ("a", "b", "c"):
            assert admin.post("/api/v1/agents", json=profile(name)).status_code == 201
        with admin.stream("GET", "/api/v1/watch", params={"from": "0"}) as stream:
            first = events(stream.iter_lines(), 1)[0]["id"]
        deadline = time.monotonic() + 60
        status = 200
        while status == 200 and time.monotonic() < deadline:
            with admin.stream("GET", "/api/v1/watch", params={"from": first}) as stream:
                status = stream.status_code
                body = stream.read() if status != 200 else b""
        assert status == 410
        refused = json.loads(body)
        assert (refused["code"], refused["links"]["list"]) == ("stale_metadata", "/api/v1/agents")
