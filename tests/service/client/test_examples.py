"""The examples in the docstrings are run as they are written, against a service of their own."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import waypost
from support.agp import key_of
from support.callable_agents import http_app, serving
from support.docstrings import as_function, example_of, public_classes, public_methods
from support.server import RunningServer, running_server
from support.website import website
from waypost import Agent, Client, LiveAgent, SyncClient, samples
from waypost.client.identity import load_identity
from waypost.model.json import dump_json
from waypost.model.times import to_rfc3339
from waypost.testing import ManualClock, MemoryNetwork
from waypost.trust.document_signatures import sign_adp_public_key, sign_profile
from waypost.trust.keys.private_key import new_private_key

PATIENCE_SECONDS = 120.0
ALICE, BOB, TRANSLATOR = "agent:alice.example.com", "agent:bob.example.com", "agent:translator.example.com"
OWN = "https://agents.example.com/id/own-translator"  # of agent.json
HELD = ("held", "confirm", "reject")
HOSTED = ("zone", "invite", "revoke_invitation", "redeem")
ON_THE_INTERNET = {
    "resolve": "the name is in the DNS of the internet; tests/e2e/test_dns_tutorial.py resolves",
    "organisation": "as resolve",
    "check_domain": "as resolve; tests/service/domains proves domains",
    "published_proof": "the published log has its first leaf after an hour; tests/service/client/test_audit.py waits",
}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningServer]:
    with running_server("--samples", "--anonymous-read", "--allow-cidrs", "127.0.0.0/8") as running:
        yield running


@pytest.fixture(scope="module")
def agents_at_start(service: RunningServer) -> dict[str, Agent]:
    with SyncClient(service.url, service.admin_token) as admin:
        return {agent.id: agent for agent in admin.list()}


@pytest.fixture
def server(service: RunningServer, agents_at_start: dict[str, Agent]) -> RunningServer:
    """The service with the samples alone, whatever the example before it left."""
    with SyncClient(service.url, service.admin_token) as admin:
        for agent in list(admin.list()):
            if agent.id not in agents_at_start:
                admin.withdraw(agent.id)
        assert {agent.id: agent for agent in admin.list()} == agents_at_start, "an example changed a sample"
    return service


@pytest.fixture(scope="module")
def partner() -> Iterator[str]:
    """Another registry."""
    with running_server("--store", "memory", "--anonymous-read") as running:
        yield running.url


@pytest.fixture(scope="module")
def agent_url() -> Iterator[str]:
    with serving(http_app()) as url:
        yield url


@pytest.fixture
def words(server: RunningServer, agent_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an example may name, in a folder with the files that examples read."""
    monkeypatch.setenv("WAYPOST_SERVER", server.url)
    monkeypatch.setenv("WAYPOST_DATA", str(server.data))
    documents = {sample.name: sample.data for sample in samples.load()}
    translator = json.loads(documents["invoice-translator"])
    translator |= {"id": OWN, "bindings": [{"protocol": "http", "endpoint": f"{agent_url}/plain"}]}
    translator["updated_at"] = to_rfc3339(time.time())
    Path("agent.json").write_bytes(dump_json(translator))
    card = json.loads(documents["tax-clerk"].replace(b"tax.example", b"card.example"))
    Path("agent-card.json").write_bytes(dump_json(card | {"name": "Clerk of Alice"}))
    Path("agents").mkdir()
    Path("agents", "one.json").write_bytes(documents["museum-guide"])
    Path("translator.pem").write_text(new_private_key("ed25519", os.urandom(32)).public.pem())
    Path("alice.pem").write_bytes(key_of(ALICE).pem())
    public = {name: getattr(waypost, name) for name in waypost.__all__}
    helpers = {"Path": Path, "os": os, "asyncio": asyncio, "load_identity": load_identity}
    return {**public, **helpers, "MemoryNetwork": MemoryNetwork, "ManualClock": ManualClock}


def prepare(method: str, server: RunningServer, partner: str) -> str:
    """What must be there before the example of a method; the token of the caller."""
    with SyncClient(server.url, server.admin_token) as admin:
        alice = admin.mint_token("alice", ["discover:read", "discover:write"]).token
        if method in HELD:
            admin.keys_trust(TRANSLATOR, key_of(TRANSLATOR).public.pem())
            agent = Agent(TRANSLATOR, "Translator", "Translates.").bind("https", "https://translator.example.com/a")
            with SyncClient(server.url, alice) as owner:
                owner.register(sign_profile(agent, key_of(TRANSLATOR)))
                owner.register(
                    Agent(TRANSLATOR, "Translator", "Translates.").bind("https", "https://other.example.com/")
                )
            return alice
        if method in HOSTED:
            with contextlib.suppress(waypost.errors.NotFound):
                admin.withdraw(TRANSLATOR)
            admin.register(adp_document(TRANSLATOR), visibility="public" if method == "zone" else "private")
        if method == "call":
            admin.register(Path("agent.json"))
        if method.startswith("peers_"):
            with contextlib.suppress(waypost.errors.NotFound):
                admin.peers_remove("partner")
            if method != "peers_add":
                admin.peers_add(partner, name="partner")
    return server.admin_token


def adp_document(agent: str, chat: str | None = None) -> dict[str, Any]:
    domain = agent.removeprefix("agent:")
    identity = {"id": agent, "domain": domain, "name": domain, "publicKey": sign_adp_public_key(key_of(agent), domain)}
    endpoints = {
        "wellKnown": f"https://{domain}/.well-known/agent.json",
        "chat": chat or f"wss://{domain}/agent/chat",
    }
    capabilities = [{"id": "chat", "name": "Conversation"}]
    return {"protocol": "ADP/1.1", "identity": identity, "endpoints": endpoints, "capabilities": capabilities}


def compile_example(
    thing: Any, server: RunningServer, *, is_async: bool = True, site: str = "", partner: str = ""
) -> str:
    code = example_of(thing)
    assert code is not None, thing
    code = code.replace("http://127.0.0.1:8440", server.url).replace("https://registry.example.com", partner)
    code = code.replace('call("invoice-translator"', f'call("{OWN}"')  # the endpoint of the sample is not served
    return as_function(code.replace("https://agents.example.com/.well-known", site), is_async=is_async)


RUN = [name for name, _ in public_methods(Client) if name not in ON_THE_INTERNET]


@pytest.mark.parametrize("name", RUN)
async def test_the_example_of_a_client_method_works(
    name: str, server: RunningServer, partner: str, words: dict[str, Any]
) -> None:
    token = prepare(name, server, partner)
    with website(Path.cwd()) as site, contextlib.redirect_stdout(io.StringIO()):
        code = compile_example(getattr(Client, name), server, site=site, partner=partner)
        async with Client(server.url, token) as wp, asyncio.timeout(PATIENCE_SECONDS):
            names = {**words, "wp": wp}
            exec(code, names)
            await names["example"]()


@pytest.mark.parametrize("name", RUN)
def test_the_example_of_a_blocking_method_works(
    name: str, server: RunningServer, partner: str, words: dict[str, Any]
) -> None:
    token = prepare(name, server, partner)
    method = getattr(SyncClient, "close" if name == "aclose" else name)
    with website(Path.cwd()) as site, contextlib.redirect_stdout(io.StringIO()):
        code = compile_example(method, server, is_async=False, site=site, partner=partner)
        with SyncClient(server.url, token) as wp:
            names = {**words, "wp": wp}
            exec(code, names)
            names["example"]()


@pytest.fixture
async def bob(server: RunningServer) -> AsyncIterator[LiveAgent]:
    """An agent that listens; its document and that of Alice are registered."""
    agent = LiveAgent(BOB, key_of(BOB), registry=server.url)

    @agent.on_chat
    async def answer(message: waypost.ChatMessage) -> str:
        return f"You said {message.text}."

    async with agent, Client(server.url, server.admin_token) as admin:
        await admin.register(adp_document(BOB, await agent.listen()))
        await admin.register(adp_document(ALICE))
        yield agent


OTHERS = [
    pytest.param(kind, method, id=f"{kind.__name__}.{name}")
    for kind in public_classes()
    if kind not in (Client, SyncClient)
    for name, method in public_methods(kind)
]


@pytest.mark.usefixtures("bob")
@pytest.mark.parametrize(("kind", "method"), OTHERS)
async def test_the_example_of_another_method_works(
    kind: type, method: Any, server: RunningServer, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = MemoryNetwork(ManualClock(time.time()))
    for module in ("announcer", "finder"):
        monkeypatch.setattr(f"waypost.client.{module}.default_transports", lambda _: [network.transport("here")])
    with SyncClient(server.url, server.admin_token) as client, contextlib.redirect_stdout(io.StringIO()):
        names = {**words, "client": client}
        exec(compile_example(method, server), names)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await names["example"]()
