"""`Announcer`: an agent that announces itself."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, agent, key
from support.transports import Watched, eventually
from waypost import Announcer, Finder, limits
from waypost.client.announcer import AnnouncementSigner
from waypost.client.identity import MemorySequence, SequenceFile, load_identity
from waypost.errors import InvalidKey, Unavailable
from waypost.model.json import JsonObject, dump_json
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.memory import MemoryNetwork
from waypost.transports.port import QUERY_SECONDS, Ack, MessageHandler, QueryHandler, SightingCallback

NOW = 1_780_000_000.0


class Pauses:
    """Pauses that end when the test says so; it records their lengths."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._turn = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._turn.wait()

    def go(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()


class Registry:
    """A transport that records its messages and can be made to fail."""

    name = "http"

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self.withdrawn: list[str] = []
        self.fails = False

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        if self.fails:
            raise Unavailable("The registry is down.")
        self.messages.append({**message, "ttl": ttl})
        return Ack(True, NOW + ttl)

    async def withdraw(self, agent_id: str) -> None:
        self.withdrawn.append(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        if self.fails:
            raise Unavailable("The registry is down.")
        return self.messages[-1:]

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Any:
        raise Unavailable("Nothing to subscribe to.")

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        return


async def turns(pauses: Pauses, count: int) -> None:
    await eventually(lambda: len(pauses.asked) >= count)


async def test_it_announces_repeats_within_a_tenth_of_half_its_ttl_and_says_goodbye() -> None:
    clock, pauses = ManualClock(NOW), Pauses()
    network = MemoryNetwork(clock)
    listener, watched = network.transport("listener"), Watched()
    await listener.open()
    await listener.subscribe(watched)
    made = Announcer(
        agent(), key("a"), [network.transport("a")], clock=clock, random=random.Random(1), pause=pauses, ttl=20
    )
    async with made:
        await eventually(lambda: watched.kinds(AGENT_ID) == ["added"])
        for count in range(2, 6):
            clock.advance(10)
            pauses.go()
            await turns(pauses, count)
        await network.settle()
        assert watched.kinds(AGENT_ID) == ["added"]
        assert all(9 <= each <= 11 for each in pauses.asked)
        assert len(set(pauses.asked)) > 1
    await eventually(lambda: watched.kinds(AGENT_ID) == ["added", "removed"])
    await listener.close()


@pytest.mark.req("ANN-10")
async def test_it_signs_again_every_minute_with_a_higher_sequence() -> None:
    clock, pauses, registry = ManualClock(NOW), Pauses(), Registry()
    async with Announcer(agent(), key("a"), [registry], clock=clock, pause=pauses):
        for count in range(1, 5):
            await turns(pauses, count)
            clock.advance(60)
            pauses.go()
        await turns(pauses, 5)
    marks = [message["agent"]["metadata"]["__seq"] for message in registry.messages]
    assert marks == sorted(set(marks))
    assert len(marks) >= 5
    assert registry.messages[-1]["agent"]["metadata"]["__state"] == "shutdown"
    assert registry.messages[0]["ttl"] == 120


async def test_a_change_is_announced_at_once() -> None:
    clock, pauses, registry = ManualClock(NOW), Pauses(), Registry()
    async with Announcer(agent(), key("a"), [registry], clock=clock, pause=pauses) as announcer:
        await turns(pauses, 1)
        announcer.change(agent(capabilities={"logs": "1.0"}))
        await eventually(lambda: len(registry.messages) == 2)
        assert registry.messages[1]["agent"]["capabilities"] == {"logs": "1.0"}


async def test_a_failing_transport_does_not_stop_the_others() -> None:
    clock, pauses, broken, whole = ManualClock(NOW), Pauses(), Registry(), Registry()
    broken.fails = True
    async with Announcer(agent(), key("a"), [broken, whole], clock=clock, pause=pauses) as announcer:
        await turns(pauses, 2)
        assert (announcer.states["http"].state, announcer.states["http"].reason) == ("failed", "The registry is down.")
        assert announcer.states["http-2"].state == "announced"
        broken.fails = False
        pauses.go()
        await eventually(lambda: announcer.states["http"].state == "announced")


@pytest.mark.req("ANN-39")
async def test_a_lan_that_is_cut_leads_to_the_registry_and_one_that_heals_back() -> None:
    """With `strict` the entry is taken away while the LAN carries."""
    clock, pauses, registry = ManualClock(NOW), Pauses(), Registry()
    network = MemoryNetwork(clock)
    made = Announcer(
        agent(), key("a"), [network.transport("a"), registry], clock=clock, pause=pauses, suppress="strict"
    )
    async with made as announcer:
        await turns(pauses, 2)
        assert announcer.rollback.state == "LOCAL"
        assert registry.messages == []
        network.loss = 1.0
        await pass_turns(announcer, network, clock, pauses, until="REGISTRY")
        await eventually(lambda: registry.messages)
        network.loss = 0.0
        await pass_turns(announcer, network, clock, pauses, until="LOCAL")
        await eventually(lambda: registry.withdrawn == [AGENT_ID])


async def pass_turns(
    announcer: Announcer, network: MemoryNetwork, clock: ManualClock, pauses: Pauses, until: str
) -> None:
    for _ in range(8):
        count = len(pauses.asked)
        await network.settle()
        clock.advance(5)
        pauses.go()
        await turns(pauses, count + 2)
        if announcer.rollback.state == until:
            return
    raise AssertionError(f"it is still {announcer.rollback.state}")


class Wire(Registry):
    """A LAN that says whether it carries, and for how long it believes."""

    name = "mdns"

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = self.is_filtered = False
        self.believes = 10
        self._echoes = 0.0

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        if self.is_cut:
            return Ack(False, reason="The link is down.")
        self.messages.append(message)
        self._echoes += not self.is_filtered
        return Ack(True, NOW + self.believes)

    def echoed_at(self) -> float | None:
        return self._echoes


@pytest.mark.req("ANN-39")
async def test_the_first_announcement_that_cannot_be_sent_leads_to_the_registry() -> None:
    clock, pauses, registry, wire = ManualClock(NOW), Pauses(), Registry(), Wire()
    made = Announcer(agent(), key("a"), [wire, registry], clock=clock, pause=pauses, suppress="strict")
    async with made as announcer:
        await turns(pauses, 2)
        wire.is_cut = True
        pauses.go()
        await eventually(lambda: announcer.rollback.state == "LOCAL" and len(pauses.asked) >= 4)
        pauses.go()
        await eventually(lambda: registry.messages)
        assert (announcer.rollback.state, announcer.states["mdns"].reason) == ("REGISTRY", "The link is down.")


@pytest.mark.req("ANN-39")
async def test_announcements_without_echo_are_repeated_at_once_and_three_lead_to_the_registry() -> None:
    """So that a LAN that swallows everything is noticed before others stop believing."""
    clock, pauses, registry, wire = ManualClock(NOW), Pauses(), Registry(), Wire()
    wire.is_filtered = True
    made = Announcer(agent(), key("a"), [wire, registry], clock=clock, pause=pauses, suppress="strict")
    async with made as announcer:
        for number in range(1, 4):
            await eventually(lambda: len(wire.messages) == number)  # noqa: B023
            assert announcer.rollback.state == "LOCAL"
            await eventually(lambda: pauses.asked.count(limits.ECHO_SECONDS) == number)  # noqa: B023
            pauses.go()
        await eventually(lambda: registry.messages)
        assert announcer.rollback.state == "REGISTRY"


async def test_on_a_crowded_lan_the_announcement_period_grows_step_by_step() -> None:
    clock, pauses, wire = ManualClock(NOW), Pauses(), Wire()
    wire.believes = 120
    async with Announcer(agent(), key("a"), [wire], clock=clock, pause=pauses):
        for count in range(1, 7):
            await turns(pauses, count)
            pauses.go()
    for asked, about in zip(pauses.asked, (5, 10, 20, 40, 60, 60), strict=False):
        assert 0.9 * about <= asked <= 1.1 * about


def test_a_bare_agent_without_an_id_is_given_one_that_stays(tmp_path: Path) -> None:
    bare = {name: value for name, value in agent().items() if name != "agent_id"}
    first, second = (load_identity(json.dumps(bare).encode(), tmp_path, now=NOW) for _ in range(2))
    assert first.agent["agent_id"] == second.agent["agent_id"]
    wrapped = load_identity(json.dumps({"protocol_version": "v1.0", "agent": bare}).encode(), tmp_path, now=NOW)
    assert wrapped.agent["agent_id"] == first.agent["agent_id"]
    other = load_identity(json.dumps({**bare, "agent_name": "another"}).encode(), tmp_path, now=NOW)
    assert other.agent["agent_id"] != first.agent["agent_id"]
    nameless = {name: value for name, value in bare.items() if name != "agent_name"}
    assert load_identity(json.dumps(nameless).encode(), tmp_path, now=NOW).agent["agent_id"][14] == "4"


# --- Identity -------------------------------------------------------------------------------------


def test_a_sequence_grows_over_restarts_and_when_the_clock_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.seq"
    first = SequenceFile(path).next(NOW)
    assert first == int(NOW * 1000)
    again = SequenceFile(path)
    assert [again.next(NOW - 3600), again.next(NOW - 3600)] == [first + 1, first + 2]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_document_of_another_dialect_has_one_agent_id_forever(tmp_path: Path) -> None:
    card = {
        "id": "https://agents.example.net/id/one",
        "name": "One",
        "description": "Answers.",
        "bindings": [{"protocol": "https", "endpoint": "https://example.net/a"}],
    }
    first, second = (load_identity(json.dumps(card).encode(), tmp_path, now=NOW) for _ in range(2))
    assert first.agent["agent_id"] == second.agent["agent_id"]
    assert first.agent["agent_id"][14] == "4"
    assert first.key.public.key_id == second.key.public.key_id


def test_an_agent_that_names_another_key_is_refused(tmp_path: Path) -> None:
    foreign = agent(public_key=key("other").public.pem())
    identity = load_identity(json.dumps(foreign).encode(), tmp_path, now=NOW)
    with pytest.raises(InvalidKey):
        Announcer.of(identity, [])._signer.message("http", NOW)


def test_small_transports_get_a_shortened_signed_message() -> None:
    large = agent(metadata={"description": "Plans. " * 100, "org.waypost.record": "x" * 2000})
    signed = AnnouncementSigner(large, key("a"), MemorySequence(), previous=None, transports=["mdns", "udp", "http"])
    whole, lan = signed.message("http", NOW), signed.message("mdns", NOW)
    assert whole["agent"]["metadata"]["description"] == "Plans. " * 100
    assert signed.message("udp", NOW + 40) is lan
    assert lan["agent"]["agent_name"] == "data-processor"
    assert len(lan["agent"]["metadata"]["description"]) == 200
    assert signed.message("udp", NOW + 50) is not lan


@pytest.mark.req("ANN-31")
def test_an_agent_that_only_datagrams_carry_fits_into_one() -> None:
    large = agent(metadata={"description": "Plans. " * 100})
    signed = AnnouncementSigner(large, key("a"), MemorySequence(), previous=None, transports=["udp"])
    assert len(dump_json(signed.message("udp", NOW))) <= 512


# --- Finding --------------------------------------------------------------------------------------


async def test_a_finder_asks_everybody_once_and_merges_by_agent() -> None:
    """One agent on the LAN, another in a registry: a client with both finds both (§11, 3)."""
    clock, pauses, registry = ManualClock(NOW), Pauses(), Registry()
    network = MemoryNetwork(clock)
    other = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
    local = Announcer(agent(), key("a"), [network.transport("a")], clock=clock, pause=pauses)
    remote = Announcer(agent(other), key("b"), [registry], clock=clock, pause=pauses)
    async with local, remote, Finder([network.transport("f"), registry], clock=clock) as finder:
        await turns(pauses, 2)
        found = {each.agent_id: each for each in await finder.find("metrics", seconds=1.0)}
        assert {name: (each.transports, each.trust) for name, each in found.items()} == {
            AGENT_ID: (("memory",), "signed"),
            other: (("http",), "signed"),
        }
        registry.fails = True
        assert len(await finder.find("metrics", seconds=1.0)) == 2
        assert await finder.find("nothing", seconds=0.05) == []


@pytest.mark.req("ANN-40")
async def test_answers_are_used_again_until_their_ttl_and_then_only_as_stale() -> None:
    clock, registry = ManualClock(NOW), Registry()
    async with Announcer(agent(), key("a"), [registry], clock=clock, sequence=MemorySequence()):
        await eventually(lambda: registry.messages)
        async with Finder([registry], clock=clock) as finder:
            assert [each.is_stale for each in await finder.find("metrics")] == [False]
            registry.fails = True
            clock.advance(100)
            assert len(await finder.find("metrics")) == 1
            clock.advance(100)
            with pytest.raises(Unavailable):
                await finder.find("metrics")
            assert [each.is_stale for each in await finder.find("metrics", stale_ok=True)] == [True]
            registry.fails = False


async def test_a_key_that_was_bound_is_the_only_one_that_counts_also_later(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    honest, forged = Registry(), Registry()
    async with Announcer(agent(), key("a"), [honest], clock=clock):
        await eventually(lambda: honest.messages)
        async with Finder([honest], trust=tmp_path / "trust.json", clock=clock) as finder:
            assert len(await finder.find("metrics")) == 1
    async with Announcer(agent(), key("mallory"), [forged], clock=clock):
        await eventually(lambda: forged.messages)
        async with Finder([forged], trust=tmp_path / "trust.json", clock=clock) as finder:
            assert await finder.find("metrics") == []
