"""Two agents in separate processes and services, which know only each other's name.

The development name server serves the signed zone; every name is resolved there and every connection is TLS 1.3. Refusals after
a handshake are tested in tests/conformance/adp/test_agp.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from support import command_process
from support.agp import action_of, hello_text, signed
from support.certificates import Authority
from support.dns_serve_process import served_zone
from support.messaging_agent import named_agent
from support.server import RunningServer, clean_environment, running_server
from support.service import profile
from waypost import Client, LiveAgent
from waypost.client.chat import ChatMessage
from waypost.client.identity import AgentSigner, read_key
from waypost.errors import FingerprintMismatch
from waypost.trust.keys.private_key import PrivateKey, new_private_key

TESTS = Path(__file__).parents[1]
PATIENCE_SECONDS = 240.0
ALICE, BOB = "agent:alice.example.test", "agent:bob.example.test"


class Home(NamedTuple):
    """A service that answers for one agent."""

    agent: str
    server: RunningServer
    ca: Path

    @property
    def domain(self) -> str:
        return self.agent.removeprefix("agent:")

    @property
    def key_file(self) -> Path:
        return self.server.data / "keys/hosted" / f"{self.domain}.pem"

    @property
    def key(self) -> PrivateKey:
        return read_key(self.key_file)

    def client(self, signer: AgentSigner | None = None) -> Client:
        return Client(
            self.server.url, None if signer is not None else self.server.admin_token, ca=self.ca, signer=signer
        )


class Homes(NamedTuple):
    alice: Home
    bob: Home
    environment: dict[str, str]  # of commands that resolve names


@contextmanager
def homes(folder: Path) -> Iterator[Homes]:
    (folder / "zone").mkdir()
    authority = Authority(folder)
    with ExitStack() as opened:
        names, _ = opened.enter_context(served_zone(folder / "zone"))
        looking = {
            "WAYPOST_RESOLVER": names.address,
            "WAYPOST_TRUST_ANCHORS": str(folder / "zone/dns/trust-anchors"),
            "WAYPOST_ALLOW_CIDRS": "127.0.0.0/8",
            "WAYPOST_FETCH_CA": str(authority.certificate),
        }
        found = []
        for agent in (ALICE, BOB):
            cert, key = authority.server_files(agent.removeprefix("agent:"), "127.0.0.1")
            tls = ("--tls-cert", str(cert), "--tls-key", str(key))
            data = folder / agent.removeprefix("agent:")
            home = Home(
                agent, opened.enter_context(running_server(*tls, data=data, environment=looking)), authority.certificate
            )
            update_key = str(folder / "zone/dns/update.key")
            _settle(home, names.address, update_key)
            found.append(home)
        yield Homes(*found, clean_environment(looking))


def _settle(home: Home, nameserver: str, update_key: str) -> None:
    """The agent is registered, hosted under its domain and published in the zone, by the command."""
    environment = {**home.server.environment(), "WAYPOST_CA": str(home.ca)}
    name = f"urn:agent:{home.domain}"

    def run(*words: str, said: str = "") -> None:
        code, out, err = command_process.run(words, home.server.data, environment, said.encode(), PATIENCE_SECONDS)
        assert code == 0, (words, out.decode(), err.decode())

    run("register", "-", said=json.dumps(profile(name)))
    run("host", home.domain, name)
    zone = ("--address", "127.0.0.1", "--nameserver", nameserver, "--key", update_key)
    run("dns", "publish", home.domain, *zone)


@contextmanager
def program(home: Home, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The agent in its own process."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "support.messaging_agent", home.agent, str(home.key_file), home.server.url]
    given = {**environment, "PYTHONPATH": path, "TOKEN": home.server.admin_token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.req("ADP-36", "ADP-37", "ADP-40", "ADP-44", "ADP-46", "ADP-47", "ADP-48")
async def test_two_agents_found_by_dns_meet_talk_work_and_swarm_and_a_third_is_refused(tmp_path: Path) -> None:
    with homes(tmp_path) as places, program(places.alice, places.environment) as alice:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with places.alice.client() as client:
                await client.fetch(BOB, save=True)
                assert (await client.resolve(BOB)).level == "key-verified"
                token = (await client.mint_token("bob", ["discover:read"])).token
            bob = named_agent(BOB, places.bob.key, places.alice.server.url, token, places.environment)
            heard: asyncio.Queue[ChatMessage] = asyncio.Queue()
            bob.on_task(heard.put)
            async with bob:
                await they_talk_and_each_knows_who_the_other_is(places, bob)
                await they_work_and_the_result_is_brought(places)
                await they_are_told_what_is_said_in_their_swarm(places, bob, heard, alice)
            await a_third_is_refused(places)


async def they_talk_and_each_knows_who_the_other_is(places: Homes, bob: LiveAgent) -> None:
    reply = await bob.chat(ALICE, "good morning", timeout=PATIENCE_SECONDS)
    assert reply.text == f"{BOB} verified: good morning"
    assert reply.verdict is not None
    assert (reply.verdict.check, reply.verdict.state) == ("peer-verified", "passed")
    assert (reply.verdict.evidence["key_by"], reply.verdict.evidence["key_level"]) == ("domain", "key-verified")


async def they_work_and_the_result_is_brought(places: Homes) -> None:
    async with places.bob.client() as client:
        sent = await client.send_task("summarise", {"text": "a long story"}, agent=ALICE, as_agent=BOB)
        done = await client.wait_task(sent.task_id, PATIENCE_SECONDS)
        assert (done.status, done.result) == ("succeeded", {"from": BOB, "text": "a lon"}), done
        brought = 'waypost_requests_total{method="POST",route="/agent/webhook",status="200"}'
        await shows(places.bob, {brought: 1})  # counted when it was answered, which is after the result is there


async def shows(home: Home, wanted: dict[str, float]) -> None:
    """The figures of a service come to be these."""
    found: dict[str, float | None] = {}
    for _ in range(600):
        answer = await asyncio.to_thread(_metrics, home)
        lines = dict(line.rsplit(" ", 1) for line in answer.splitlines() if not line.startswith("#"))
        found = {name: float(lines[name]) if name in lines else None for name in wanted}
        if found == wanted:
            return
        await asyncio.sleep(0.1)
    assert found == wanted


def _metrics(home: Home) -> str:
    tls = ssl.create_default_context(cafile=home.ca)
    return httpx2.get(f"{home.server.url}/metrics", headers=home.server.headers, verify=tls, timeout=60).text


async def they_are_told_what_is_said_in_their_swarm(
    places: Homes, bob: LiveAgent, heard: asyncio.Queue[ChatMessage], alice: subprocess.Popen[str]
) -> None:
    registry = f"agent:{urlsplit(places.alice.server.url).hostname}"
    await bob.attach()
    async with places.alice.client() as hers, places.alice.client(AgentSigner(BOB, places.bob.key)) as his:
        swarm = await hers.join_swarm(ALICE, "analysis", "coordinator", host=ALICE)
        joined = await his.join_swarm(BOB, "analysis", host=ALICE)
        assert [(member.agent, member.role) for member in joined.members] == [
            (ALICE, "coordinator"),
            (BOB, "participant"),
        ]
        await hers.broadcast(swarm.swarm_id, ALICE, "half is done")
        told = await heard.get()
        assert (told.sender, told.verified) == (registry, True)
        assert (json.loads(told.text)["from"], json.loads(told.text)["content"]) == (ALICE, "half is done")
        await his.broadcast(swarm.swarm_id, BOB, "so is mine")
        assert alice.stdout is not None
        word, sender, text = (await asyncio.to_thread(alice.stdout.readline)).split(" ", 2)
        assert (word, sender, json.loads(text)["content"]) == ("told", registry, "so is mine")
    await shows(places.alice, {"waypost_swarms": 1, "waypost_held_lines": 2, "waypost_tasks_open": 0})


async def a_third_is_refused(places: Homes) -> None:
    """An impostor with the name of Alice connects to Bob."""
    now, key, other = time.time(), places.alice.key, new_private_key("ed25519", b"y" * 32)
    async with named_agent(ALICE, other, places.alice.server.url, None, places.environment) as impostor:
        with pytest.raises(FingerprintMismatch):
            await impostor.chat(BOB, "it is me")

    def hello(to: str = BOB, at: float = now, key: PrivateKey = key, **changed: str) -> str:
        return signed(ALICE, to, hello_text(ALICE, key=key), kind="system", at=at, key=key, **changed)

    frames = {
        "the true one": hello(id="1c5a9a4e-6a68-4f0c-8d2f-3b1f7f3a0c11"),
        "a wrong key": hello(key=other),
        "an old timestamp": hello(at=now - 400),
        "a replayed id": hello(id="1c5a9a4e-6a68-4f0c-8d2f-3b1f7f3a0c11"),
        "a foreign to": hello(to="agent:carol.example.test"),
        "a control character": hello(id="a\nb"),
    }
    through_a_relay = signed(BOB, ALICE, hello_text(BOB, key=places.bob.key), kind="system", at=now, key=places.bob.key)
    assert await refusal(places.alice, through_a_relay) is None
    assert await refusal(places.alice, through_a_relay) == (4401, "replay")  # Alice says so, and her registry ends it
    assert {name: await refusal(places.bob, frame) for name, frame in frames.items()} == {
        "the true one": None,
        "a wrong key": (4401, "fingerprint_mismatch"),
        "an old timestamp": (4401, "stale_timestamp"),
        "a replayed id": (4401, "replay"),
        "a foreign to": (4403, "not_authorized"),
        "a control character": (4400, "bad_message"),
    }


async def refusal(home: Home, frame: str) -> tuple[int, str | None] | None:
    """The code that refuses a first message; None if it is answered."""
    address = urlsplit(home.server.url)
    tls = ssl.create_default_context(cafile=home.ca)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    url = f"wss://{home.domain}:{address.port}/agent/chat"
    async with connect(url, host="127.0.0.1", port=address.port, ssl=tls, subprotocols=["adp-v1"]) as socket:  # type: ignore[list-item]
        await socket.send(frame)
        told: str | None = None
        try:
            while True:
                said = action_of(str(await socket.recv()))
                if said["action"] == "hello":
                    return None
                told = said.get("code", told)
        except ConnectionClosed as closed:
            return (closed.rcvd.code if closed.rcvd else 1006), told
