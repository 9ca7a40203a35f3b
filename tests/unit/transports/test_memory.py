"""The memory network with faults: signed and newer messages win."""

from __future__ import annotations

import time

import pytest

from support.transports import A, Watched, eventually, signed, signed_members
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.memory import MemoryNetwork


def network(**faults: float) -> MemoryNetwork:
    return MemoryNetwork(ManualClock(time.time()), **faults)  # type: ignore[arg-type]


def clock_of(net: MemoryNetwork) -> ManualClock:
    assert isinstance(net.clock, ManualClock)
    return net.clock


@pytest.mark.parametrize("seed", range(5))
async def test_loss_duplicates_and_disorder_end_in_the_newest_state(seed: int) -> None:
    """B5."""
    net = network(seed=seed, loss=0.3, duplication=0.3, reordering=0.5)
    alice, bob = net.transport("alice"), net.transport("bob")
    await alice.open()
    await bob.open()
    watched = Watched()
    await bob.subscribe(watched)
    for number in range(20):
        await alice.announce(signed(clock_of(net), capabilities={"metrics": str(number)}), 30)
    await net.settle()
    net.loss = 0.0
    last = signed(clock_of(net), capabilities={"metrics": "last"})
    await alice.announce(last, 30)
    await net.settle()
    await eventually(lambda: watched.sightings and signed_members(watched.sightings[-1].message) == last)
    assert set(watched.kinds()[1:]) <= {"updated"}
    await alice.close()
    await bob.close()


async def test_the_same_seed_gives_the_same_faults() -> None:
    async def run() -> int:
        net = network(seed=3, loss=0.5, duplication=0.5)
        ends = [net.transport(str(number)) for number in range(5)]
        for end in ends:
            await end.open()
        for _ in range(20):
            await ends[0].announce(signed(clock_of(net)), 30)
        await net.settle()
        for end in ends:
            await end.close()
        return net.sent

    first = await run()
    assert 0 < first == await run()


async def test_a_partition_separates_and_heals() -> None:
    net = network()
    alice, bob = net.transport("alice"), net.transport("bob")
    await alice.open()
    await bob.open()
    watched = Watched()
    await bob.subscribe(watched)
    net.partition(["alice"], ["bob"])
    await alice.announce(signed(clock_of(net)), 30)
    await net.settle()
    assert watched.kinds() == []
    assert alice.echoed_at() == net.clock.now()
    assert bob.echoed_at() is None
    assert await bob.query(AgentQuery(agent_id=A), timeout=0.05) == []
    net.heal()
    await alice.announce(signed(clock_of(net)), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.close()
    await bob.close()


async def test_another_major_is_answered_with_the_own_announcement_once_a_minute() -> None:
    """ANN-50."""
    net = network()
    ours, theirs = net.transport("ours"), net.transport("theirs")
    await ours.open()
    await theirs.open()
    own = signed(clock_of(net))
    await ours.announce(own, 3600)
    await net.settle()
    heard: list[str] = []

    async def hear(message: dict[str, object], how: object) -> None:
        heard.append(str(message["protocol_version"]))

    theirs.serve(None, hear)
    stranger = {**signed(clock_of(net), "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"), "protocol_version": "v2.0"}
    for _ in range(3):
        await theirs.announce(stranger, 30)
    await net.settle()
    assert heard == ["v1.0"]
    clock_of(net).advance(60)
    await theirs.announce(stranger, 30)
    await net.settle()
    assert heard == ["v1.0", "v1.0"]
    await ours.close()
    await theirs.close()
