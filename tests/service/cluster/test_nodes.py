"""Several nodes over one PostgreSQL, as their users see them."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.postgresql import PostgresqlServer, running_postgresql
from support.server import RunningServer, stop_server
from support.service import profile
from waypost import Client

from .conftest import Cluster

WAIT_SECONDS = 30.0
StartNodes = Callable[[int], list[RunningServer]]


def register(node: RunningServer, agent_id: str, headers: dict[str, str], **members: Any) -> httpx2.Response:
    """Register; again, with the same idempotency key, if the write was not confirmed in time."""
    headers = {"Idempotency-Key": secrets.token_hex(8), **headers}
    ends_at = time.monotonic() + WAIT_SECONDS
    while True:
        answer = post(node, agent_id, headers, **members)
        if answer.status_code != 503:
            return answer
        assert time.monotonic() < ends_at, answer.text
        time.sleep(0.2)


def post(node: RunningServer, agent_id: str, headers: dict[str, str], **members: Any) -> httpx2.Response:
    return httpx2.post(f"{node.url}/api/v1/agents", json=profile(agent_id, **members), headers=headers, timeout=30)


def get(node: RunningServer, path: str, headers: dict[str, str], *, stale_ok: bool = False) -> httpx2.Response:
    """Read; again if the response is marked as stale, which it is on a machine with much else to do."""
    ends_at = time.monotonic() + WAIT_SECONDS
    while True:
        answer = httpx2.get(f"{node.url}{path}", headers=headers, timeout=30)
        if stale_ok or "waypost-stale" not in answer.headers:
            return answer
        assert time.monotonic() < ends_at, "all responses were stale"


def wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, "this took too long"
        time.sleep(0.02)


def test_what_one_node_acknowledged_is_seen_by_the_next_request_to_any_node(start_nodes: StartNodes) -> None:
    nodes = start_nodes(3)
    headers = nodes[0].headers
    for number in range(30):
        writer, reader = nodes[number % 3], nodes[(number + 1) % 3]
        assert register(writer, f"urn:agent:{number}", headers).status_code == 201
        assert get(reader, f"/api/v1/agents/urn:agent:{number}", headers).status_code == 200
    for node in nodes:
        found = httpx2.post(
            f"{node.url}/profile/v1/discover", json={"query": "short factual questions"}, headers=headers, timeout=30
        )
        assert found.json()["candidates"]
        assert get(node, "/api/v1/stats", headers).json()["revision"] == 30


def test_nodes_share_identity_admin_token_tokens_and_api_keys(start_nodes: StartNodes) -> None:
    first, second = start_nodes(2)
    assert second.admin_token == first.admin_token
    keys = {json.dumps(get(node, "/.well-known/agent.json", {}).json()["identity"]) for node in (first, second)}
    assert len(keys) == 1
    body = {"sub": "bob", "scopes": ["discover:read", "discover:write"], "ttl_seconds": 600}
    token = httpx2.post(f"{first.url}/api/v1/tokens", json=body, headers=first.headers).json()["token"]
    assert register(second, "urn:agent:bob", {"Authorization": f"Bearer {token}"}).status_code == 201
    made = httpx2.post(
        f"{first.url}/api/v1/apikeys", json={"sub": "eve", "scopes": ["discover:read"]}, headers=first.headers
    ).json()
    eve = {"Authorization": f"Bearer {made['key']}"}
    assert get(second, "/api/v1/agents/urn:agent:bob", eve).status_code == 200
    assert httpx2.delete(f"{second.url}/api/v1/apikeys/{made['id']}", headers=first.headers).is_success
    assert get(first, "/api/v1/agents/urn:agent:bob", eve).status_code == 401


def test_a_rotated_key_is_used_by_every_node(start_nodes: StartNodes) -> None:
    first, second = start_nodes(2)
    path = "keys/identity.pem"
    before = (first.data / path).read_bytes()
    assert before == (second.data / path).read_bytes()
    rotated = httpx2.post(f"{first.url}/api/v1/service-keys/identity:rotate", headers=first.headers)
    assert rotated.is_success, rotated.text
    wait_for(lambda: (second.data / path).read_bytes() == (first.data / path).read_bytes() != before)


def test_owners_preconditions_and_idempotency_keys_hold_across_nodes(start_nodes: StartNodes) -> None:
    first, second = start_nodes(2)
    headers = first.headers
    key = {**headers, "Idempotency-Key": "once"}
    answers = [register(node, "urn:agent:a", key) for node in (first, second)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    guarded = {**headers, "If-Match": answers[0].headers["etag"]}
    assert register(second, "urn:agent:a", guarded, description="Another one.").status_code == 200
    assert register(first, "urn:agent:a", guarded, description="A third one.").status_code == 412
    assert httpx2.delete(f"{second.url}/profile/v1/agents/urn:agent:a", headers=headers).is_success
    assert get(first, "/api/v1/agents/urn:agent:a", headers).status_code == 404


def test_of_concurrent_creations_of_one_id_one_succeeds(start_nodes: StartNodes) -> None:
    nodes = start_nodes(2)
    headers = {**nodes[0].headers, "If-None-Match": "*"}
    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            sent = [threads.submit(register, node, f"urn:agent:{number}", headers) for node in nodes * 4]
            statuses = sorted(each.result().status_code for each in sent)
            assert statuses.count(201) == 1, statuses


def test_a_watch_resumes_on_another_node(start_nodes: StartNodes) -> None:
    first, second = start_nodes(2)
    headers = first.headers
    for number in range(3):
        assert register(first, f"urn:agent:{number}", headers).status_code == 201

    def read(node: RunningServer, cursor: str, count: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        with httpx2.stream("GET", f"{node.url}/api/v1/watch?from={cursor}", headers=headers, timeout=30) as stream:
            last = ""
            for line in stream.iter_lines():
                if line.startswith("id:"):
                    last = line.removeprefix("id:").strip()
                if line.startswith("data:") and '"type"' in line:
                    found.append((last, json.loads(line.removeprefix("data:"))["id"]))
                    if len(found) == count:
                        return found
        return found

    seen = read(first, "0", 2)
    assert [agent for _, agent in seen] == ["urn:agent:0", "urn:agent:1"]
    assert register(first, "urn:agent:3", headers).status_code == 201
    assert [agent for _, agent in read(second, seen[-1][0], 2)] == ["urn:agent:2", "urn:agent:3"]


def test_a_killed_node_loses_nothing_and_an_empty_one_loads_everything(cluster: Cluster) -> None:
    first, second = cluster.start(), cluster.start()
    headers = first.headers
    for number in range(20):
        assert register(second, f"urn:agent:{number}", headers).status_code == 201
    second.kill()
    for name in ("node-1", "empty"):
        node = cluster.start(name=name)
        assert get(node, "/api/v1/stats", headers).json()["agents"] == 20
        assert get(node, "/api/v1/agents/urn:agent:19", headers).status_code == 200


def test_a_lease_ends_on_every_node_and_is_written_once(start_nodes: StartNodes) -> None:
    nodes = start_nodes(3)
    headers = nodes[0].headers
    made = httpx2.post(
        f"{nodes[0].url}/api/v1/agents?ttl_seconds=10", json=profile("urn:agent:short"), headers=headers, timeout=30
    )
    assert made.status_code == 201
    wait_for(lambda: get(nodes[1], "/api/v1/agents/urn:agent:short", headers).status_code == 404)
    wait_for(lambda: get(nodes[2], "/api/v1/stats", headers).json()["revision"] == 2)
    for node in nodes:
        assert get(node, "/api/v1/agents/urn:agent:short", headers).status_code == 404
        assert get(node, "/api/v1/stats", headers).json()["revision"] == 2


def test_worker_processes_of_a_node_read_what_other_nodes_acknowledged(cluster: Cluster) -> None:
    first, second = cluster.start("--workers", "2"), cluster.start("--workers", "2")
    headers = first.headers
    for number in range(20):
        assert register(first, f"urn:agent:{number}", headers).status_code == 201
        assert get(second, f"/api/v1/agents/urn:agent:{number}", headers).status_code == 200


def test_bounded_reads_follow_soon(cluster: Cluster) -> None:
    first, second = cluster.start("--reads", "bounded"), cluster.start("--reads", "bounded")
    assert register(first, "urn:agent:a", first.headers).status_code == 201
    wait_for(lambda: get(second, "/api/v1/agents/urn:agent:a", first.headers).status_code == 200)


def test_while_the_database_is_away_reads_are_stale_and_writes_wait(tmp_path: Path) -> None:
    with running_postgresql() as server, ExitStack() as stack:
        cluster = Cluster(tmp_path, server.create_database(), stack)
        nodes = [cluster.start(), cluster.start()]
        headers = nodes[0].headers
        assert register(nodes[0], "urn:agent:a", headers).status_code == 201
        assert get(nodes[1], "/api/v1/agents/urn:agent:a", headers).status_code == 200
        server.stop()
        for node in nodes:
            read = get(node, "/api/v1/agents/urn:agent:a", headers, stale_ok=True)
            assert read.status_code == 200
            assert int(read.headers["waypost-stale"]) >= 1
            found = httpx2.post(
                f"{node.url}/profile/v1/discover", json={"query": "short factual questions"}, headers=headers
            )
            assert found.json()["candidates"]
            refused = post(node, "urn:agent:b", headers)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert get(node, "/readyz", {}, stale_ok=True).status_code == 200
            assert read_metrics(node, headers)["waypost_cluster_database_away"] == 1
        server.start()
        wait_for(lambda: post(nodes[1], "urn:agent:b", headers).status_code in (200, 201))
        assert get(nodes[0], "/api/v1/agents/urn:agent:b", headers).status_code == 200


def test_a_node_of_another_history_does_not_serve_it(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, postgresql.create_database(), stack)
        node = cluster.start()
        for number in range(3):
            assert register(node, f"urn:agent:{number}", node.headers).status_code == 201
        assert stop_server(node) == 0
        database = cluster.url.rpartition("/")[2]
        # A failover to a standby that had not received the last change looks like this.
        postgresql.sql(
            "DELETE FROM waypost.log WHERE position = (SELECT max(position) FROM waypost.log)",
            "DELETE FROM waypost.agents WHERE convert_from(id, 'UTF8') = 'urn:agent:2'",
            database=database,
        )
        again = cluster.start(name="node-0")
        assert get(again, "/api/v1/agents/urn:agent:1", again.headers).status_code == 200
        assert get(again, "/api/v1/agents/urn:agent:2", again.headers).status_code == 404


def test_chores_are_taken_over(start_nodes: StartNodes) -> None:
    """The lease of an agent ends although the node that wrote such ends was killed."""
    nodes = start_nodes(2)
    headers = nodes[0].headers
    nodes[0].kill()
    made = httpx2.post(
        f"{nodes[1].url}/api/v1/agents?ttl_seconds=10", json=profile("urn:agent:a"), headers=headers, timeout=30
    )
    assert made.status_code == 201
    wait_for(lambda: get(nodes[1], "/api/v1/stats", headers).json()["revision"] == 2)


def test_the_doctor_examines_the_database(start_nodes: StartNodes) -> None:
    nodes = start_nodes(2)
    findings = get(nodes[1], "/api/v1/doctor", nodes[0].headers).json()["findings"]
    texts = {each["severity"]: each["message"] for each in findings if each["layer"] == "database"}
    assert "2 nodes" in texts["ok"]
    assert "fsync" in texts["danger"]  # off in tests
    assert "no standby" in texts["info"]
    metrics = httpx2.get(f"{nodes[1].url}/metrics", headers=nodes[0].headers, timeout=30).text
    assert "waypost_cluster_staleness_seconds" in metrics
    assert "waypost_cluster_lost_races 0.0" in metrics
    assert "waypost_cluster_database_away 0.0" in metrics


def test_metrics_tell_of_groups_and_of_the_feed(start_nodes: StartNodes) -> None:
    first, second = start_nodes(2)
    for number in range(3):
        assert register(first, f"urn:agent:{number}", first.headers).status_code == 201
    assert get(second, "/api/v1/agents/urn:agent:2", first.headers).status_code == 200
    writer, reader = (read_metrics(node, first.headers) for node in (first, second))
    assert writer["waypost_cluster_grouped_writes"] >= writer["waypost_cluster_groups"] >= 3
    assert reader["waypost_cluster_log_rows"] >= 3
    assert 0 < reader["waypost_cluster_feed_lag_seconds"] < 30
    assert reader["waypost_cluster_nodes"] >= 1


def read_metrics(node: RunningServer, headers: dict[str, str]) -> dict[str, float]:
    text = httpx2.get(f"{node.url}/metrics", headers=headers, timeout=30).text
    lines = (line.split(" ") for line in text.splitlines() if line.startswith("waypost_cluster"))
    return {name: float(value) for name, value in lines}


def test_a_sign_in_link_is_valid_once_on_all_nodes(cluster: Cluster) -> None:
    first, second, third = cluster.start(), cluster.start(), cluster.start()
    assert first.process.stdout is not None
    link = first.process.stdout.readline().rpartition(" ")[2].strip()
    query = link.partition("?")[2]
    answers = [httpx2.get(f"{node.url}/?{query}", headers={"Accept": "text/html"}) for node in (second, first, third)]
    assert ["set-cookie" in answer.headers for answer in answers] == [True, False, False]


def lose_last_change(cluster: Cluster, server: PostgresqlServer, agent_id: str) -> None:
    """What a failover to a standby looks like that had not received the last change, which registered an agent."""
    server.sql(
        "DELETE FROM waypost.log WHERE position = (SELECT max(position) FROM waypost.log)",
        f"DELETE FROM waypost.agents WHERE convert_from(id, 'UTF8') = '{agent_id}'",
        database=cluster.url.rpartition("/")[2],
    )


def last_cursor(node: RunningServer, headers: dict[str, str], count: int) -> str:
    cursor = ""
    with httpx2.stream("GET", f"{node.url}/api/v1/watch?from=0", headers=headers, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("id:"):
                cursor = line.removeprefix("id:").strip()
            if line.startswith("data:") and '"type"' in line:
                count -= 1
            if not count and not line:
                return cursor
    raise AssertionError("the watch ended")


def is_answered(node: RunningServer, path: str, headers: dict[str, str], status: int) -> bool:
    try:
        return get(node, path, headers, stale_ok=True).status_code == status
    except httpx2.HTTPError:  # it restarts
        return False


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nodes_load_a_history_that_lost_its_end_and_refuse_its_cursors(
    cluster: Cluster, postgresql: PostgresqlServer, workers: str
) -> None:
    nodes = [cluster.start("--workers", workers), cluster.start("--workers", workers)]
    headers = nodes[0].headers
    for number in range(3):
        assert register(nodes[0], f"urn:agent:{number}", headers).status_code == 201
    kept, lost = last_cursor(nodes[0], headers, 2), last_cursor(nodes[0], headers, 3)
    lose_last_change(cluster, postgresql, "urn:agent:2")
    for node in nodes:
        wait_for(lambda: is_answered(node, "/api/v1/agents/urn:agent:2", headers, 404))  # noqa: B023
        wait_for(lambda: is_answered(node, "/api/v1/agents/urn:agent:1", headers, 200))  # noqa: B023
    for revision in range(2):  # a cursor ahead of the log, then one whose revision is that of another change
        for node in nodes:
            refused = httpx2.get(f"{node.url}/api/v1/watch?from={lost}", headers=headers, timeout=30)
            assert refused.status_code == 410, revision
            assert refused.json()["code"] == "stale_metadata"
        assert register(nodes[1], "urn:agent:other", headers, description=f"No {revision}.").is_success
    with httpx2.stream("GET", f"{nodes[0].url}/api/v1/watch?from={kept}", headers=headers, timeout=30) as stream:
        assert stream.status_code == 200
        assert next(line for line in stream.iter_lines() if '"type"' in line).count("urn:agent:other") == 1


def test_with_bounded_reads_a_client_sees_its_own_writes_on_every_node(cluster: Cluster) -> None:
    nodes = [cluster.start("--reads", "bounded"), cluster.start("--reads", "bounded", "--workers", "2")]
    headers = nodes[0].headers
    for number in range(40):
        writer, reader = nodes[number % 2], nodes[1 - number % 2]
        written = register(writer, f"urn:agent:{number}", headers)
        token = {"Waypost-Consistency-Token": written.headers["waypost-consistency-token"]}
        found = get(reader, f"/api/v1/agents/urn:agent:{number}", headers | token)
        assert found.status_code == 200
        assert "waypost-consistency-token" not in found.headers
    unknown = {"Waypost-Consistency-Token": "x"}  # of another cluster, perhaps: everything is waited for
    assert register(nodes[0], "urn:agent:last", headers).status_code == 201
    assert get(nodes[1], "/api/v1/agents/urn:agent:last", headers | unknown).status_code == 200


async def test_the_client_sends_the_token_of_its_last_write(cluster: Cluster) -> None:
    """A proxy sends each request to the next node, as a load balancer does."""
    nodes = [cluster.start("--reads", "bounded"), cluster.start("--reads", "bounded")]
    tokens: list[str | None] = []
    turns = itertools.cycle(nodes)

    async def balance(request: httpx2.Request) -> httpx2.Response:
        tokens.append(request.headers.get("waypost-consistency-token"))
        node = httpx2.URL(next(turns).url)
        async with httpx2.AsyncClient(timeout=30) as http:
            sent = http.build_request(
                request.method,
                request.url.copy_with(host=node.host, port=node.port),
                headers=request.headers,
                content=request.content,
            )
            return await http.send(sent)

    transport = httpx2.MockTransport(balance)
    async with Client(nodes[0].url, token=nodes[0].admin_token, transport=transport) as client:
        for number in range(10):
            await client.register(profile(f"urn:agent:{number}"))
            assert (await client.get(f"urn:agent:{number}")).id == f"urn:agent:{number}"
    assert tokens[0] is None
    assert all(tokens[1:])


def test_nodes_share_the_rate_of_a_caller(cluster: Cluster) -> None:
    flags = ("--rate-limit-reads", "60")
    nodes = [cluster.start(*flags), cluster.start(*flags), cluster.start(*flags)]
    body = {"sub": "bob", "scopes": ["discover:read"], "ttl_seconds": 600}
    for node in nodes:
        wait_for(lambda: "3 nodes" in get(node, "/api/v1/doctor", nodes[0].headers).text)  # noqa: B023
    token = httpx2.post(f"{nodes[0].url}/api/v1/tokens", json=body, headers=nodes[0].headers).json()["token"]
    bob = {"Authorization": f"Bearer {token}"}

    def count_allowed(node: RunningServer) -> int:
        for count in range(60):
            if get(node, "/api/v1/agents?limit=1", bob).status_code == 429:
                return count
        return 60

    wait_for(
        lambda: "waypost_cluster_nodes 3.0" in httpx2.get(f"{nodes[1].url}/metrics", headers=nodes[0].headers).text
    )
    assert 20 <= count_allowed(nodes[1]) <= 25  # a third, and what came back meanwhile
