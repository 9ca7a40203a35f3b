"""Several processes, one service: an acknowledged write is visible to the next request in every process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from support.raw_http import RawConnection
from support.server import RunningServer, clean_environment, running_server, start_server, stop_server
from support.worker_processes import PATIENCE_SECONDS, all_ready, both, children, process_of, wait_for, workers
from waypost.errors import ConfigurationError
from waypost.stores.sqlite.store import FolderLock

ENDS_SECONDS = 120.0


def document(agent: str, text: str = "does something") -> dict[str, Any]:
    return {
        "id": agent,
        "name": f"Agent {agent}",
        "description": text,
        "tags": ["worker-test"],
        "bindings": [{"protocol": "https", "endpoint": f"https://{agent}.example/"}],
    }


def register(http: httpx2.Client, agent: str, text: str = "does something") -> None:
    answer = http.put(f"/profile/v1/agents/{agent}", json=document(agent, text))
    assert answer.status_code in (200, 201), answer.text


def discover(http: httpx2.Client, query: str) -> list[str]:
    answer = http.post("/profile/v1/discover", json={"query": query, "limit": 5})
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["candidates"]]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--workers", "2") as running:
        yield running


# --- One service ----------------------------------------------------------------------------------


def test_a_write_through_one_process_is_seen_by_the_next_question_to_another(server: RunningServer) -> None:
    with both(server) as (leader, follower):
        for number in range(100):
            agent, word = f"seen-{number}", f"quibble{number}"
            through, asked = (leader, follower) if number % 2 else (follower, leader)
            register(through, agent, f"handles {word} and nothing else")
            assert agent in discover(asked, word)
            assert asked.get(f"/profile/v1/agents/{agent}").json()["id"] == agent


def test_a_withdrawn_agent_is_gone_from_every_process_at_once(server: RunningServer) -> None:
    with both(server) as (leader, follower):
        for number in range(20):
            register(follower, f"gone-{number}", f"mentions farewell{number}")
            assert leader.delete(f"/api/v1/agents/gone-{number}").status_code == 204
            assert follower.get(f"/api/v1/agents/gone-{number}").status_code == 404
            assert discover(follower, f"farewell{number}") == []


def test_a_client_that_leaves_before_its_body_shifts_no_request_of_another(server: RunningServer) -> None:
    """E1 between the processes: they reuse their connections, as a proxy does."""
    head = b"POST /api/v1/agents HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n"
    with both(server) as (leader, follower):
        for number in range(10):
            for _ in range(8):
                with RawConnection(server.url) as leaving:
                    leaving.send(head)
            for http in (follower, leader):
                request_id = f"shifted-{number}"
                answer = http.delete("/api/v1/agents/never-registered", headers={"X-Request-Id": request_id})
                assert (answer.status_code, answer.headers["x-request-id"]) == (404, request_id)


def test_every_process_shows_the_same_history_and_the_same_trail(server: RunningServer) -> None:
    with both(server) as (leader, follower):
        for number, through in enumerate((leader, follower) * 5):
            register(through, "dated", f"is of step {number}")
            for asked in (leader, follower):
                versions = asked.get("/api/v1/agents/dated:history").json()["versions"]
                assert len(versions) == number + 1
                assert asked.get("/api/v1/audit?object=dated").json()["entries"][-1]["etag"] == versions[0]["etag"]
        notes = {asked.get("/api/v1/audit/checkpoint").text for asked in (leader, follower)}
        assert len(notes) == 1
        diff = follower.get("/api/v1/agents/dated:diff").json()["differences"]
        assert diff == [{"path": "$.description", "before": "is of step 8", "after": "is of step 9"}]


def test_new_connections_are_spread_over_the_processes(server: RunningServer) -> None:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
        register(http, "anew", "knows the word obstreperous")
    answered: Counter[int] = Counter()
    for _ in range(200):
        with httpx2.Client(base_url=server.url, headers=server.headers, verify=False, timeout=60) as http:
            answer = http.post("/profile/v1/discover", json={"query": "obstreperous", "limit": 1})
            assert [each["id"] for each in answer.json()["candidates"]] == ["anew"]
            answered[process_of(server, answer)] += 1
    assert len(answered) == 2
    assert min(answered.values()) >= 40, answered


def test_lists_are_the_same_in_every_process(server: RunningServer) -> None:
    with both(server) as processes:
        for number in range(5):
            register(processes[number % 2], f"listed-{number}")
        first, second = (http.get("/.well-known/agentframework/v1/agents?page=1&limit=3") for http in processes)
        assert first.content == second.content
        for header in ("etag", "last-modified", "af-generation"):
            assert first.headers[header] == second.headers[header]


def test_a_cursor_of_one_process_is_read_by_another(server: RunningServer) -> None:
    with both(server) as (leader, follower):
        for number in range(4):
            register(leader, f"paged-{number}")
        cursor = follower.get("/api/v1/agents", params={"limit": 1}).json()["next_cursor"]
        assert leader.get("/api/v1/agents", params={"limit": 1, "cursor": cursor}).status_code == 200


def test_a_watcher_at_a_follower_receives_a_change(server: RunningServer) -> None:
    with (
        both(server) as (leader, follower),
        follower.stream("GET", "/api/v1/watch", timeout=PATIENCE_SECONDS) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == ": watching"
        register(leader, "watched")
        assert next(line for line in lines if line.startswith("data: ") and '"watched"' in line)


def test_a_lease_that_ends_ends_in_every_process(server: RunningServer) -> None:
    with both(server) as (leader, follower):
        answer = follower.post("/api/v1/agents", params={"ttl_seconds": 10}, json=document("leased"))
        assert answer.status_code == 201
        assert leader.get("/api/v1/agents/leased").status_code == 200
        renewed = follower.post("/api/v1/agents/leased:renew", json={"ttl_seconds": 60})
        assert renewed.status_code == 200
        assert [http.get("/api/v1/agents/leased").headers["etag"] for http in (leader, follower)] == [
            renewed.json()["etag"].join('""')
        ] * 2


# --- Passed on ------------------------------------------------------------------------------------


def test_a_batch_streams_through_a_follower(server: RunningServer) -> None:
    lines = [json.dumps(document(f"batch-{number}", "in a batch " + "x" * 500)).encode() for number in range(2000)]

    def parts() -> Iterator[bytes]:
        for line in lines:
            yield line + b"\n"

    with both(server) as (_, follower):
        answer = follower.post(
            "/api/v1/agents:batch", content=parts(), headers={"content-type": "application/x-ndjson"}, timeout=60
        )
        assert answer.status_code == 200
        outcomes = [json.loads(line) for line in answer.text.splitlines()]
        assert [each["outcome"] for each in outcomes] == ["created"] * len(lines)
        assert follower.get("/api/v1/agents/batch-1999").status_code == 200


def test_a_body_that_is_too_long_is_refused_through_a_follower(server: RunningServer) -> None:
    with both(server) as (_, follower):
        answer = follower.post("/api/v1/agents", content=b"x" * 3_000_000)
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"


def test_each_api_answers_the_same_through_a_follower(server: RunningServer) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": "agent_discovery_service/discover_agents", "params": {}}
    with both(server) as processes:
        for send in (
            lambda http: http.post("/", json=call),
            lambda http: http.post("/api/v1/agents", content=b"not json"),
            lambda http: http.delete("/api/v1/agents/nobody"),
            lambda http: http.post("/api/v1/tokens", json={"sub": "a", "scopes": ["unknown"]}),
            lambda http: http.head("/metrics"),
            lambda http: http.post("/nowhere"),
            lambda http: http.post("/report", json=[1, 1, 1_000_000, []]),
        ):
            own, passed = map(send, processes)
            assert own.status_code == passed.status_code
            assert _without_ids(own) == _without_ids(passed)


def _without_ids(answer: httpx2.Response) -> Any:
    varying = ("correlation_id", "instance")
    if "json" not in answer.headers.get("content-type", ""):
        return answer.headers.get("content-type")
    told = answer.json()
    return {name: value for name, value in told.items() if name not in varying} if isinstance(told, dict) else told


def test_metrics_include_all_processes(server: RunningServer) -> None:
    def counted() -> int:
        text = httpx2.get(f"{server.url}/metrics", headers=server.headers, timeout=60).text
        (line,) = [
            line
            for line in text.splitlines()
            if line.startswith("waypost_requests_total") and 'route="/healthz"' in line
        ] or ["0"]
        return int(float(line.rsplit(" ", 1)[-1]))

    with both(server) as processes:
        before = counted()
        for http in processes:
            for _ in range(10):
                assert http.get("/healthz").status_code == 200
        wait_for(lambda: counted() >= before + 20)


def test_stats_describe_the_processes(server: RunningServer) -> None:
    found = workers(server)
    assert [each["role"] for each in found] == ["leader", "follower"]
    serving = [child for child in children(server) if not any("segment_process" in part for part in child.cmdline())]
    assert {each["pid"] for each in found} == {child.pid for child in serving}
    assert all(each["ready"] and each["restarts"] == 0 for each in found)


# --- Life -----------------------------------------------------------------------------------------


def test_it_shuts_down_in_order(tmp_path: Path) -> None:
    server = start_server("--workers", "3", folder=tmp_path)
    processes = children(server)
    assert len(processes) == 3
    assert stop_server(server) == 0
    assert not any(process.is_running() for process in processes)
    assert "Traceback" not in server.log.read_text()


def test_every_process_is_not_ready_before_the_first_one_has_stopped(tmp_path: Path) -> None:
    """Requests in progress keep the followers, which stop first; a load balancer learns meanwhile that the service ends."""
    server = start_server("--workers", "2", folder=tmp_path)
    try:
        with ExitStack() as stack:
            leader, _ = stack.enter_context(both(server))
            held = []
            for number in range(16):  # so many never end up in one process
                body = json.dumps(document(f"held-{number}")).encode()
                connection = stack.enter_context(RawConnection(server.url))
                head = f"POST /api/v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin_token}\r\n"
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.send(head.encode() + body[:10])
                held.append((connection, body[10:]))
            wait_for(lambda: leader.get("/readyz").status_code == 200)
            server.process.send_signal(signal.SIGTERM)
            refused = wait_for(lambda: answer if (answer := leader.get("/readyz")).status_code == 503 else None, 20)
            assert int(refused.headers["retry-after"]) > 0
            for connection, rest in held:
                connection.send(rest)
            assert [connection.answer().status for connection, _ in held] == [201] * len(held)
        assert server.process.wait(ENDS_SECONDS) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        stop_server(server)


def test_no_process_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    server = start_server("--workers", "2", folder=tmp_path)
    processes = children(server)
    server.kill()
    _, alive = psutil.wait_procs(processes, ENDS_SECONDS)
    stop_server(server)
    assert not alive


def test_a_killed_process_is_restarted(tmp_path: Path) -> None:
    with running_server("--workers", "2") as server:
        with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
            register(http, "before", "stays through everything")
        for place in (1, 0, 1):
            victim = workers(server)[place]["pid"]
            psutil.Process(victim).send_signal(signal.SIGKILL)
            wait_for(lambda victim=victim, place=place: _is_replaced(server, place, victim))
            with both(server) as processes:
                for http in processes:
                    assert discover(http, "stays through everything") == ["before"]
                    register(http, "after", f"after the end of {victim}")


def _is_replaced(server: RunningServer, place: int, victim: int) -> bool:
    found = all_ready(server)
    return bool(found) and found[place]["pid"] != victim


def test_without_the_leader_reads_are_answered_and_writes_get_retry_after(tmp_path: Path) -> None:
    with running_server("--workers", "2") as server, both(server) as (leader, follower):
        register(leader, "kept", "is kept")
        before = workers(server)[0]["pid"]
        psutil.Process(server.process.pid).suspend()  # the leader is not restarted during these checks
        try:
            psutil.Process(before).send_signal(signal.SIGKILL)
            refused = wait_for(lambda: _refusal(follower))
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["code"] == "unavailable"
            assert follower.get("/readyz").status_code == 503
            assert follower.get("/healthz").status_code == 200
            assert discover(follower, "is kept") == ["kept"]
        finally:
            psutil.Process(server.process.pid).resume()
        wait_for(lambda: follower.put("/profile/v1/agents/late", json=document("late")).status_code == 201)
        assert follower.get("/readyz").status_code == 200


def _refusal(http: httpx2.Client) -> httpx2.Response | None:
    answer = http.put("/profile/v1/agents/refused", json=document("refused"))
    return answer if answer.status_code not in (200, 201) else None


def test_a_leader_that_cannot_be_restarted_ends_the_service_with_its_reason(tmp_path: Path) -> None:
    server = start_server("--workers", "2", folder=tmp_path)
    processes, supervisor = children(server), psutil.Process(server.process.pid)
    supervisor.suspend()
    psutil.Process(workers(server)[0]["pid"]).send_signal(signal.SIGKILL)
    lock = FolderLock(server.data)
    wait_for(lambda: _is_taken(lock))
    supervisor.resume()
    assert server.process.wait(ENDS_SECONDS) == 78
    lock.release()
    stop_server(server)
    assert not any(process.is_running() for process in processes)
    assert server.log.read_text().count("is in use by another process") == 6


def _is_taken(lock: FolderLock) -> bool:
    try:
        lock.take()
    except ConfigurationError:
        return False
    return True


# --- Refused --------------------------------------------------------------------------------------


def run_serve(*flags: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "waypost", "serve", *flags]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=clean_environment(), check=False)


def test_a_store_in_memory_cannot_be_shared(tmp_path: Path) -> None:
    ended = run_serve("--workers", "2", "--store", "memory", "--data", str(tmp_path))
    assert ended.returncode == 78
    assert "cannot share the store `memory`" in ended.stderr


def test_a_folder_in_use_is_refused_once(server: RunningServer) -> None:
    ended = run_serve("--workers", "2", "--port", "0", "--data", str(server.data))
    assert ended.returncode == 78
    assert ended.stderr.count("is in use by another process") == 1


def test_an_address_in_use_is_refused_though_processes_share_it(server: RunningServer, tmp_path: Path) -> None:
    port = server.url.rsplit(":", 1)[1]
    for count in ("1", "2"):
        ended = run_serve("--workers", count, "--port", port, "--data", str(tmp_path))
        assert ended.returncode == 78
        assert "Cannot listen on" in ended.stderr


def test_a_data_folder_with_a_long_name_will_do(tmp_path: Path) -> None:
    data = tmp_path / ("long-" * 20) / ("name-" * 20)
    with running_server("--workers", "2", data=data) as server, both(server) as (_, follower):
        register(follower, "far-away")
        assert (data / "workers.sock").stat().st_mode & 0o777 == 0o600
