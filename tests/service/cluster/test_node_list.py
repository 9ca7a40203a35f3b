"""The nodes of a cluster, as an admin sees them: in the API, in `waypost stats` and on the page."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx2

from support.postgresql import PostgresqlServer
from support.server import RunningServer, stop_server

from .conftest import Cluster
from .test_nodes import get, register, wait_for

_LONG_AGO = "UPDATE waypost.nodes SET seen_at = seen_at - interval '1 hour' WHERE name = '{name}'"


def find_nodes(node: RunningServer) -> dict[str, dict[str, Any]]:
    nodes = get(node, "/api/v1/stats", node.headers).json()["nodes"]
    found = {each["name"]: each for each in nodes}
    assert len(found) == len(nodes)
    return found


def test_a_node_lists_all_nodes_and_what_became_of_them(cluster: Cluster, postgresql: PostgresqlServer) -> None:
    names = [f"http://10.0.0.{number}:8440" for number in (1, 2, 3)]
    first, second = (cluster.start("--node-url", name, "--workers", "2") for name in names[:2])
    third = cluster.start("--node-url", names[2])
    for node in (first, second, third):
        wait_for(lambda: [*find_nodes(node)] == names)  # noqa: B023 - called here
    assert [name for name, each in find_nodes(second).items() if each["this"]] == [names[1]]
    assert register(first, "urn:agent:a", first.headers).status_code == 201
    wait_for(lambda: {each["revision"] for each in find_nodes(first).values()} == {1})

    third.kill()
    postgresql.sql(_LONG_AGO.format(name=names[2]), database=cluster.url.rpartition("/")[2])
    wait_for(lambda: [each["alive"] for each in find_nodes(first).values()] == [True, True, False])

    command = [sys.executable, "-m", "waypost", "stats"]
    shown = subprocess.run(command, env=first.environment(), capture_output=True, text=True, timeout=60, check=True)
    rows = {line.split()[1]: line for line in shown.stdout.splitlines() if line.startswith("node ")}
    assert [*rows] == names
    assert "(this one)" in rows[names[0]]
    assert "alive" in rows[names[1]]
    assert "away since" in rows[names[2]]

    with httpx2.Client(base_url=first.url, timeout=30) as browser:
        browser.post("/sign-in", data={"token": first.admin_token})
        page = browser.get("/peers").text
    assert all(name in page for name in names)
    assert page.count(">away<") == 1

    stop_server(second)  # it leaves
    wait_for(lambda: [*find_nodes(first)] == [names[0], names[2]])
    cluster.start("--node-url", names[2])  # in the place of the one that died
    wait_for(
        lambda: (
            [(each["name"], each["alive"]) for each in find_nodes(first).values()]
            == [(names[0], True), (names[2], True)]
        )
    )


def test_others_than_admins_see_no_nodes(cluster: Cluster) -> None:
    node = cluster.start("--anonymous-read")
    wait_for(lambda: len(find_nodes(node)) == 1)
    assert "nodes" not in httpx2.get(f"{node.url}/api/v1/stats", timeout=30).json()
