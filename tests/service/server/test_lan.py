"""The registry on the LAN: the same admission as over HTTP, no reply to a refused message, responses to queries."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, announce, announcement, key
from support.ports import free_port
from support.service import NOW, service
from support.transports import Watched, eventually, query_until_found, signed_members
from waypost import limits
from waypost.errors import ConfigurationError, RateLimited, Replayed, WaypostError
from waypost.model.json import JsonObject
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.registry.registry import Registry
from waypost.server.api.announce.lan import LanBridge
from waypost.settings import Settings
from waypost.transports.memory import MemoryNetwork
from waypost.transports.port import MessageContext, UnknownSender
from waypost.transports.udp import UdpTransport

METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))


def lan(**more: Any) -> dict[str, Any]:
    return {"udp": True, "udp_interface": "lo", "udp_port": free_port(), **more}


def end(settings: dict[str, Any], clock: ManualClock) -> UdpTransport:
    return UdpTransport(["lo"], clock, port=settings["udp_port"])


async def test_a_lan_announcement_is_registered_with_its_source_and_expires_by_its_ttl(tmp_path: Path) -> None:
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        transport = end(settings, bench.clock)
        await transport.open()
        await transport.announce(announcement(key("a"), seq=1, at=NOW), 10)
        admin = bench.admin()
        await eventually(lambda: len(bench.registry.entries) == 1)
        judged = (await admin.get(f"/api/v1/agents/urn:uuid:{AGENT_ID}:verify")).json()
        assert judged["trust"]["level"] == "verified"
        assert [document["via"] for document in judged["documents"]] == ["udp"]
        bench.clock.advance(11)
        assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 404
        await transport.close()


async def test_a_lan_announcement_lives_for_an_hour_at_most(tmp_path: Path) -> None:
    """P-7: nobody signs the ttl, so whoever repeats a packet could make it as long as any lease."""
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        transport = end(settings, bench.clock)
        await transport.open()
        await transport.announce(announcement(key("a"), seq=1, at=NOW), 86_400)
        await eventually(lambda: len(bench.registry.entries) == 1)
        agent = f"/agents/{AGENT_ID}"
        bench.clock.advance(3599)
        assert (await bench.admin().get(agent)).status_code == 200
        bench.clock.advance(2)
        assert (await bench.admin().get(agent)).status_code == 404
        await transport.close()


async def test_the_allow_list_applies_to_the_lan_and_refusals_are_silent(tmp_path: Path) -> None:
    settings = lan()
    async with service(tmp_path, **settings) as bench:
        transport, back = end(settings, bench.clock), Watched()
        await transport.open()
        await transport.subscribe(back)
        await transport.announce(announcement(key("a"), seq=1, at=NOW), 30)
        admin = bench.admin()
        await asyncio.sleep(0.3)
        assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 404
        assert (await admin.post("/api/v1/allow", json={"rule": AGENT_ID})).is_success
        await transport.announce(announcement(key("a"), seq=2, at=NOW), 30)
        await eventually(lambda: len(bench.registry.entries) == 1)
        await transport.close()


async def test_a_replay_another_key_and_a_broken_signature_change_nothing(tmp_path: Path) -> None:
    """L1."""
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        transport = end(settings, bench.clock)
        await transport.open()
        await transport.announce(announcement(key("a"), seq=5, at=NOW), 30)
        await eventually(lambda: len(bench.registry.entries) == 1)
        await transport.announce(announcement(key("a"), seq=4, at=NOW, capabilities={"old": "1"}), 30)
        await transport.announce(announcement(key("mallory"), seq=9, at=NOW, capabilities={"evil": "1"}), 30)
        broken = announcement(key("a"), seq=10, at=NOW)
        broken["agent"]["capabilities"] = {"evil": "1"}
        await transport.announce(broken, 30)
        await transport.announce(announcement(key("a"), seq=6, at=NOW, capabilities={"new": "1"}), 30)
        admin = bench.admin()
        for _ in range(3000):
            found = (await admin.get(f"/agents/{AGENT_ID}")).json()["agent"]["capabilities"]
            if found == {"new": "1"}:
                break
            assert found == {"metrics": "2.0"}
            await asyncio.sleep(0.02)
        assert found == {"new": "1"}
        await transport.close()


async def test_a_lan_query_is_answered_with_public_agents_only(tmp_path: Path) -> None:
    """Agents of the registry are shown only if reading needs no token; private ones never."""
    private = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
    for anonymous_read, told in ((False, set()), (True, {AGENT_ID})):
        settings = lan(anonymous_read=anonymous_read, trust_mode="tofu")
        async with service(tmp_path / str(anonymous_read), **settings) as bench:
            client = bench.as_("ada")
            assert (await announce(client, announcement(key("a"), seq=1, at=NOW))).is_success
            hidden = announcement(key("b"), seq=1, at=NOW, agent_id=private)
            assert (await announce(client, hidden, headers={"Waypost-Visibility": "private"})).is_success
            transport = end(settings, bench.clock)
            await transport.open()
            found = await query_until_found(transport, METRICS, told)
            assert {message["agent"]["agent_id"] for message in found} == told
            await transport.close()


async def test_one_agent_may_come_by_the_lan_and_by_http(tmp_path: Path) -> None:
    """A caller that announces the agent with a token and the same key becomes its owner. The document that it registered
    directly stays until it expires or the agent sends a goodbye."""
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        transport, ada = end(settings, bench.clock), bench.as_("ada")
        await transport.open()
        await transport.announce(announcement(key("a"), seq=1, at=NOW), 30)
        await eventually(lambda: len(bench.registry.entries) == 1)
        whole = announcement(key("a"), seq=2, at=NOW, metadata={"description": "All of it."})
        assert (await announce(ada, whole)).status_code == 200
        await transport.announce(announcement(key("a"), seq=3, at=NOW), 30)
        await asyncio.sleep(0.3)
        kept = (await ada.get(f"/agents/{AGENT_ID}")).json()["agent"]
        assert kept["metadata"]["description"] == "All of it."
        bench.clock.advance(121)
        await transport.announce(announcement(key("a"), seq=4, at=bench.clock.now()), 30)
        for _ in range(3000):
            found = await ada.get(f"/agents/{AGENT_ID}")
            if found.is_success:
                break
            await asyncio.sleep(0.02)
        assert "description" not in found.json()["agent"]["metadata"]
        assert (await announce(ada, announcement(key("a"), seq=5, at=bench.clock.now()))).status_code == 200
        assert (await ada.delete(f"/agents/{AGENT_ID}")).status_code == 204
        await transport.close()


async def test_a_record_that_was_not_announced_is_not_taken_over_from_the_lan(tmp_path: Path) -> None:
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        ada, transport = bench.as_("ada"), end(settings, bench.clock)
        held = {
            "id": f"urn:uuid:{AGENT_ID}",
            "name": "Held",
            "description": "Held by Ada.",
            "bindings": [{"protocol": "https", "endpoint": "https://example.net/a"}],
        }
        assert (await ada.post("/api/v1/agents", json=held)).status_code == 201
        await transport.open()
        await transport.announce(announcement(key("mallory"), seq=1, at=NOW), 30)
        await asyncio.sleep(0.3)
        found = (await ada.get(f"/api/v1/agents/urn:uuid:{AGENT_ID}")).json()
        assert found["name"] == "Held"
        await transport.close()


async def test_public_agents_are_published_on_the_lan_as_signed_and_private_ones_never(tmp_path: Path) -> None:
    private = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
    async with service(tmp_path, trust_mode="tofu") as bench:
        network, watched = MemoryNetwork(bench.clock), Watched()
        listener, carrier = network.transport("listener"), network.transport("registry", name="mdns")
        lan = LanBridge(bench.registry, bench.application.renderer, [carrier], publish=True)
        await lan.start()
        await listener.open()
        await listener.subscribe(watched)
        ada = bench.as_("ada")
        message = announcement(key("a"), seq=1, at=NOW)
        assert (await announce(ada, message)).is_success
        hidden = announcement(key("b"), seq=1, at=NOW, agent_id=private)
        assert (await announce(ada, hidden, headers={"Waypost-Visibility": "private"})).is_success
        await lan.publish()
        await eventually(lambda: watched.kinds(AGENT_ID) == ["added"])
        await network.settle()
        assert watched.kinds(private) == []
        assert signed_members(watched.sightings[0].message) == message
        assert (await ada.delete(f"/agents/{AGENT_ID}")).status_code == 204
        await lan.publish()
        assert await listener.query(METRICS, timeout=0.05) == []
        await lan.stop()
        await listener.close()


def test_publishing_on_the_lan_needs_the_lan(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="mdns_publish"):
        Settings(data=tmp_path, mdns_publish=True)


async def test_an_interface_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-such-interface"):
        async with service(tmp_path, udp=True, udp_interface="no-such-interface"):
            pass


async def test_only_an_operator_sees_the_number_of_dropped_packets(tmp_path: Path) -> None:
    settings = lan(trust_mode="tofu")
    async with service(tmp_path, **settings) as bench:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.bind(("127.0.0.1", 0))

            def flood() -> bool:
                for _ in range(200):
                    sender.sendto(b"{}", ("127.255.255.255", settings["udp_port"]))
                assert bench.application.lan is not None
                return bench.application.lan.dropped() > 0

            await eventually(flood)
        shown = (await bench.admin().get("/metrics")).text
        figures = dict(line.split() for line in shown.splitlines() if line.startswith("waypost_lan"))
        assert float(figures["waypost_lan_dropped"]) > 0
        assert float(figures["waypost_lan_parked"]) == 0
        assert "waypost_websocket_sessions 0" in shown
        hidden = (await bench.as_("ada").get("/metrics")).text
        assert "lan_dropped" not in hidden
        assert "websocket_sessions" not in hidden


async def test_a_registry_bounds_concurrent_announcements_and_drops_the_excess(tmp_path: Path) -> None:
    """L3: an agent that is present announces itself again."""
    network = MemoryNetwork(ManualClock(NOW))
    async with service(tmp_path, trust_mode="tofu", store="sqlite") as bench:
        made = LanBridge(bench.registry, bench.application.renderer, [network.transport("registry")])
        ids = [f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d" for number in range(limits.LAN_QUEUE + 20)]
        said_at_once = [announcement(key("a"), seq=1, at=NOW, agent_id=agent_id) for agent_id in ids]

        async def refused(sources: int, some: list[JsonObject]) -> int:
            hows = [MessageContext(transport="udp", source=f"10.0.0.{number % sources}") for number in range(len(some))]
            heard = (made.receive(each, how) for each, how in zip(some, hows, strict=True))
            outcomes = await asyncio.gather(*heard, return_exceptions=True)
            assert {type(each) for each in outcomes} <= {RateLimited, type(None)}
            return sum(each is not None for each in outcomes)

        assert await refused(1, said_at_once[:100]) == 100 - limits.LAN_QUEUE_PER_SOURCE
        assert await refused(20, said_at_once) == 20
        assert await refused(1, said_at_once[-20:]) == 0
        assert len(bench.registry.entries) == len(ids)


class FoundOut(UnknownSender):
    """A source that is detected as a flood when its first agent is registered."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def is_flooding(self) -> bool:
        return len(self._registry.entries) > 0


async def test_queued_announcements_of_a_flooding_source_are_dropped(tmp_path: Path) -> None:
    """L3."""
    async with service(tmp_path, trust_mode="tofu", store="sqlite") as bench:
        made = LanBridge(bench.registry, bench.application.renderer, [])
        how = MessageContext(transport="udp", source="10.0.0.1", sender=FoundOut(bench.registry))
        ids = [f"{number:08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d" for number in range(20)]
        heard = (made.receive(announcement(key("a"), seq=1, at=NOW, agent_id=agent_id), how) for agent_id in ids)
        outcomes = await asyncio.gather(*heard, return_exceptions=True)
        assert [type(each) for each in outcomes] == [type(None)] + [RateLimited] * 19
        other = MessageContext(transport="udp", source="10.0.0.2")
        await made.receive(announcement(key("a"), seq=1, at=NOW, agent_id=ids[-1]), other)
        assert len(bench.registry.entries) == 2


class FoundOutSoon(UnknownSender):
    def __init__(self) -> None:
        self._is_found = False
        asyncio.get_running_loop().call_soon(self._find)

    def _find(self) -> None:
        self._is_found = True

    def is_flooding(self) -> bool:
        return self._is_found


async def test_an_unknown_agent_waits_until_a_flood_would_be_detected(tmp_path: Path) -> None:
    """L3. A known agent does not wait: its lease may be about to end."""
    async with service(tmp_path, trust_mode="tofu", store="sqlite") as bench:
        made = LanBridge(bench.registry, bench.application.renderer, [])
        words = announcement(key("a"), seq=1, at=NOW)
        with pytest.raises(RateLimited, match="too many messages"):
            await made.receive(words, MessageContext(transport="udp", source="10.0.0.1", sender=FoundOutSoon()))
        await made.receive(words, MessageContext(transport="udp", source="10.0.0.1"))
        again = announcement(key("a"), seq=2, at=NOW)
        await made.receive(again, MessageContext(transport="udp", source="10.0.0.1", sender=FoundOutSoon()))
        assert len(bench.registry.entries) == 1


async def test_a_repeated_announcement_renews_and_is_verified_again_after_a_change(
    tmp_path: Path,
) -> None:
    """A repeated announcement does not restore a withdrawn agent."""
    network = MemoryNetwork(ManualClock(NOW))
    async with service(tmp_path, trust_mode="tofu", store="sqlite") as bench:
        made = LanBridge(bench.registry, bench.application.renderer, [network.transport("registry")])
        how, admin = MessageContext(transport="udp", source="x"), bench.admin()
        words = {**announcement(key("a"), seq=1, at=NOW), "ttl": 10}
        for _ in range(12):  # for two minutes, also past the time after which it is judged again
            await made.receive(words, how)
            bench.clock.advance(9)
            assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 200
        bench.clock.advance(2)
        assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 404
        await made.receive(words, how)
        assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 200
        withdrawn = await admin.delete(f"/api/v1/agents/urn:uuid:{AGENT_ID}")
        assert withdrawn.status_code == 204
        with pytest.raises(WaypostError):
            await made.receive(words, how)
        assert (await admin.get(f"/agents/{AGENT_ID}")).status_code == 404


async def test_the_same_words_again_are_old_after_five_minutes(tmp_path: Path) -> None:
    """P-17."""
    network = MemoryNetwork(ManualClock(NOW))
    async with service(tmp_path, trust_mode="tofu", store="sqlite") as bench:
        made = LanBridge(bench.registry, bench.application.renderer, [network.transport("registry")])
        how = MessageContext(transport="udp", source="x")
        words = {**announcement(key("a"), seq=1, at=NOW), "ttl": 10}
        for _ in range(limits.ANNOUNCE_PAST_SECONDS // 9):
            await made.receive(words, how)
            bench.clock.advance(9)
        bench.clock.advance(9)
        with pytest.raises(Replayed):
            await made.receive(words, how)
