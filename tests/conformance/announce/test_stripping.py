"""C15: if a key is bound to an id, an unsigned message for that id changes nothing, on any API, and is in the audit
trail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.announce import AGENT_ID, agent, announce, announcement, error_of, key
from support.external_server import external_server
from support.service import NOW, profile
from support.websocket_clients import SocketBench, socket_service
from waypost.errors import BadSignature
from waypost.server.api.announce.lan import LanBridge
from waypost.transports.port import MessageContext

EVIL = {"evil": "1"}
RECORD_ID = f"urn:uuid:{AGENT_ID}"
NEIGHBOUR_ID = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"


def stripped(**more: Any) -> dict[str, Any]:
    """A newer announcement of the agent, from which a relay has removed the signature."""
    message = announcement(key("a"), seq=9, at=NOW, capabilities=EVIL, **more)
    del message["signature"]
    return message


async def trail(bench: SocketBench) -> list[tuple[str, str, str, str]]:
    entries = (await bench.bench.admin().get("/api/v1/audit", params={"limit": "100"})).json()["entries"]
    return [
        (entry["subject"], entry["via"], entry["object"], entry["outcome"])
        for entry in entries
        if entry["action"] == "refuse"
    ]


async def by_http(client: httpx2.AsyncClient) -> None:
    """Try announce, register and batch as one caller."""
    assert error_of(await announce(client, stripped())) == (401, "ErrAuth", "unsigned")
    for document in (stripped(), agent(capabilities=EVIL)):
        assert (await client.post("/api/v1/agents", json=document)).status_code == 401
    line = json.dumps(stripped()).encode() + b"\n"
    assert (await client.post("/api/v1/agents:batch", content=line)).json()["error"]["code"] == "unauthorized"


async def on_the_lan(lan: LanBridge) -> None:
    """For an agent that was received on the LAN, and a goodbye for one that was registered directly: other LAN messages about
    the latter are ignored."""
    for carrier in ("mdns", "udp", "bus"):
        how = MessageContext(transport=carrier, source="10.0.0.9")
        await lan.receive(announcement(key("n"), seq=1, at=NOW, agent_id=NEIGHBOUR_ID), how)
        await lan.receive(stripped(), how)
        for message in (stripped(agent_id=NEIGHBOUR_ID), stripped(metadata={"__state": "shutdown"})):
            with pytest.raises(BadSignature):
                await lan.receive(message, how)


@pytest.mark.req("ANN-20")
async def test_a_pinned_id_without_its_signature_is_refused_by_every_way_in_and_seen(tmp_path: Path) -> None:
    async with (
        socket_service(tmp_path, trust_mode="tofu", allow_cidrs=("127.0.0.1/32",)) as bench,
        external_server() as site,
    ):
        owner, relay, admin = bench.bench.as_("owner"), bench.bench.as_("relay"), bench.bench.admin()
        assert (await announce(owner, announcement(key("a"), seq=1, at=NOW))).is_success
        before = (await owner.get(f"/agents/{AGENT_ID}")).content

        for client in (owner, relay, admin):
            await by_http(client)
        told = await (await bench.session("relay")).announce(stripped())
        assert told["code"] == "ErrAuth"
        await on_the_lan(LanBridge(bench.bench.registry, bench.bench.application.renderer, []))
        site.json("/agent.json", stripped())
        url = f"http://127.0.0.1:{site.port}/agent.json"
        for client in (owner, relay):
            fetched = await client.post("/api/v1/agents:fetch", json={"url": url, "save": True})
            assert fetched.status_code == 401, fetched.text

        assert (await owner.get(f"/agents/{AGENT_ID}")).content == before
        seen = await trail(bench)
        assert {outcome for *_, outcome in seen} == {"unsigned"}
        assert {object_id for _, _, object_id, _ in seen} == {RECORD_ID, f"urn:uuid:{NEIGHBOUR_ID}"}
        assert {via for _, via, _, _ in seen} >= {"announce", "http", "mdns", "udp", "bus", "import"}
        assert len(seen) == 3 * 4 + 1 + 2 * 3 + 2


@pytest.mark.req("ANN-20")
async def test_a_pinned_id_in_another_dialect_does_not_change_the_signed_agent(tmp_path: Path) -> None:
    """For another caller it is a conflict; for the owner it awaits confirmation."""
    async with socket_service(tmp_path, trust_mode="tofu") as bench:
        owner, relay = bench.bench.as_("owner"), bench.bench.as_("relay")
        assert (await announce(owner, announcement(key("a"), seq=1, at=NOW))).is_success
        before = [(await owner.get(path)).content for path in (f"/agents/{AGENT_ID}", f"/api/v1/agents/{RECORD_ID}")]
        for document in (profile(RECORD_ID), profile(AGENT_ID)):
            assert (await relay.post("/api/v1/agents", json=document)).status_code == 409
            held = await owner.post("/api/v1/agents", json=document)
            assert (held.status_code, held.json()["outcome"]) == (202, "held")
        after = [(await owner.get(path)).content for path in (f"/agents/{AGENT_ID}", f"/api/v1/agents/{RECORD_ID}")]
        assert after == before
