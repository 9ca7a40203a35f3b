"""Words that occur only in hidden records are searched in all output of the service (V7).

One word is in private records, one in internal ones. A caller without access finds it nowhere: in no response of any route
(routes are read from the service, so new ones are included), no event, no LAN or bus packet, no log line and no metric label.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.announce import announce, announcement, key
from support.service import NOW, Bench, profile, service
from support.transports import Watched
from support.websocket_clients import socket_service
from waypost.app.http import MOUNTED_ROUTES
from waypost.model.principal import ANONYMOUS, SCOPE_READ, Principal
from waypost.protocols.announce.messages import AgentQuery
from waypost.server.api.announce.lan import LanBridge
from waypost.transports.memory import MemoryNetwork

PRIVATE, INTERNAL = "quagmirebird", "fenlantern"
HIDDEN = {"private": PRIVATE, "internal": INTERNAL}
PLAIN_IDS = {
    "private": "urn:agent:plain-1",
    "internal": "urn:agent:plain-2",
}  # to be asked for by name: an echo is no leak
UUIDS = {"private": "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511", "internal": "d2b7c9a4-92a4-4b8e-8a53-1c6f0f6a7e22"}
BOB = Principal(subject="bob", scopes=frozenset((SCOPE_READ,)))
STREAMS = ("/changes/stream", "/api/v1/watch", "/agent/chat")
ASKED = "sings songs to whoever asks"


def of_profile(agent_id: str, word: str) -> dict[str, Any]:
    return profile(
        agent_id,
        name=f"The {word}",
        description=f"Sings songs like a {word} to whoever asks.",
        tags=[word],
        bindings=[{"protocol": word, "endpoint": f"https://{word}.example/sing"}],
        constraints={"region": word},
        metadata={"note": word},
    )


def of_card(word: str) -> dict[str, Any]:
    return {
        "agent_id": f"{word}-card",
        "name": word,
        "description": f"Sings songs, says the {word}.",
        "capabilities": [{"capability_id": word, "description": word}],
        "communication": {
            "protocols": ["http"],
            "endpoints": [{"protocol": "http", "uri": f"http://{word}.example/"}],
        },
        "discovery_tags": [word],
    }


def of_domain(word: str) -> dict[str, Any]:
    domain = f"{word}.example"
    full = (
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
        "-----END PUBLIC KEY-----\n"
    )
    known = {
        "algorithm": "ed25519",
        "fingerprint": "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw",
        "full": full,
    }
    return {
        "protocol": "ADP/1.0",
        "identity": {"id": f"agent:{domain}", "domain": domain, "name": f"Singer {word}", "publicKey": known},
        "endpoints": {
            "wellKnown": f"https://{domain}/.well-known/agent.json",
            "chat": f"wss://{domain}/agent/chat",
        },
        "capabilities": [{"id": word, "name": word, "description": f"Sings songs: {word}."}],
    }


def of_announcement(visibility: str, word: str) -> dict[str, Any]:
    said = {"agent_name": word, "capabilities": {word: "1.0"}, "metadata": {"description": f"Sings songs: {word}."}}
    return announcement(key(word), seq=1, at=NOW, agent_id=UUIDS[visibility], **said)


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[Bench]:
    """Hidden agents of every kind, each changed once, and one that everybody sees."""
    async with service(folder, anonymous_read=True, trust_mode="tofu") as bench:
        alice, admin = bench.as_("alice"), bench.admin()
        for visibility, word in HIDDEN.items():
            header = {"Waypost-Visibility": visibility}
            first = of_profile(f"https://{word}.example/agent", word)
            documents = [first, of_profile(PLAIN_IDS[visibility], word), of_card(word), {**first, "version": "2"}]
            for document in documents:
                assert (await alice.post("/api/v1/agents", json=document, headers=header)).is_success
            assert (await announce(alice, of_announcement(visibility, word), headers=header)).is_success
            hosted = await admin.post("/api/v1/agents", json=of_domain(word), headers=header)
            assert hosted.is_success, hosted.text
        assert (await announce(alice, announcement(key("a"), seq=1, at=NOW))).is_success
        yield bench


def paths(bench: Bench) -> list[str]:
    routes = [*bench.application.http_app.router.routes, *MOUNTED_ROUTES]
    found = {route.path for route in routes if route.method == "GET"} - set(STREAMS)
    found |= {"/api/v1/agents:export?as=profile", "/agents?signed=true", "/?q=sings", "/?part=found&q=sings"}
    named = [path.replace("{id}", agent_id) for path in found for agent_id in (*PLAIN_IDS.values(), *UUIDS.values())]
    return sorted({path for path in named if "{" not in path})


async def answers(bench: Bench, client: httpx2.AsyncClient) -> dict[str, str]:
    """All responses to this caller, with their headers."""
    found = {path: await client.get(path) for path in paths(bench)}
    for host in (f"{word}.example" for word in HIDDEN.values()):
        for path in ("/", "/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent-card"):
            found[f"{path} at {host}"] = await client.get(path, headers={"Host": host})
    asked = {"query": ASKED, "limit": 50, "include_evidence": True, "facets": ["tag", "protocol", "status", "owner"]}
    found["discover"] = await client.post("/profile/v1/discover", json=asked)
    found["discover, nothing"] = await client.post(
        "/profile/v1/discover", json={"query": "x", "required_tags": ["quag"]}
    )
    call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"discovery_query": {}}}
    found["rtfs"] = await client.post("/rtfs", json=call)
    return {name: _unechoed(name, f"{answer.headers}\n{answer.text}") for name, answer in found.items()}


def _unechoed(name: str, text: str) -> str:
    """Without the host that the caller named."""
    host = name.partition(" at ")[2]
    return text.replace(host, "") if host else text


def leaks(found: dict[str, str], *words: str) -> list[tuple[str, str]]:
    return [(name, word) for name, text in found.items() for word in words if word in text.lower()]


async def test_no_text_of_a_hidden_record_is_in_any_response(tmp_path: Path) -> None:
    async with house(tmp_path) as bench:
        assert leaks(await answers(bench, bench.as_("bob")), PRIVATE) == []
        assert leaks(await answers(bench, bench.anonymous()), PRIVATE, INTERNAL) == []
        metrics = {"metrics": (await bench.admin().get("/metrics")).text}
        assert leaks(metrics, PRIVATE, INTERNAL) == []
        seen = leaks(await answers(bench, bench.as_("alice")), PRIVATE)
        assert len(seen) > 15, "whoever may see them does, by the same ways"


async def test_no_text_of_a_hidden_record_is_in_any_event_or_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with house(tmp_path) as bench:
            await answers(bench, bench.as_("alice"))
            for who, words in ((BOB, (PRIVATE,)), (ANONYMOUS, (PRIVATE, INTERNAL))):
                cursor, watch = await bench.registry.open_watch(who, "0", renewals=True)
                told = repr((cursor, await anext(watch)))
                assert leaks({"watch": told}, *words) == []
    lines = {str(at): entry.getMessage() for at, entry in enumerate(caplog.records) if entry.name.startswith("waypost")}
    assert leaks(lines, PRIVATE, INTERNAL) == []


@pytest.mark.parametrize("carrier", ["mdns", "bus"])
async def test_no_text_of_a_hidden_record_is_sent_to_the_lan_or_a_bus(tmp_path: Path, carrier: str) -> None:
    async with house(tmp_path) as bench:
        network, watched = MemoryNetwork(bench.clock), Watched()
        listener = network.transport("listener")
        carriers = [network.transport("registry", name=carrier)]
        lan = LanBridge(bench.registry, bench.application.renderer, carriers, anonymous_read=True, publish=True)
        await lan.start()
        await listener.open()
        await listener.subscribe(watched)
        await lan.publish()
        await network.settle()
        heard = [sighting.message for sighting in watched.sightings]
        heard += await listener.query(AgentQuery(), timeout=0.05)
        heard += await lan.answer(AgentQuery())
        assert leaks({"heard": json.dumps(heard)}, PRIVATE, INTERNAL) == []
        assert "data-processor" in json.dumps(heard), "what is public is told"
        await lan.stop()
        await listener.close()


async def test_no_text_of_a_hidden_record_is_sent_on_a_websocket(tmp_path: Path) -> None:
    async with socket_service(tmp_path, anonymous_read=True) as bench:
        sessions = [(await bench.session_with(None), (PRIVATE, INTERNAL)), (await bench.session("bob"), (PRIVATE,))]
        for session, _ in sessions:
            await session.subscribe()
        alice = bench.bench.as_("alice")
        for visibility, word in HIDDEN.items():
            header = {"Waypost-Visibility": visibility}
            assert (await announce(alice, of_announcement(visibility, word), headers=header)).is_success
        assert (await announce(alice, announcement(key("a"), seq=1, at=NOW))).is_success
        for session, words in sessions:
            told: list[Any] = []
            while not any("data-processor" in json.dumps(each) for each in told):
                told.append(await session.next())
            told.append(await session.query())
            assert leaks({"told": json.dumps(told)}, *words) == []
