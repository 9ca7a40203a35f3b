"""Sentence vectors are computed once for all nodes of a cluster."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable

import asyncpg
import httpx2

from support.postgresql import PostgresqlServer
from support.server import RunningServer
from support.service import profile
from waypost.stores import ClusterStats
from waypost.stores.postgresql.database import Database
from waypost.stores.postgresql.group import key_of
from waypost.stores.postgresql.vectors import SharedVectors

from .conftest import Cluster

WAIT_SECONDS = 120.0
COUNT = 24
MODEL = ("--embedder", "minilm")


def metric(node: RunningServer, name: str) -> int:
    text = httpx2.get(f"{node.url}/metrics", headers=node.headers, timeout=30).text
    found = re.search(rf"^waypost_cluster_{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return int(float(found[1]))


def wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, "this took too long"
        time.sleep(0.1)


def has_models(node: RunningServer) -> bool:
    body = {"query": "rain"}
    answer = httpx2.post(f"{node.url}/profile/v1/discover", json=body, headers=node.headers, timeout=30)
    return not any("not loaded" in warning for warning in answer.json().get("warnings", ()))


def scores(node: RunningServer) -> dict[str, float]:
    """Of a search by meaning; empty while some of them are provisional."""
    body = {"query": "predict the likelihood of precipitation", "limit": COUNT}
    answer = httpx2.post(f"{node.url}/profile/v1/discover", json=body, headers=node.headers, timeout=30)
    candidates = answer.json()["candidates"]
    if any(candidate.get("provisional") for candidate in candidates):
        return {}
    return {candidate["id"]: candidate["score"] for candidate in candidates}


def test_vectors_are_computed_once_and_every_node_has_the_same_scores(cluster: Cluster) -> None:
    nodes = [cluster.start(*MODEL), cluster.start(*MODEL)]
    wait_for(lambda: all(metric(node, "nodes") == 2 and has_models(node) for node in nodes))
    for number in range(COUNT):
        document = profile(
            f"urn:agent:{number}", name=f"Forecaster {number}", description=f"Says if it rains in region {number}."
        )
        writer = nodes[number % 2]
        sent = httpx2.post(f"{writer.url}/api/v1/agents", json=document, headers=writer.headers, timeout=30)
        assert sent.is_success, sent.text
    wait_for(lambda: all(len(scores(node)) == COUNT for node in nodes))
    assert scores(nodes[0]) == scores(nodes[1])
    computed = [metric(node, "vectors_computed") for node in nodes]
    assert sum(computed) == COUNT
    assert all(computed), "both nodes took part"
    fresh = cluster.start(*MODEL, name="fresh")
    wait_for(lambda: len(scores(fresh)) == COUNT)
    assert scores(fresh) == scores(nodes[0])
    assert metric(fresh, "vectors_computed") == 0


async def test_vectors_end_with_their_agent_and_are_not_stored_without_it(
    cluster: Cluster,
) -> None:
    node = cluster.start()
    assert httpx2.post(
        f"{node.url}/api/v1/agents", json=profile("urn:agent:a"), headers=node.headers, timeout=30
    ).is_success
    connection = await asyncpg.connect(cluster.url)
    database = Database(cluster.url, 30.0)
    try:
        (own,) = await connection.fetchrow("SELECT node FROM waypost.nodes")
        vectors = SharedVectors(database, own, ClusterStats())
        await vectors.put({"urn:agent:a": b"1", "urn:agent:gone": b"2"})
        await vectors.put({"urn:agent:a": b"3"})
        assert await vectors.fetch(["urn:agent:a", "urn:agent:gone"]) == {"urn:agent:a": b"3"}
        assert httpx2.delete(f"{node.url}/profile/v1/agents/urn:agent:a", headers=node.headers).is_success
        assert await vectors.fetch(["urn:agent:a"]) == {}
        assert await connection.fetchval("SELECT count(*) FROM waypost.vectors") == 0
        key = key_of("urn:agent:b")
        await connection.execute("INSERT INTO waypost.agents VALUES ($1, 'b', 1, '')", key)
        async with connection.transaction():  # it waits for no agent that is being removed
            await connection.execute("DELETE FROM waypost.agents WHERE key = $1", key)
            await vectors.put({"urn:agent:b": b"4"})
        assert await vectors.fetch(["urn:agent:b"]) == {}
    finally:
        await database.close()
        await connection.close()


async def test_each_agent_is_the_share_of_one_node(postgresql: PostgresqlServer) -> None:
    nodes = [uuid.uuid4() for _ in range(3)]
    shares = []
    for node in nodes:
        shared = SharedVectors(Database(postgresql.url()), node, ClusterStats())
        shared.nodes = nodes
        shares.append({number for number in range(300) if shared.is_mine(f"agent-{number}")})
    assert sorted(number for share in shares for number in share) == [*range(300)]
    assert all(len(share) > 50 for share in shares)
    alone = SharedVectors(Database(postgresql.url()), nodes[0], ClusterStats())
    assert alone.is_mine("agent-0"), "before it knows any node"
    alone.nodes = nodes[1:]
    assert not alone.is_mine("agent-0")
    alone._stats.is_away = True
    assert alone.is_mine("agent-0"), "while the database is away, nobody else can help"
