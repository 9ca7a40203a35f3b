"""Mistakes of a new user, against a real process: each error has message, place and hint."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.problems import complete
from support.server import RunningServer, clean_environment, running_server, start_server, stop_server
from support.service import profile
from waypost.app import mint_locally
from waypost.net.clock import ManualClock
from waypost.settings import Settings

STOP_SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as running:
        yield running


@pytest.fixture
def admin(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
        yield client


def caller(server: RunningServer, subject: str, *scopes: str, now: float | None = None) -> httpx2.Client:
    wanted = scopes or ("discover:read", "discover:write")
    clock = None if now is None else ManualClock(now)
    token, _ = mint_locally(Settings(data=server.data), subject, wanted, 3600, clock=clock)
    return httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer: it says what happened, where, and what to do."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["code"] == code
    complete(told)
    return told


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
def test_broken_json_is_located(admin: httpx2.Client, document: bytes, path: str, says: str) -> None:
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
def test_a_member_of_the_wrong_type_is_named(admin: httpx2.Client, members: dict[str, Any], path: str) -> None:
    document = {**profile("wrong-type"), **members}
    told = problem(admin.post("/api/v1/agents", json=document), 400, "invalid_request")
    assert told["path"] == path


def test_an_unrecognised_document_is_answered_with_the_nearest_dialect(admin: httpx2.Client) -> None:
    told = problem(admin.post("/api/v1/agents", json={"kind": "Deployment"}), 400, "invalid_request")
    assert "id, name, description and bindings" in told["hint"]
    card = {"name": "Echo", "description": "Echo.", "version": "1", "url": "https://a.example/", "skills": []}
    told = problem(admin.post("/api/v1/agents", json=card), 400, "invalid_request")
    assert "looks like an A2A card: add `capabilities`" in told["message"]


def test_a_dialect_that_does_not_exist_is_answered_with_the_nearest(admin: httpx2.Client) -> None:
    told = problem(admin.post("/api/v1/agents?dialect=a2", json=profile()), 400, "invalid_request")
    assert "'a2a'" in told["hint"]
    told = problem(admin.get("/api/v1/agents/x", params={"as": "oafs"}), 400, "invalid_request")
    assert "'oasf'" in told["hint"]


def test_a_stale_update_names_the_mark_that_is_older(admin: httpx2.Client) -> None:
    held = profile("stale", version="1.2.0", updated_at="2026-05-08T00:00:00Z")
    assert admin.post("/api/v1/agents", json=held).status_code == 201
    older = {**held, "name": "Older", "updated_at": "2026-05-07T00:00:00Z"}
    assert problem(admin.post("/api/v1/agents", json=older), 409, "stale_metadata")["path"] == "$.updated_at"
    lower = {**held, "name": "Lower", "version": "1.1.9"}
    assert problem(admin.post("/api/v1/agents", json=lower), 409, "stale_metadata")["path"] == "$.version"
    assert admin.get("/api/v1/agents/stale").json() == held


# --- Rights ---------------------------------------------------------------------------------------


def test_a_foreign_agent_is_neither_changed_nor_withdrawn(server: RunningServer, admin: httpx2.Client) -> None:
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
        assert "not valid yet" in problem(early.get("/api/v1/agents"), 401, "unauthorized")["message"]


@pytest.mark.parametrize("header", ["Bearer", "Bearer x.y.z", "Basic YTpi", "Bearer " + "a" * 9000, "nonsense"])
def test_a_credential_that_is_none_is_refused(server: RunningServer, header: str) -> None:
    answer = httpx2.get(f"{server.url}/api/v1/agents", headers={"Authorization": header}, timeout=60)
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_missing_scope_is_named(server: RunningServer) -> None:
    with caller(server, "reader", "discover:read") as reader:
        told = problem(reader.post("/api/v1/agents", json=profile("x")), 403, "forbidden")
        assert "discover:write" in told["message"]
        assert "--scope discover:write" in told["hint"]


def test_a_missing_token_is_answered_with_how_to_mint_one(server: RunningServer) -> None:
    told = problem(httpx2.post(f"{server.url}/api/v1/agents", json=profile("x"), timeout=60), 401, "unauthorized")
    assert "waypost token mint" in told["hint"]


def test_a_path_that_is_not_there_leads_to_the_reference(admin: httpx2.Client) -> None:
    assert "/docs" in problem(admin.get("/api/v2/agents"), 404, "not_found")["hint"]


# --- Starting and stopping ------------------------------------------------------------------------


def failed_start(folder: Path, *flags: str) -> str:
    """Run `waypost serve`, which must fail to start; return its output."""
    ran = subprocess.run(
        [sys.executable, "-m", "waypost", "serve", *flags],
        capture_output=True,
        text=True,
        cwd=folder,
        env=clean_environment(),
        timeout=300,
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


def test_a_folder_that_cannot_be_created_is_a_configuration_error(tmp_path: Path) -> None:
    assert "--data" in failed_start(tmp_path, "--port", "0", "--data", "/proc/sealed")  # not even root may


def test_a_second_server_on_the_same_folder_is_refused_and_the_first_goes_on(
    server: RunningServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    said = failed_start(tmp_path, "--port", "0", "--data", str(server.data))
    assert str(server.process.pid) in said
    assert admin.get("/readyz").status_code == 200


def test_an_unknown_setting_names_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text("anonymus_read = true\n")
    assert "anonymous_read" in failed_start(tmp_path, "--data", str(tmp_path / "data"))


def test_an_open_service_is_refused_beyond_loopback(tmp_path: Path) -> None:
    assert "127.0.0.1" in failed_start(tmp_path, "--open", "--host", "0.0.0.0", "--data", str(tmp_path / "data"))


def test_a_signal_ends_the_service_and_its_watch_streams(tmp_path: Path) -> None:
    running = start_server(folder=tmp_path)
    try:
        with httpx2.Client(base_url=running.url, headers=running.headers, timeout=60) as client:
            client.post("/api/v1/agents", json=profile("kept"))
            with client.stream("GET", "/api/v1/watch", params={"from": "0"}) as stream:
                lines = stream.iter_lines()
                assert any("kept" in line for line in lines)
                running.process.send_signal(signal.SIGTERM)
                list(lines)  # ends, and does not break
                assert running.process.wait(STOP_SECONDS) == 0
        assert "Traceback" not in running.log.read_text()
    finally:
        stop_server(running)


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    running = start_server(folder=tmp_path)
    documents = [profile(f"agent-{number}", tags=["kept"], name=f"Kestrel {number}") for number in range(20)]
    with httpx2.Client(base_url=running.url, headers=running.headers, timeout=60) as client:
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
        with httpx2.Client(base_url=again.url, headers=again.headers, timeout=60) as client:
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


def _watch_lines(client: httpx2.Client, cursor: str) -> list[str]:
    """The events from a cursor up to a change made for this purpose."""
    lines: list[str] = []
    mark = f"mark-{time.monotonic_ns()}"
    client.post("/api/v1/agents", json=profile(mark))
    with client.stream("GET", "/api/v1/watch", params={"from": cursor}) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if mark in line:
                return lines
    raise AssertionError("the stream ended")
