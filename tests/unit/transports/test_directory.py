"""The directory of a listener: trust on first use, limits, expiry. Pure: the test sets the time."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.announce import AGENT_ID, announcement, key
from waypost import limits
from waypost.errors import BadSignature, InvalidDocument, KeyConflict, QuotaExceeded, Replayed, Revoked, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.transports.directory import AgentDirectory, machine_of, ttl_of
from waypost.transports.port import Sighting
from waypost.trust.announce.admission import AdmissionPolicy, new_pinned_key
from waypost.trust.announce.trust_store import AgentPin

NOW = 1_780_000_000.0
ONE, TWO = key("one"), key("two")


class Listener:
    def __init__(self, **options: Any) -> None:
        self.directory = AgentDirectory("test", **options)
        self.now = NOW

    def hear(self, message: JsonObject, ttl: int = 10, source: str = "10.0.0.1") -> str | None:
        found = self.directory.receive(message, source=source, ttl=ttl, now=self.now)
        return None if found is None else found.kind

    def known(self) -> list[JsonObject]:
        return self.directory.messages(now=self.now)


def make_announcement(seq: int = 1, *, at: float = NOW, signer: Any = ONE, **members: Any) -> JsonObject:
    return announcement(signer, seq=seq, at=at, **members)


def test_first_sight_is_added_and_carries_message_source_and_verdicts() -> None:
    directory = AgentDirectory("udp")
    found = directory.receive(make_announcement(), source="10.0.0.1:9", ttl=10, now=NOW)
    assert isinstance(found, Sighting)
    assert (found.kind, found.agent_id, found.message) == ("added", AGENT_ID, make_announcement())
    assert (found.transport, found.source, found.ttl, found.at) == ("udp", "10.0.0.1:9", 10, NOW)
    told = [(verdict.check, verdict.state) for verdict in found.verdicts]
    assert told == [("announce-signature", "passed"), ("key-pinned", "unknown")]


def test_the_same_words_again_only_move_the_time() -> None:
    listener = Listener()
    assert listener.hear(make_announcement()) == "added"
    listener.now += 9
    assert listener.hear(make_announcement()) is None
    listener.now += 9
    assert listener.directory.sweep(listener.now) == []


def test_a_repeated_old_announcement_does_not_renew_forever() -> None:
    """P-17."""
    listener = Listener()
    listener.hear(make_announcement(), ttl=3600)
    listener.now += limits.ANNOUNCE_PAST_SECONDS
    assert listener.hear(make_announcement()) is None
    listener.now += 1
    with pytest.raises(Replayed):
        listener.hear(make_announcement())


def test_re_signed_content_is_no_change() -> None:
    listener = Listener()
    listener.hear(make_announcement(1))
    assert listener.hear(make_announcement(2)) is None
    assert listener.known() == [make_announcement(2)]
    assert listener.hear(make_announcement(3, capabilities={"logs": "1"})) == "updated"


def test_expiry_is_reported_once_and_on_time() -> None:
    """ANN-41."""
    listener = Listener()
    listener.hear(make_announcement(), ttl=10)
    assert listener.directory.sweep(NOW + 9.999) == []
    ended = listener.directory.sweep(NOW + 10)
    assert [each.kind for each in ended] == ["expired"]
    assert ended[0].message == make_announcement()
    assert listener.directory.sweep(NOW + 11) == []


def test_an_expired_agent_is_unknown_even_before_the_sweep() -> None:
    listener = Listener()
    listener.hear(make_announcement(), ttl=10)
    listener.now += 10
    assert listener.known() == []


def test_after_its_end_an_agent_may_come_back_but_old_words_may_not() -> None:
    listener = Listener()
    listener.hear(make_announcement(5))
    listener.directory.sweep(NOW + 10)
    with pytest.raises(Replayed):
        listener.hear(make_announcement(4))
    assert listener.hear(make_announcement(6)) == "added"


def test_another_key_needs_a_signature_of_the_first_one() -> None:
    """L1, C6."""
    listener = Listener()
    listener.hear(make_announcement(1))
    with pytest.raises(KeyConflict):
        listener.hear(make_announcement(2, signer=TWO))
    with pytest.raises(KeyConflict):
        listener.hear(make_announcement(2, signer=TWO, previous=key("three")))
    assert listener.hear(make_announcement(2, signer=TWO, previous=ONE)) == "rotated"
    assert listener.known() == [make_announcement(2, signer=TWO, previous=ONE)]


def test_unsigned_and_badly_signed_messages_are_ignored() -> None:
    """ANN-10."""
    listener = Listener()
    unsigned = make_announcement()
    del unsigned["signature"]
    with pytest.raises(BadSignature):
        listener.hear(unsigned)
    changed = make_announcement()
    changed["agent"]["capabilities"]["more"] = "1"
    with pytest.raises(BadSignature):
        listener.hear(changed)
    assert listener.known() == []


def test_an_unsigned_goodbye_makes_an_agent_suspect_until_its_next_message() -> None:
    """L4."""
    listener = Listener()
    listener.hear(make_announcement(1))
    suspect = listener.directory.goodbye(AGENT_ID, source="10.6.6.6", now=NOW)
    assert suspect is not None
    assert (suspect.kind, suspect.source) == ("suspect", "10.6.6.6")
    assert listener.directory.goodbye(AGENT_ID, source="10.6.6.6", now=NOW) is None
    assert listener.known() == [make_announcement(1)]
    assert listener.hear(make_announcement(1)) == "updated"
    listener.directory.goodbye(AGENT_ID, source="10.6.6.6", now=NOW)
    assert [each.kind for each in listener.directory.sweep(NOW + 10)] == ["expired"]
    assert listener.directory.goodbye(AGENT_ID, source="10.6.6.6", now=NOW) is None


def test_a_signed_goodbye_removes_and_cannot_be_made_of_other_words() -> None:
    """P-19."""
    listener = Listener()
    listener.hear(make_announcement(1))
    with pytest.raises(WaypostError):
        listener.hear(make_announcement(1, metadata={"__state": "shutdown"}))
    assert listener.hear({**make_announcement(2), "action": "shutdown"}) is None
    assert listener.hear(make_announcement(3, metadata={"__state": "shutdown"})) == "removed"
    assert listener.known() == []
    with pytest.raises(Replayed):
        listener.hear(make_announcement(2))
    assert listener.hear(make_announcement(4)) == "added"


def test_keys_that_a_trust_store_names_count_from_the_start() -> None:
    pin = AgentPin(agent_id=AGENT_ID, keys=(new_pinned_key(ONE.public, "trust", NOW),), provisioned=True)
    listener = Listener(find_pin={AGENT_ID: pin}.get)
    with pytest.raises(KeyConflict):
        listener.hear(make_announcement(signer=TWO))
    assert listener.hear(make_announcement()) == "added"
    told = listener.directory.sightings(now=NOW)[0].verdicts
    assert [verdict.state for verdict in told] == ["passed", "passed"]


def test_revoked_keys_are_not_trusted() -> None:
    terms = AdmissionPolicy(mode="tofu", authenticated=False, revoked_keys={ONE.public.key_id})
    with pytest.raises(Revoked):
        Listener(policy=terms).hear(make_announcement())


def test_a_full_directory_accepts_no_new_agent_and_loses_none() -> None:
    listener = Listener(capacity=3)
    ids = [str(uuid.UUID(int=number, version=4)) for number in range(4)]
    for agent_id in ids[:3]:
        assert listener.hear(make_announcement(agent_id=agent_id)) == "added"
    with pytest.raises(QuotaExceeded):
        listener.hear(make_announcement(agent_id=ids[3]))
    assert listener.hear(make_announcement(2, agent_id=ids[0], capabilities={"logs": "1"})) == "updated"
    listener.directory.sweep(NOW + 10)
    assert listener.hear(make_announcement(agent_id=ids[3])) == "added"


def test_a_present_agent_keeps_its_key_despite_churn() -> None:
    """L1."""
    listener = Listener(capacity=3)
    listener.hear(make_announcement(1), ttl=100)
    for number in range(20):
        agent_id = str(uuid.UUID(int=number, version=4))
        listener.hear(make_announcement(1, agent_id=agent_id))
        listener.hear(make_announcement(2, agent_id=agent_id, metadata={"__state": "shutdown"}))
    with pytest.raises(KeyConflict):
        listener.hear(make_announcement(9, signer=TWO))
    assert listener.known() == [make_announcement(1)]


def test_queries_are_answered_from_the_directory() -> None:
    listener = Listener()
    other = str(uuid.UUID(int=7, version=4))
    listener.hear(make_announcement())
    listener.hear(make_announcement(agent_id=other, capabilities={"logs": "1"}))
    logs = AgentQuery(requirements=(parse_capability_requirement("logs"),))
    assert [message["agent"]["agent_id"] for message in listener.directory.messages(logs, now=NOW)] == [other]
    assert {sighting.kind for sighting in listener.directory.sightings(now=NOW)} == {"added"}


@pytest.mark.parametrize("agent", [None, [], {}, {"agent_id": 7}, {"agent_id": "../../etc"}, {"agent_id": AGENT_ID}])
def test_a_message_without_a_whole_agent_is_refused(agent: Any) -> None:
    with pytest.raises(InvalidDocument):
        Listener().hear({"protocol_version": "v1.0", "agent": agent, "signature": "AAAA"})


@pytest.mark.parametrize(
    ("ttl", "granted"), [(5, 10), (10, 10), (3600, 3600), (3601, 3600), (True, 120), ("60", 120), (None, 120)]
)
def test_a_ttl_is_honoured_from_10_to_3600_seconds(ttl: Any, granted: int) -> None:
    """P-7."""
    assert ttl_of({"ttl": ttl}) == granted


def test_the_ttl_of_a_response_is_the_remaining_time() -> None:
    assert ttl_of({"ttl": 3, "matched": True}) == 3


@given(st.lists(st.integers(1, 6), max_size=20), st.randoms(use_true_random=False))
def test_duplicates_and_disorder_end_in_the_newest_state(seqs: list[int], order: Any) -> None:
    """B5."""
    listener = Listener()
    order.shuffle(seqs)
    for seq in seqs:
        try:
            listener.hear(make_announcement(seq, capabilities={"metrics": str(seq)}))
        except Replayed:
            continue
    newest = [make_announcement(max(seqs), capabilities={"metrics": str(max(seqs))})] if seqs else []
    assert listener.known() == newest


def test_one_source_cannot_fill_the_directory_of_a_listener() -> None:
    """L3."""
    listener = Listener(capacity_per_source=2)
    ids = [str(uuid.UUID(int=number, version=4)) for number in range(5)]
    for agent_id in ids[:2]:
        assert listener.hear(make_announcement(agent_id=agent_id), source="192.0.2.1:4001") == "added"
    with pytest.raises(QuotaExceeded):
        listener.hear(make_announcement(agent_id=ids[2]), source="192.0.2.1:4002")
    assert listener.hear(make_announcement(2, agent_id=ids[0]), source="192.0.2.1:4003") is None, "who is known goes on"
    assert listener.hear(make_announcement(agent_id=ids[3]), source="192.0.2.2:4001") == "added"
    assert listener.directory.remove(ids[0], NOW) is not None
    assert listener.hear(make_announcement(agent_id=ids[4]), source="192.0.2.1:4001") == "added"


def test_each_key_is_stored_once_in_a_trust_store() -> None:
    told: list[AgentPin] = []
    listener = Listener(on_pin=told.append)
    listener.hear(make_announcement(1))
    listener.hear(make_announcement(2))
    assert [[(key.key_id, key.state) for key in pin.keys] for pin in told] == [[(ONE.public.key_id, "active")]]
    listener.hear(make_announcement(3, signer=TWO, previous=ONE))
    assert [key.state for key in told[-1].keys] == ["active", "retiring"]
    assert len(told) == 2


@pytest.mark.parametrize(
    ("source", "machine"),
    [
        ("192.0.2.1:49353", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("fe80::1", "fe80::1"),
        ("[fe80::1]:49353", "[fe80::1]"),
        ("topic.discovery", "topic.discovery"),
    ],
)
def test_a_source_is_of_a_machine(source: str, machine: str) -> None:
    assert machine_of(source) == machine
