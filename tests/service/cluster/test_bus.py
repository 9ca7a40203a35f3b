"""Nodes over one database on a bus of three NATS servers: each announcement is handled by one node, and either may be lost."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from nats.aio.client import Client

from support.announce import announcement, key
from support.bus import NatsServer, nats_cluster
from support.ports import free_port
from support.server import RunningServer
from waypost.model.json import dump_json
from waypost.protocols.announce.messages import TOPIC, subject_of

from .conftest import Cluster

WAIT_SECONDS = 30.0
SUBJECT = subject_of(TOPIC)


@pytest.fixture
def bus() -> Iterator[list[NatsServer]]:
    with nats_cluster() as servers:
        yield servers


def start_node(cluster: Cluster, bus: list[NatsServer], base_url: str) -> RunningServer:
    urls, port = ",".join(server.url for server in bus), free_port()
    flags = ("--bus", urls, "--trust-mode", "tofu", "--base-url", base_url, "--port", str(port))
    return dataclasses.replace(cluster.start(*flags), url=f"http://127.0.0.1:{port}")


async def until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < ends_at, "this took too long"
        await asyncio.sleep(0.05)


def message() -> dict[str, Any]:
    return announcement(key("a"), seq=1, at=time.time(), agent_id=str(uuid.uuid4())) | {"ttl": 300}


def knows(node: RunningServer, announced: dict[str, Any]) -> bool:
    answer = httpx2.get(f"{node.url}/agents/{announced['agent']['agent_id']}", headers=node.headers, timeout=30)
    return answer.status_code == 200


def revision(node: RunningServer) -> int:
    return int(httpx2.get(f"{node.url}/api/v1/stats", headers=node.headers, timeout=30).json()["revision"])


async def test_one_node_handles_each_announcement_and_query_however_many_servers_the_bus_has(
    cluster: Cluster, bus: list[NatsServer]
) -> None:
    base_url = f"http://127.0.0.1:{free_port()}"
    nodes = [await asyncio.to_thread(start_node, cluster, bus, base_url) for _ in range(3)]
    client = Client()
    await client.connect([server.url for server in bus], reconnect_time_wait=0.1)
    said = [message() for _ in range(12)]
    for each in said:
        await client.publish(SUBJECT, dump_json(each))
    await client.flush()
    for node in nodes:
        await until(lambda: all(knows(node, each) for each in said))  # noqa: B023
    assert revision(nodes[0]) == len(said), "each was registered once, and not renewed by the other nodes"

    query = {"protocol_version": "v1.0", "query": {"capability": "metrics"}, "query_id": "q1"}
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish(SUBJECT, dump_json({**query, "reply_to": inbox}), reply=inbox)
    got: list[str] = []
    with suppress(TimeoutError):
        while True:
            answer = await answers.next_msg(1.0 if got else WAIT_SECONDS)
            got.append(json.loads(answer.data)["agent"]["agent_id"])
    assert len(set(got)) == len(got), "one node answered"
    assert len(got) > len(said) / 2, "with the agents that any node received"

    bus[0].kill()
    later = message()
    ends_at = time.monotonic() + WAIT_SECONDS
    while not await asyncio.to_thread(knows, nodes[0], later):  # clients and nodes connect to the other servers
        assert time.monotonic() < ends_at
        await client.publish(SUBJECT, dump_json(later))
        await asyncio.sleep(0.2)
    nodes[1].kill()
    missing = [message() for _ in range(6)]
    ends_at = time.monotonic() + WAIT_SECONDS
    while missing:  # announcers repeat themselves: a message that the bus gave to the dead node is lost
        assert time.monotonic() < ends_at
        for each in missing:
            await client.publish(SUBJECT, dump_json(each))
        await asyncio.sleep(0.5)
        missing = [each for each in missing if not await asyncio.to_thread(knows, nodes[2], each)]
    await client.close()


async def test_nodes_that_both_receive_an_announcement_register_it_once(
    cluster: Cluster, bus: list[NatsServer]
) -> None:
    """As on a LAN, where every node receives every packet; here because their groups differ."""
    nodes = [await asyncio.to_thread(start_node, cluster, bus, f"http://127.0.0.1:{free_port()}") for _ in range(2)]
    client = Client()
    await client.connect([server.url for server in bus])
    said = [message() for _ in range(8)]
    for each in said:
        await client.publish(SUBJECT, dump_json(each))
    await until(lambda: all(knows(nodes[0], each) for each in said))
    listed = httpx2.get(f"{nodes[1].url}/agents", headers=nodes[1].headers, timeout=30).json()
    assert sorted(each["agent"]["agent_id"] for each in listed["agents"]) == sorted(
        each["agent"]["agent_id"] for each in said
    )
    audit = httpx2.get(f"{nodes[0].url}/api/v1/audit?limit=200", headers=nodes[0].headers, timeout=30).json()["entries"]
    created = [each["object"] for each in audit if each["outcome"] == "created"]
    assert len(created) == len(set(created)) == len(said)
    await client.close()
