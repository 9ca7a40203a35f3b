"""Two services that know only each other's domain: a task, and its result."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.certificates import Authority
from support.fake_dns_server import DnsServer, dns_server
from support.ports import free_port
from support.server import RunningServer, start_server, stop_server
from waypost.messaging.request_signatures import sign_request
from waypost.trust.keys.private_key import PrivateKey, load_private_key

NAMES = ("ada.test", "bob.test")
WAIT_SECONDS = 60.0


class Pair:
    def __init__(self, servers: dict[str, RunningServer]) -> None:
        self.servers = servers

    def client(self, name: str, *, token: bool = True) -> httpx2.AsyncClient:
        server = self.servers[name]
        headers = {"Host": name, **(server.headers if token else {})}
        address = server.url.replace(name, "127.0.0.1")
        return httpx2.AsyncClient(base_url=address, headers=headers, verify=False, timeout=60)

    def key(self, name: str) -> PrivateKey:
        return identity(self.servers[name].data)


def identity(data: Path) -> PrivateKey:
    return load_private_key((data / "keys/identity.pem").read_bytes())


def publish(names: DnsServer, name: str, port: int, key: PrivateKey) -> None:
    well_known = f"https://{name}:{port}/.well-known/agent.json"
    names.set(name, "A", ["127.0.0.1"])
    names.set(name, "SVCB", [f'1 . alpn="a2a,h2" port={port}'])
    names.set(f"_agent.{name}", "TXT", [f'"v=ADP1.1; pk={key.public.fingerprint()}; wk={well_known}"'])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    authority = Authority(tmp_path)
    servers: dict[str, RunningServer] = {}
    async with dns_server() as names:
        try:
            for name in NAMES:
                port = free_port()
                certificate, key = authority.server_files(name, "127.0.0.1")
                flags = ["--base-url", f"https://{name}:{port}", "--port", str(port)]
                flags += [
                    "--tls-cert",
                    str(certificate),
                    "--tls-key",
                    str(key),
                    "--fetch-ca",
                    str(authority.certificate),
                ]
                flags += ["--allow-cidrs", "127.0.0.1/32", "--resolver", names.address]
                (tmp_path / name).mkdir()
                servers[name] = await asyncio.to_thread(start_server, *flags, folder=tmp_path / name)
                publish(names, name, port, identity(servers[name].data))
            yield Pair(servers)
        finally:
            for server in servers.values():
                await asyncio.to_thread(stop_server, server)


async def ended(client: httpx2.AsyncClient, where: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            status: dict[str, Any] = (await client.get(where)).json()
            if status["status"] not in ("accepted", "running"):
                return status
            await asyncio.sleep(0.05)


async def test_a_task_goes_to_another_service_by_its_domain_and_its_result_comes_back(pair: Pair) -> None:
    async with pair.client("ada.test") as ada:
        sent = await ada.post("/agent/tasks", params={"agent": "agent:bob.test"}, json={"task": "echo", "input": [1]})
        assert sent.status_code == 202, sent.text
        status = await ended(ada, sent.headers["location"])
        assert (status["status"], status.get("result"), status["agent"]) == ("succeeded", [1], "agent:bob.test")
        for wrong in ("agent:nobody.test", "agent:carol.ada.test"):
            lost = await ada.post("/agent/tasks", params={"agent": wrong}, json={"task": "echo"})
            status = await ended(ada, lost.headers["location"])
            assert (status["status"], status["error"]["code"]) == ("failed", "unresolved")


async def test_an_agent_joins_a_swarm_elsewhere_with_the_key_of_its_domain(pair: Pair) -> None:
    joined = await _join(pair, pair.key("ada.test"))
    assert joined.status_code == 200, joined.text
    assert [member["agent"] for member in joined.json()["members"]] == ["agent:ada.test"]
    assert (await _join(pair, pair.key("bob.test"))).status_code == 401


async def _join(pair: Pair, key: PrivateKey) -> httpx2.Response:
    """ada joins a swarm of bob's, by her key alone."""
    body = json.dumps({"agent": "agent:ada.test", "task": "analysis"}).encode()
    signed = (str(uuid.uuid4()), "agent:ada.test", "agent:bob.test")
    headers = dict(sign_request(key, signed, "POST", "/agent/swarm/join", time.time(), body))
    async with pair.client("bob.test", token=False) as stranger:
        return await stranger.post("/agent/swarm/join", content=body, headers=headers)
