"""The contract of transports: one suite for all, with a row of `support.transports.BEDS` for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.announce import key
from support.transports import (
    BEDS,
    A,
    B,
    Bed,
    C,
    Watched,
    eventually,
    query_until_found,
    signed,
    signed_members,
    wait_for_nothing,
)
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.transports.factory import TRANSPORTS
from waypost.transports.port import MessageContext, Sighting
from waypost.trust.announce.signed_announcement import sign_announcement

ANY = AgentQuery()
METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))


@pytest.fixture(params=sorted(BEDS))
async def bed(request: pytest.FixtureRequest) -> AsyncIterator[Bed]:
    async with BEDS[request.param]() as made:
        yield made


def ids(messages: list[JsonObject]) -> set[str]:
    return {message["agent"]["agent_id"] for message in messages}


async def test_a_subscriber_receives_an_announcement_exactly_as_signed(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    message = bed.message(metadata={"note": "é", "load": 1.5}, x_unknown={"kept": [1, None, "\u2028"]})
    ack = await alice.announce(message, 30)
    assert ack.accepted
    assert ack.expires_at is None or ack.expires_at <= bed.clock.now() + 30
    await eventually(lambda: watched.kinds() == ["added"])
    seen = watched.sightings[0]
    assert signed_members(seen.message) == message
    assert (seen.transport, seen.agent_id) == (bob.name, A)
    assert seen.source
    assert [verdict.state for verdict in seen.verdicts] == ["passed", "unknown"]


async def test_a_late_subscriber_receives_current_agents(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    await alice.announce(bed.message(), 30)
    await alice.announce(bed.message(B), 30)
    watched = Watched()
    await bob.subscribe(watched)
    await eventually(lambda: (watched.kinds(A), watched.kinds(B)) == (["added"], ["added"]))


async def test_a_query_finds_exactly_those_that_fit(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    first, second = bed.message(), bed.message(B, capabilities={"metrics": "1.4", "logs": "1.0"})
    await alice.announce(first, 30)
    await alice.announce(second, 30)
    await alice.announce(bed.message(C, capabilities={"logs": "3.0"}), 30)
    found = await query_until_found(bob, METRICS, {A, B})
    assert {message["agent"]["agent_id"]: signed_members(message) for message in found} == {A: first, B: second}
    newer = AgentQuery(requirements=(parse_capability_requirement("metrics@^2.0"),))
    assert ids(await query_until_found(bob, newer, {A})) == {A}
    both = AgentQuery(requirements=(parse_capability_requirement("metrics"), parse_capability_requirement("logs")))
    assert ids(await query_until_found(bob, both, {B})) == {B}
    assert ids(await query_until_found(bob, AgentQuery(agent_id=C), {C}, 5.0)) == {C}
    assert (
        await bob.query(AgentQuery(requirements=(parse_capability_requirement("nothing-like-it"),)), timeout=0.5) == []
    )


async def test_a_repetition_is_no_news_and_a_change_is(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    message = bed.message()
    await alice.announce(message, 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.announce(message, 30)
    await alice.announce(bed.message(), 30)  # signed again, the same content
    changed = bed.message(capabilities={"metrics": "2.1"})
    await alice.announce(changed, 30)
    await eventually(lambda: watched.kinds() == ["added", "updated"])
    assert signed_members(watched.sightings[-1].message) == changed


async def test_a_new_key_signed_by_the_old_one_is_a_rotation(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.announce(signed(bed.clock, signer="next", previous=key(A)), 30)
    await eventually(lambda: watched.kinds() == ["added", "rotated"])


async def test_an_agent_that_is_not_renewed_expires_once(bed: Bed) -> None:
    """ANN-41."""
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 10)
    await eventually(lambda: watched.kinds() == ["added"])
    # The answer to the query that a subscription starts with renews the agent; this answer comes after it.
    await query_until_found(bob, ANY, {A})
    await alice.close()
    bed.clock.advance(9)
    await wait_for_nothing()
    assert "expired" not in watched.kinds()
    bed.clock.advance(2)
    await eventually(lambda: watched.kinds()[-1] == "expired")
    await wait_for_nothing()
    assert watched.kinds().count("expired") == 1


async def test_an_announcement_again_in_time_keeps_an_agent(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    for turn in range(1, 4):
        await alice.announce(bed.message(), 10)
        await eventually(lambda: watched.kinds() == ["added"])
        await alice.announce(bed.message(B, metadata={"turn": turn}), 30)  # later news
        await eventually(lambda turn=turn: len(watched.kinds(B)) == turn)
        await wait_for_nothing(0.3)
        bed.clock.advance(7)
    await wait_for_nothing(0.3)
    assert watched.kinds() == ["added"]


async def test_a_signed_goodbye_removes_an_agent_at_once(bed: Bed) -> None:
    """P-19."""
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.announce(bed.message(metadata={"__state": "shutdown"}), 30)
    await eventually(lambda: watched.kinds()[-1] == "removed")


async def test_a_withdrawn_agent_is_gone_at_the_latest_when_its_ttl_ends(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 10)
    await alice.announce(bed.message(B), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    await alice.withdraw(A)
    await alice.withdraw(A)
    await wait_for_nothing(0.3)
    bed.clock.advance(11)
    await eventually(lambda: watched.kinds()[-1] in ("removed", "expired"))
    assert A not in ids(await bob.query(ANY, timeout=0.5))


async def test_a_forged_message_does_not_replace_an_agent(bed: Bed) -> None:
    """L1: a broken signature, none, and another key under a known id."""
    alice, bob, mallory = await bed.open("alice"), await bed.open("bob"), await bed.open("mallory")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])
    broken = bed.message()
    broken["agent"]["transport"]["endpoint"] = "6.6.6.6:1"
    await mallory.announce(broken, 30)
    await mallory.announce(signed(bed.clock, signer="mallory"), 30)
    unsigned = bed.message(B)
    del unsigned["signature"]
    await mallory.announce(unsigned, 30)
    await mallory.announce(bed.message(C), 30)
    await eventually(lambda: watched.kinds(C) == ["added"])
    await wait_for_nothing(0.2)
    assert (watched.kinds(A), watched.kinds(B)) == (["added"], [])


async def test_a_subscriber_receives_only_matching_agents(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched, everything = Watched(), Watched()
    await bob.subscribe(watched, METRICS)
    await bob.subscribe(everything)
    await alice.announce(bed.message(B, capabilities={"logs": "1.0"}), 30)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: (everything.kinds(A), everything.kinds(B)) == (["added"], ["added"]))
    await eventually(lambda: watched.kinds(A) == ["added"])
    assert watched.kinds(B) == []


async def test_a_callback_may_close_its_subscription_and_ask_again(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    asked: list[asyncio.Task[list[JsonObject]]] = []
    calls: list[str] = []

    def callback(sighting: Sighting) -> None:
        calls.append(sighting.kind)
        subscription.close()
        asked.append(asyncio.ensure_future(bob.query(AgentQuery(agent_id=A), timeout=20.0)))

    subscription = await bob.subscribe(callback)
    await alice.announce(bed.message(), 30)
    await eventually(lambda: calls)
    assert ids(await asked[0]) == {A}
    await alice.announce(bed.message(capabilities={"logs": "1"}), 30)
    await wait_for_nothing(0.3)
    assert calls == ["added"]
    subscription.close()


async def test_a_failing_callback_does_not_stop_the_others(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context.get("exception")))

    def failing(sighting: Sighting) -> None:
        raise RuntimeError("a fault of the callback")

    watched = Watched()
    await bob.subscribe(failing)
    await bob.subscribe(watched)
    await alice.announce(bed.message(), 30)
    await alice.announce(bed.message(B), 30)
    await eventually(lambda: (watched.kinds(A), watched.kinds(B)) == (["added"], ["added"]))
    assert [str(fault) for fault in faults] == ["a fault of the callback"] * 2


async def test_a_server_receives_every_announcement_and_answers_for_known_agents(bed: Bed) -> None:
    alice, registry, bob = await bed.open("alice"), await bed.open("registry"), await bed.open("bob")
    known = bed.message(B)
    heard: list[tuple[JsonObject, MessageContext]] = []

    async def answer(query: AgentQuery) -> list[JsonObject]:
        return [known]

    async def hear(message: JsonObject, how: MessageContext) -> JsonObject | None:
        heard.append((message, how))
        if len(heard) == 1:
            raise InvalidDocument("not this one", path="$", hint="Send another.")
        return None

    registry.serve(answer, hear)
    first, second = bed.message(), bed.message(C)
    await alice.announce(first, 30)
    await eventually(lambda: len(heard) >= 1)
    await alice.announce(second, 30)
    await eventually(lambda: C in ids([message for message, _ in heard]))
    assert signed_members(heard[0][0]) == first
    assert heard[0][1].transport == registry.name
    assert heard[0][1].source
    assert (B in ids(await query_until_found(bob, METRICS, {B} if bed.relays else set()))) is bed.relays


async def test_other_minor_versions_are_accepted_and_other_majors_are_not(bed: Bed) -> None:
    """ANN-50, ANN-51."""
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    await alice.announce({**bed.message(B), "protocol_version": "v2.0"}, 30)
    await alice.announce({**bed.message(), "protocol_version": "v1.1"}, 30)
    await eventually(lambda: watched.kinds(A) == ["added"])
    await wait_for_nothing(0.2)
    assert watched.kinds(B) == []


async def test_closing_one_end_does_not_affect_the_others(bed: Bed) -> None:
    alice, bob, carol = await bed.open("alice"), await bed.open("bob"), await bed.open("carol")
    watched = Watched()
    await bob.subscribe(watched)
    await carol.close()
    await carol.close()
    await alice.announce(bed.message(), 30)
    await eventually(lambda: watched.kinds() == ["added"])


async def test_a_large_announcement_arrives_whole(bed: Bed) -> None:
    alice, bob = await bed.open("alice"), await bed.open("bob")
    watched = Watched()
    await bob.subscribe(watched)
    message = bed.message(metadata={"description": "d" * 500})
    await alice.announce(message, 30)
    await eventually(lambda: watched.kinds() == ["added"])
    assert signed_members(watched.sightings[0].message) == message
    assert [signed_members(found) for found in await query_until_found(bob, AgentQuery(agent_id=A), {A}, 5.0)] == [
        message
    ]


async def test_an_unsigned_copy_of_an_answer_does_not_replace_it(bed: Bed) -> None:
    alice, mallory, bob = await bed.open("alice"), await bed.open("mallory"), await bed.open("bob")
    true = bed.message()
    forged = sign_announcement({**true["agent"], "capabilities": {"metrics": "9"}}, key(A))
    forged["signature"] = true["signature"]
    await alice.announce(true, 30)

    async def lie(query: AgentQuery) -> list[JsonObject]:
        return [forged]

    mallory.serve(lie, None)
    assert [signed_members(found) for found in await query_until_found(bob, METRICS, {A})] == [true]


def test_every_transport_of_the_table_runs_this_suite() -> None:
    assert set(TRANSPORTS) <= set(BEDS)
