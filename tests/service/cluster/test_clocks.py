"""Nodes use the time of the database: one whose clock is wrong by an hour ends no lease early and keeps none for longer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx2
import pytest

from support.server import RunningServer, start_server, stop_server
from support.service import profile

from .conftest import Cluster
from .test_nodes import get, wait_for

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def start_at(cluster: Cluster, shift: str) -> RunningServer:
    """A node whose clock is wrong."""
    folder = cluster.folder / f"node{shift}"
    data = folder / "data"
    data.mkdir(parents=True, mode=0o700)
    shutil.copy(cluster.nodes[0].data / "cluster.key", data)
    flags = ("--store", cluster.url)
    # The command faketime would stay in between, and leave the node behind when it is stopped.
    clock = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    node = start_server(*flags, folder=folder, data=data, before=("env",), environment=clock)
    cluster.stack.callback(stop_server, node)
    return node


@pytest.mark.skipif(not LIBRARIES and "CI" not in os.environ, reason="faketime is not installed")
@pytest.mark.parametrize("shift", ["+1h", pytest.param("-1h", marks=pytest.mark.long)])
def test_leases_end_by_the_time_of_the_database(cluster: Cluster, shift: str) -> None:
    first = cluster.start()
    headers = first.headers
    node = start_at(cluster, shift)
    register_for(first, "urn:agent:long", 600)
    assert get(node, "/api/v1/agents/urn:agent:long", headers).status_code == 200, "its lease ended early"
    register_for(node, "urn:agent:short", 10)
    assert get(first, "/api/v1/agents/urn:agent:short", headers).status_code == 200
    for each in (first, node):
        wait_for(lambda: get(each, "/api/v1/agents/urn:agent:short", headers).status_code == 404)  # noqa: B023
    assert get(node, "/api/v1/agents/urn:agent:long", headers).status_code == 200


def register_for(node: RunningServer, agent_id: str, seconds: int) -> None:
    url = f"{node.url}/api/v1/agents?ttl_seconds={seconds}"
    made = httpx2.post(url, json=profile(agent_id), headers=node.headers, timeout=30)
    assert made.status_code == 201, made.text
