"""Nodes of an earlier release run beside nodes of this one. Until there is a release with this store, the earlier one is the
first commit that had it, taken from the history of the repository. Its nodes had admin tokens of their own."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from support.releases import unpack_release
from support.server import stop_server

from .conftest import Cluster
from .test_nodes import get, last_cursor, register

FIRST_COMMIT = "642aeda1"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_release(FIRST_COMMIT, tmp_path_factory.mktemp("earlier"))


def test_nodes_are_upgraded_one_after_the_other(cluster: Cluster, earlier: Path) -> None:
    old, other = (cluster.start(package=earlier) for _ in range(2))
    for number in range(5):
        node = (old, other)[number % 2]
        assert register(node, f"urn:agent:{number}", node.headers).status_code == 201
    cursor = last_cursor(old, old.headers, 5)

    assert stop_server(other) == 0
    new = cluster.start(name="node-1")
    assert get(new, "/api/v1/stats", new.headers).json()["revision"] == 5
    for number in range(5, 15):
        writer, reader = ((old, new), (new, old))[number % 2]
        agent, key = f"urn:agent:{number}", {"Idempotency-Key": f"key-{number}"}
        written = register(writer, agent, writer.headers | key)
        assert written.status_code == 201
        assert get(reader, f"/api/v1/agents/{agent}", reader.headers).status_code == 200
        again = register(reader, agent, reader.headers | key)
        assert again.json()["etag"] == written.json()["etag"]
        guard = {"If-Match": written.headers["etag"]}
        assert register(reader, agent, reader.headers | guard, description="Changed.").status_code == 200
        assert register(writer, agent, writer.headers | guard, description="Again.").status_code == 412
    with httpx2.stream("GET", f"{new.url}/api/v1/watch?from={cursor}", headers=new.headers, timeout=30) as stream:
        assert next(line for line in stream.iter_lines() if '"type"' in line).count("urn:agent:5") == 1

    assert stop_server(old) == 0
    last = cluster.start(name="node-0")
    assert last.headers == new.headers
    assert get(last, "/api/v1/stats", new.headers).json()["revision"] == 25
    assert register(last, "urn:agent:last", new.headers).status_code == 201
    assert get(new, "/api/v1/agents/urn:agent:last", new.headers).status_code == 200
