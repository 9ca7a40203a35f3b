"""Agents in separate processes, a service with two processes, and the command: they connect, chat and verify each other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import command_process
from support.agp import ALICE, BOB, key_of
from support.server import RunningServer, clean_environment, running_server
from support.service import profile
from support.shell import Shell
from waypost import Client, LiveAgent, SyncClient
from waypost.client.chat import ChatMessage
from waypost.client.identity import key_only_agent, load_chat_key
from waypost.errors import BadSignature, FingerprintMismatch, Unauthorized, UnknownPeer, WaypostError
from waypost.trust.document_signatures import sign_adp_public_key
from waypost.trust.keys.private_key import new_private_key

TESTS = Path(__file__).parents[1]
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--workers", "2", "--samples") as running:
        yield running


@contextmanager
def listener(folder: Path) -> Iterator[str]:
    """Bob, in a process of his own; the address that he takes calls at."""
    environment = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "support.agp_process", "listen", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as bob:
        try:
            assert bob.stdout is not None
            yield bob.stdout.readline().strip()
        finally:
            bob.kill()


def fingerprint(agent: str) -> str:
    return key_of(agent).public.fingerprint() or ""


async def test_two_agents_in_two_processes_meet_and_a_third_with_another_key_is_refused(tmp_path: Path) -> None:
    with listener(tmp_path) as url:
        async with LiveAgent(ALICE, key_of(ALICE)) as alice:
            alice.knows(BOB, url=url, fingerprint=fingerprint(BOB))
            reply = await alice.chat(BOB, "good morning", timeout=PATIENCE_SECONDS)
            assert str(reply) == "echo: good morning"
            assert reply.verdict is not None
            assert (reply.verdict.check, reply.verdict.state) == ("peer-verified", "passed")
        async with LiveAgent(ALICE, new_private_key("ed25519", b"z" * 32)) as false_alice:
            false_alice.knows(BOB, url=url, fingerprint=fingerprint(BOB))
            with pytest.raises(FingerprintMismatch):
                await false_alice.chat(BOB, "let me in")
        async with LiveAgent("agent:mallory.example.com", key_of("mallory")) as stranger:
            stranger.knows(BOB, url=url, fingerprint=fingerprint(BOB))
            with pytest.raises(Unauthorized):
                await stranger.chat(BOB, "let me in")
        async with LiveAgent(ALICE, key_of(ALICE)) as alice:
            alice.knows(BOB, url=url, fingerprint=fingerprint(ALICE))  # expects another key than his
            with pytest.raises((FingerprintMismatch, BadSignature)):
                await alice.chat(BOB, "is that you?")
            with pytest.raises(UnknownPeer):
                await alice.chat("agent:unheard.example.com", "hello?")


async def test_a_relayed_agent_is_reached_through_every_process(server: RunningServer) -> None:
    chat = f"ws{server.url.removeprefix('http')}/agent/chat"
    async with Client(server.url, server.admin_token) as client:
        for agent in (ALICE, BOB):
            domain = agent.removeprefix("agent:")
            public = sign_adp_public_key(key_of(agent), domain)
            await client.keys_trust(agent, key_of(agent).public.pem())
            await client.register(
                {
                    "protocol": "ADP/1.1",
                    "identity": {"id": agent, "domain": domain, "name": domain, "publicKey": public},
                    "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json", "chat": chat},
                    "capabilities": [{"id": "chat", "name": "Chat"}],
                }
            )
        bob = LiveAgent(BOB, key_of(BOB), registry=server.url, token=server.admin_token)

        @bob.on_chat
        async def spell(message: ChatMessage):  # type: ignore[no-untyped-def]
            for letter in message.text:
                yield letter

        async with bob, asyncio.timeout(PATIENCE_SECONDS):
            assert await bob.attach() == chat
            for _ in range(6):  # connections are dealt out to both processes by chance
                async with LiveAgent(ALICE, key_of(ALICE), registry=server.url, token=server.admin_token) as alice:
                    reply = await alice.chat(BOB, "abc")
                    assert [part.text for part in reply.parts] == ["a", "b", "c", ""]
                    assert reply.verdict is not None
                    assert reply.verdict.evidence["key_by"] == "registry"
        checks = {check.check: check.state for check in (await client.verify(BOB)).checks}
        assert checks["peer-verified"] == "passed"
        shown = (await client.document(BOB, "adp")).trust
        assert shown == "verified"


async def test_agents_whose_documents_an_operator_registered_meet_before_there_is_any_dns(
    server: RunningServer,
) -> None:
    """They name their own domains as the places of their conversations, which the registry answers for by `Host`."""
    carol, dave = "agent:carol.example.com", "agent:dave.example.com"
    async with Client(server.url, server.admin_token) as client:
        for agent in (carol, dave):
            await client.register(named_at_its_domain(agent))
    async with (
        LiveAgent(carol, key_of(carol), registry=server.url, token=server.admin_token) as caller,
        LiveAgent(dave, key_of(dave), registry=server.url, token=server.admin_token) as called,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        called.on_chat(_echo)
        await called.attach()
        reply = await caller.chat(dave, "hello")
        assert (str(reply), reply.verdict and reply.verdict.state) == ("echo: hello", "passed")


async def test_both_clients_call_an_agent_by_agp(server: RunningServer) -> None:
    """Erin listens on this machine; Frank is attached to the registry. Their documents were registered by the operator."""
    erin, frank = "agent:erin.example.com", "agent:frank.example.com"
    async with (
        LiveAgent(erin, key_of(erin)) as listening,
        LiveAgent(frank, key_of(frank), registry=server.url, token=server.admin_token) as attached,
        Client(server.url, server.admin_token, data=server.data) as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        caller = load_chat_key(server.data)
        for called in (listening, attached):
            called.on_chat(_echo)
            called.knows(key_only_agent(caller), fingerprint=caller.public.fingerprint())
        url = await listening.listen()
        for agent in (erin, frank):
            document = named_at_its_domain(agent)
            await client.register(
                {**document, "endpoints": {**document["endpoints"], "chat": url}} if agent == erin else document
            )
        await attached.attach()
        for agent in (erin, frank):
            answer = await client.call(agent, "grüß dich")
            assert (answer.text, answer.protocol, answer.agent_id) == ("echo: grüß dich", "agp", agent)
        with SyncClient(server.url, server.admin_token, data=server.data) as blocking:
            for agent in (erin, frank):
                assert await asyncio.to_thread(blocking.call, agent, "hello") == "echo: hello"


async def test_an_agent_with_another_key_is_not_called(server: RunningServer) -> None:
    grace = "agent:grace.example.com"
    async with (
        LiveAgent(grace, key_of("agent:mallory.example.com")) as false_grace,
        Client(server.url, server.admin_token, data=server.data) as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        false_grace.on_chat(_echo)
        document = named_at_its_domain(grace)
        await client.register({**document, "endpoints": {**document["endpoints"], "chat": await false_grace.listen()}})
        with pytest.raises(WaypostError, match="key"):
            await client.call(grace, "hello")


async def _echo(message: ChatMessage) -> str:
    return f"echo: {message.text}"


def named_at_its_domain(agent: str) -> dict[str, Any]:
    domain = agent.removeprefix("agent:")
    identity = {"id": agent, "domain": domain, "name": domain, "publicKey": sign_adp_public_key(key_of(agent), domain)}
    endpoints = {"wellKnown": f"https://{domain}/.well-known/agent.json", "chat": f"wss://{domain}/agent/chat"}
    talk = [{"id": "chat", "name": "Conversation"}]
    return {"protocol": "ADP/1.1", "identity": identity, "endpoints": endpoints, "capabilities": talk}


def run(server: RunningServer, *words: str, said: str) -> subprocess.CompletedProcess[str]:
    arguments = ["chat", *words]
    code, out, err = command_process.run(
        arguments, server.data.parent, server.environment(), said.encode(), PATIENCE_SECONDS
    )
    return subprocess.CompletedProcess(arguments, code, out.decode(), err.decode())


def test_the_command_talks_to_the_service_line_by_line(server: RunningServer) -> None:
    own = httpx2.get(f"{server.url}/.well-known/agent.json", verify=False, timeout=60).json()["identity"]["id"]
    found = run(server, own, said="echo one\n\ntranslate an invoice\n")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("one\n")
    assert "Invoice Translator" in found.stdout
    assert "peer-verified" in found.stderr
    lines = run(server, own, "-o", "jsonl", said="echo two\n")
    assert [json.loads(line)["text"] for line in lines.stdout.splitlines()] == ["two"]


def test_an_agent_that_speaks_agp_is_called_with_one_message(server: RunningServer, tmp_path: Path) -> None:
    own = httpx2.get(f"{server.url}/.well-known/agent.json", verify=False, timeout=60).json()["identity"]["id"]
    shell = Shell(tmp_path, server.environment())
    ran = shell("call", own, "echo", "one")
    assert (ran.code, ran.out) == (0, "one\n")
    value = shell("call", own, "echo two", "-o", "json").json
    assert (value["text"], value["protocol"]) == ("two", "agp")
    assert shell("call", "agent:nobody.example", "hello").code == 77


def test_the_command_reports_unknown_agents_and_wrong_keys(server: RunningServer) -> None:
    unknown = run(server, "agent:nobody.example", said="hello\n")
    assert unknown.returncode == 77
    assert "agent:nobody.example is unknown" in unknown.stderr
    own = httpx2.get(f"{server.url}/.well-known/agent.json", verify=False, timeout=60).json()["identity"]["id"]
    other = run(server, own, "--fingerprint", fingerprint(BOB), said="hello\n")
    assert other.returncode == 77
    assert "the known key is" in other.stderr
    plain = run(server, own, "--url", "ws://chat.example.com/", "--fingerprint", fingerprint(BOB), said="hello\n")
    assert plain.returncode == 64


def test_the_command_talks_to_a_hosted_agent_before_there_is_any_dns_and_never_to_another_in_its_place(
    server: RunningServer,
) -> None:
    with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
        for name in ("urn:agent:hosted", "urn:agent:homeless"):
            assert http.post("/api/v1/agents", json=profile(name)).is_success
        assert http.post("/api/v1/agents/urn:agent:hosted:host", json={"domain": "hosted.example.com"}).is_success
    for wanted in ("urn:agent:hosted", "hosted.example.com"):
        found = run(server, wanted, said="hello\n")
        assert found.returncode == 0, found.stderr
        assert "is hosted here" in found.stdout
        assert "Connected to hosted.example.com: peer-verified" in found.stderr
    homeless = run(server, "urn:agent:homeless", said="hello\n")
    assert homeless.returncode == 69
    assert "has no domain" in homeless.stderr
