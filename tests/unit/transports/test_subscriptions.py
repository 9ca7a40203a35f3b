"""Subscribers and local announcements."""

from __future__ import annotations

import asyncio

import pytest

from support.announce import announcement, key
from support.transports import A, B, Watched, eventually
from waypost import limits
from waypost.errors import QuotaExceeded
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.directory import AgentDirectory, Subscriptions
from waypost.transports.dispatcher import LocalAgents
from waypost.transports.port import Sighting

NOW = 1_780_000_000.0


def make_announcement(agent_id: str = A, seq: int = 1, **members: object) -> dict[str, object]:
    return announcement(key(agent_id), seq=seq, at=NOW, agent_id=agent_id, **members)


async def test_a_closed_subscriber_gets_no_pending_callbacks() -> None:
    listening = Subscriptions(AgentDirectory("test"), ManualClock(NOW))
    told: list[str] = []

    def callback(sighting: Sighting) -> None:
        told.append(sighting.agent_id)
        subscriber.close()

    subscriber = listening.subscribe(callback, None)
    witness = Watched()
    listening.subscribe(witness, None)
    listening.receive(make_announcement(), "a", 10)
    listening.receive(make_announcement(B), "a", 10)
    await eventually(lambda: len(witness.sightings) == 2)
    assert told == [A]
    listening.close()


async def test_nothing_is_verified_or_stored_without_subscribers() -> None:
    listening = Subscriptions(AgentDirectory("test"), ManualClock(NOW))
    listening.receive(make_announcement(), "a", 10)
    assert len(listening.directory) == 0
    listening.subscribe(Watched(), None).close()
    listening.receive(make_announcement(), "a", 10)
    assert len(listening.directory) == 0
    listening.close()


async def test_after_the_end_of_listening_no_timer_is_left() -> None:
    clock = ManualClock(NOW)
    listening = Subscriptions(AgentDirectory("test"), clock)
    watched = Watched()
    listening.subscribe(watched, None)
    listening.receive(make_announcement(), "a", 10)
    listening.close()
    clock.advance(60)
    await asyncio.sleep(2 * limits.DIRECTORY_SWEEP_SECONDS)
    assert watched.sightings == []


def test_one_answers_for_oneself_until_the_ttl_ends() -> None:
    own = LocalAgents()
    assert own.put(make_announcement(), 10, NOW) == NOW + 10
    assert [message["ttl"] for message in own.matching(AgentQuery(), NOW + 4)] == [6]
    assert own.matching(AgentQuery(), NOW + 10) == []
    assert own.first(NOW + 10) is None
    assert own.find(A, NOW + 10) is None
    own.put(make_announcement(seq=2), 10, NOW + 9)
    assert own.find(A, NOW + 18) == make_announcement(seq=2)
    assert own.contains(make_announcement(seq=2))
    assert not own.contains(make_announcement(seq=1))


def test_after_a_goodbye_and_a_withdrawal_queries_are_not_answered() -> None:
    own = LocalAgents()
    own.put(make_announcement(), 10, NOW)
    own.put(make_announcement(seq=2, metadata={"__state": "shutdown"}), 10, NOW)
    assert own.matching(AgentQuery(), NOW) == []
    own.put(make_announcement(seq=3), 10, NOW)
    own.remove(A.upper())
    own.remove(A)
    assert own.matching(AgentQuery(), NOW) == []


def test_one_process_announces_at_most_a_thousand_agents() -> None:
    own = LocalAgents()
    message = make_announcement()
    agent = message["agent"]
    assert isinstance(agent, dict)

    def numbered(number: int) -> dict[str, object]:
        return {**message, "agent": {**agent, "agent_id": f"{number:08x}{A[8:]}"}}

    for number in range(limits.LOCAL_AGENTS):
        own.put(numbered(number), 10, NOW)
    with pytest.raises(QuotaExceeded):
        own.put(numbered(limits.LOCAL_AGENTS), 10, NOW)
    own.put(numbered(3), 10, NOW)
    own.put(numbered(limits.LOCAL_AGENTS), 10, NOW + 10)
