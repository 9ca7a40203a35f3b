"""The acceptance criteria of the announce protocol (announce.md §11) on every transport, between separate processes.

A registry, a bus and three agents, each in its own network namespace (on loopback if there are none). The hosts are joined by
a LAN for UDP and mDNS, and by a backbone for HTTP, WebSocket and NATS. Criterion 3 is in `test_rollback.py`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.announce import announcement, key
from support.announce_process import End
from support.bus import nats_server
from support.host_places import LanHosts, place
from support.ports import free_port
from support.server import RunningServer, running_server
from waypost.app import mint_locally
from waypost.model.json import dump_json
from waypost.settings import Settings
from waypost.trust.document_signatures import canonicalize
from waypost.trust.keys.private_key import PrivateKey, new_private_key

CARRIERS = ("bus", "http", "mdns", "udp", "ws")
BY_REGISTRY = ("http", "ws")  # the registry answers the sender, and tells the others
PATIENCE_SECONDS = 90.0
DAY_SECONDS = 86_400
REGISTRY, ALICE, BOB, CAROL = range(4)
RSA = new_private_key("rsa")
_numbers = count(1)
_sequence = count(int(time.time() * 1000))


class World:
    """`alice` and `bob` announce, `carol` asks and listens, `dave` too, and his clock can be moved."""

    def __init__(self, where: LanHosts, server: RunningServer, folder: Path, told: dict[str, Any]) -> None:
        self._where = where
        self._folder = folder
        self._told = {**told, "interface": where.interface, "registry": server.url}
        self.server = server
        self.ends: list[End] = []
        hosts = {"alice": ALICE, "bob": BOB, "carol": CAROL, "dave": BOB}
        self.alice, self.bob, self.carol, self.dave = (self._start(name, host) for name, host in hosts.items())

    def join(self, name: str, host: int) -> End:
        """One more."""
        end = self._start(name, host)
        end.ready()
        return end

    def _start(self, name: str, host: int) -> End:
        told = {**self._told, "token": token_of(self.server, name)}
        self.ends.append(End(self._where.command(host), told, self._folder / f"{name}.log"))
        return self.ends[-1]

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """As admin, over the backbone."""
        with ExitStack() as stack:
            if self._where.net is not None:
                stack.enter_context(self._where.net.entered(CAROL))
            return httpx2.request(
                method, f"{self.server.url}{path}", headers=self.server.headers, timeout=60, trust_env=False, **more
            )

    def allow(self, rule: str) -> None:
        assert self.ask("POST", "/api/v1/allow", json={"rule": rule}).is_success

    def held(self, agent_id: str) -> dict[str, Any] | None:
        """The announcement that the registry gives back."""
        answer = self.ask("GET", f"/agents/{agent_id}")
        return answer.json() if answer.is_success else None

    def fresh(self) -> str:
        """The id of an agent that may announce."""
        agent_id = f"{next(_numbers):08x}-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
        self.allow(agent_id)
        return agent_id


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        where = stack.enter_context(place(4))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="waypost-test-")))
        far = where.far_address(REGISTRY)
        bus = stack.enter_context(nats_server(address=far, before=where.command(REGISTRY)))
        port = free_port()
        lan = ("--mdns", "--mdns-interfaces", where.interface, "--udp", "--udp-interface", where.interface)
        carried = (*lan, "--udp-port", str(port), "--bus", bus.url)
        server = stack.enter_context(
            running_server("--host", far, *carried, "--store", "memory", before=where.command(REGISTRY))
        )
        made = World(where, server, folder, {"udp_port": port, "bus": bus.url})
        try:
            for end in made.ends:
                end.ready()
            yield made
        finally:
            for end in made.ends:
                end.close()


def token_of(server: RunningServer, subject: str) -> str:
    return mint_locally(Settings(data=server.data), subject, ("discover:read", "discover:write"), 3600)[0]


def eventually(holds: Callable[[], Any], what: str = "it did not happen in time") -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def make_announcement(agent_id: str, signer: PrivateKey | None = None, **members: Any) -> dict[str, Any]:
    """Signed now, under a higher sequence than all before."""
    at = members.pop("at", time.time())
    return announcement(signer or key(agent_id), seq=next(_sequence), at=at, agent_id=agent_id, **members)


def repeated(end: End, on: str, message: dict[str, Any], until: Callable[[], Any], ttl: int = 60) -> None:
    """Announced as agents do: again and again. A datagram may be lost, and a record of mDNS takes a second to be published."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        end("announce", on=on, message=message, ttl=ttl)
        soon = time.monotonic() + 3.0
        while time.monotonic() < soon:
            if until():
                return
            time.sleep(0.05)
        assert time.monotonic() < deadline, "nobody heard it"


def tampered(message: dict[str, Any], other_id: str) -> list[dict[str, Any]]:
    """Each class of bytes changed once: id, key, signature, an extra member."""
    agent = message["agent"]
    forged = message["signature"]
    return [
        {**message, "agent": {**agent, "agent_id": other_id}},
        {**message, "agent": {**agent, "public_key": key("mallory").public.pem()}},
        {**message, "signature": ("B" if forged[0] == "A" else "A") + forged[1:]},
        {**message, "agent": {**agent, "more": True}},
    ]


@pytest.mark.req("ANN-3", "ANN-10", "ANN-31")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_criterion_1_an_announcement_arrives_exactly_as_signed(world: World, carrier: str) -> None:
    agent_id, other_id, large_id = world.fresh(), world.fresh(), world.fresh()
    compact = make_announcement(agent_id, agent_name=None)
    assert len(dump_json(compact)) <= 512
    for forged in tampered(compact, other_id):
        accepted = world.alice.announce(carrier, forged)
        assert not (accepted and carrier in BY_REGISTRY)
    repeated(world.alice, carrier, compact, lambda: "added" in world.carol.kinds(agent_id, carrier))
    seen = [each for each in world.carol("seen") if each["id"] in (agent_id, other_id) and each["on"] == carrier]
    assert [(each["kind"], each["agent"]) for each in seen] == [("added", compact["agent"])]
    eventually(lambda: (world.held(agent_id) or {}).get("signature") == compact["signature"])
    assert world.held(other_id) is None
    large = make_announcement(large_id, RSA)
    assert len(dump_json(large)) > 1300, "RSA fits into no datagram and no record, and takes the ladder"
    if carrier == "mdns":
        assert world.alice.announce("http", large), "where the record points to"
    repeated(world.alice, carrier, large, lambda: "added" in world.carol.kinds(large_id, carrier))
    assert eventually(lambda: world.held(large_id))["agent"] == large["agent"]


@pytest.mark.req("ANN-6", "ANN-7")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_criterion_2_a_query_is_answered_by_exactly_the_matching_agents(world: World, carrier: str) -> None:
    wanted = f"spectra-{carrier}"
    first, second = (
        make_announcement(world.fresh(), capabilities={wanted: "2.0"}),
        make_announcement(world.fresh(), capabilities={wanted: "1.0"}),
    )
    other = make_announcement(world.fresh(), capabilities={"optics": "1.0"})
    for end, message in ((world.alice, first), (world.bob, second), (world.bob, other)):
        repeated(end, carrier, message, lambda: world.carol.kinds(message["agent"]["agent_id"], carrier))  # noqa: B023
    expected = {message["agent"]["agent_id"]: canonicalize(message["agent"]) for message in (first, second)}

    def found() -> dict[str, bytes]:
        answers = world.carol("query", on=carrier, capability=wanted, seconds=1.0)
        return {each["agent"]["agent_id"]: canonicalize(each["agent"]) for each in answers}

    eventually(lambda: found() == expected)
    assert world.carol("query", on=carrier, capability="nobody-has-this", seconds=0.5) == []


@pytest.mark.req("ANN-20", "ANN-22", "ANN-23")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_criterion_4_only_a_bound_key_is_accepted_and_a_revoked_one_never_again(world: World, carrier: str) -> None:
    agent_id, mark_id = world.fresh(), world.fresh()
    one, two, mallory = key(f"one-{carrier}"), key(f"two-{carrier}"), key("mallory")
    first = make_announcement(agent_id, one)
    repeated(world.alice, carrier, first, lambda: world.held(agent_id) and world.carol.kinds(agent_id, carrier))
    rotation = make_announcement(agent_id, two, previous=one, capabilities={"metrics": "3.0"})
    evil = {"evil": "1"}
    for forged in (
        make_announcement(agent_id, mallory, capabilities=evil),
        make_announcement(agent_id, two, previous=mallory, capabilities=evil),
        {**make_announcement(agent_id, mallory), "action": "shutdown"},
    ):
        assert not (world.bob.announce(carrier, forged) and carrier in BY_REGISTRY)
    repeated(world.alice, carrier, rotation, lambda: (world.held(agent_id) or {}).get("agent") == rotation["agent"])
    eventually(lambda: "rotated" in world.carol.kinds(agent_id, carrier))
    replayed = world.bob.announce(carrier, first)
    assert not (replayed and carrier in BY_REGISTRY)
    repeated(
        world.bob,
        carrier,
        make_announcement(mark_id),
        lambda: world.held(mark_id) and world.carol.kinds(mark_id, carrier),
    )
    assert world.carol.kinds(agent_id, carrier) == ["added", "rotated"]
    held = world.held(agent_id)
    assert held is not None
    assert held["agent"] == rotation["agent"]
    for revoked in (one, two):
        assert world.ask("POST", "/api/v1/keys:revoke", json={"key_id": revoked.public.key_id}).is_success
    assert world.held(agent_id) is None
    assert not (world.alice.announce(carrier, make_announcement(agent_id, two)) and carrier in BY_REGISTRY)
    repeated(world.bob, carrier, make_announcement(mark_id), lambda: _is_newest(world, mark_id))
    assert world.held(agent_id) is None


def _is_newest(world: World, agent_id: str) -> bool:
    """Whether the registry has the last word of all that were signed here."""
    held = world.held(agent_id)
    return held is not None and held["agent"]["metadata"]["__seq"] == _last_of(_sequence)


def _last_of(numbers: count[int]) -> int:
    return int(repr(numbers).removeprefix("count(").removesuffix(")")) - 1


@pytest.mark.req("ANN-22")
@pytest.mark.parametrize("carrier", ["bus", "mdns", "udp"])
def test_criterion_4_an_old_key_counts_for_a_day_after_it_was_replaced(world: World, carrier: str) -> None:
    agent_id, mark_id = world.fresh(), world.fresh()
    old, new = key(f"old-{carrier}"), key(f"new-{carrier}")
    repeated(world.alice, carrier, dave_said(world, agent_id, old), lambda: world.dave.kinds(agent_id, carrier))
    rotation = dave_said(world, agent_id, new, previous=old)
    repeated(world.alice, carrier, rotation, lambda: "rotated" in world.dave.kinds(agent_id, carrier))
    world.dave("advance", seconds=DAY_SECONDS - 60)
    eventually(lambda: world.dave.kinds(agent_id, carrier)[-1] == "expired")
    late = dave_said(world, agent_id, old)
    repeated(world.alice, carrier, late, lambda: world.dave.kinds(agent_id, carrier)[-1] == "added")
    world.dave("advance", seconds=120)
    eventually(lambda: world.dave.kinds(agent_id, carrier)[-1] == "expired")
    world.alice.announce(carrier, dave_said(world, agent_id, old))
    repeated(world.alice, carrier, dave_said(world, mark_id), lambda: world.dave.kinds(mark_id, carrier))
    assert world.dave.kinds(agent_id, carrier) == ["added", "rotated", "expired", "added", "expired"]


def dave_said(world: World, agent_id: str, signer: PrivateKey | None = None, **members: Any) -> dict[str, Any]:
    """Signed at Dave's time."""
    return make_announcement(agent_id, signer, at=time.time() + world.dave("advance", seconds=0.0), **members)


@pytest.mark.req("ANN-50", "ANN-51")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_criterion_5_another_minor_is_read_and_another_major_is_not(world: World, carrier: str) -> None:
    minor, major, mark = world.fresh(), world.fresh(), world.fresh()
    for version in ("v2.0", "v0.9", "1.0", "v1"):
        message = {**make_announcement(major), "protocol_version": version}
        assert not (world.alice.announce(carrier, message) and carrier in BY_REGISTRY)
    newer = {**make_announcement(minor), "protocol_version": "v1.1"}
    repeated(world.alice, carrier, newer, lambda: world.carol.kinds(minor, carrier) and world.held(minor))
    repeated(
        world.alice, carrier, make_announcement(mark), lambda: world.carol.kinds(mark, carrier) and world.held(mark)
    )
    assert world.carol.kinds(major, carrier) == []
    assert world.held(major) is None
    warnings = [line for line in world.server.log.read_text().splitlines() if "uses protocol version v1.1" in line]
    assert len(warnings) == len({_told(line) for line in warnings}), "each peer once"
    assert warnings


def _told(line: str) -> str:
    """The part of a log line that names the peer."""
    return line[line.rindex(" ", 0, line.index(" uses protocol")) :]


@pytest.mark.req("ANN-50")
def test_criterion_5_a_peer_with_a_higher_major_gets_our_version(world: World) -> None:
    repeated(world.carol, "udp", make_announcement(own := world.fresh()), lambda: world.held(own))
    wide = {**make_announcement(world.fresh(), metadata={"note": "n" * 300}), "protocol_version": "v2.0"}
    address = "127.255.255.255" if world._where.net is None else "10.77.0.255"
    data = dump_json(wide).decode()
    (back,) = eventually(lambda: world.alice("exchange", data=data, to=address, seconds=3.0))
    assert '"protocol_version":"v1.' in back
    refused = world.alice("announce", on="http", message=wide, ttl=60)
    assert (refused["accepted"], "v1" in refused["reason"] or "v2" in refused["reason"]) == (False, True)


@pytest.mark.req("ANN-21")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_criterion_6_an_agent_is_admitted_as_soon_as_it_is_allowed(world: World, carrier: str) -> None:
    agent_id, mark_id = f"{next(_numbers):08x}-2fc2-4f7b-8d8c-5e3e6f5c9c1d", world.fresh()
    assert not (world.alice.announce(carrier, make_announcement(agent_id)) and carrier in BY_REGISTRY)
    repeated(world.alice, carrier, make_announcement(mark_id), lambda: world.held(mark_id))
    assert world.held(agent_id) is None
    world.allow(agent_id)
    repeated(world.alice, carrier, make_announcement(agent_id), lambda: world.held(agent_id))


@pytest.mark.req("ANN-41")
@pytest.mark.parametrize("carrier", ["bus", "mdns", "udp"])
def test_criterion_7_a_silent_agent_is_listed_until_its_ttl_ends(world: World, carrier: str) -> None:
    agent_id = world.fresh()
    message = dave_said(world, agent_id)
    repeated(world.alice, carrier, message, lambda: world.dave.kinds(agent_id, carrier), ttl=200)
    world.dave("advance", seconds=100)
    eventually(lambda: world.dave("query", on=carrier, agent_id=agent_id, seconds=5.0))
    assert world.dave.kinds(agent_id, carrier) == ["added"]
    world.dave("advance", seconds=200)
    eventually(lambda: world.dave.kinds(agent_id, carrier) == ["added", "expired"])


@pytest.mark.req("ANN-41")
def test_criterion_7_a_registry_expires_a_killed_agent_and_reports_it_once(world: World) -> None:
    """While its session is open, an agent stays; killed, it lives on until its ttl."""
    agents = {carrier: world.fresh() for carrier in BY_REGISTRY}
    eve = world.join("eve", ALICE)
    for carrier, agent_id in agents.items():
        assert eve.announce(carrier, make_announcement(agent_id), ttl=10)
        assert world.held(agent_id) is not None
    eve.kill()
    for carrier, agent_id in agents.items():
        eventually(lambda: world.carol.kinds(agent_id, carrier)[-1:] == ["expired"])  # noqa: B023
        assert world.held(agent_id) is None
        assert world.carol("query", on=carrier, agent_id=agent_id, seconds=5.0) == []
        assert world.carol.kinds(agent_id, carrier) == ["added", "expired"]
