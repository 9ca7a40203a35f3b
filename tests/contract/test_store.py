"""One suite for every store: the registry relies on this behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from support.records import records
from support.store_commands import (
    NOW,
    Listener,
    everything,
    held_for,
    look,
    make_registration,
    make_source,
    put,
    refuse,
    renew,
    withdraw,
)
from waypost import limits
from waypost.errors import Conflict, IdempotencyConflict, StorageFull, StoreUnavailable
from waypost.model.events import read_leaf
from waypost.model.record import AgentRecord, record_bytes
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.verdict import Verdict
from waypost.registry.catalog.entries import entry_of
from waypost.registry.ports import (
    AuditEntry,
    AuditQuery,
    Command,
    Decision,
    Idempotency,
    RegistrationChange,
    Store,
    StoreState,
)
from waypost.stores import StoreBackend
from waypost.stores.sqlite.store import SqliteFollowerStore, SqliteStore
from waypost.trust.transparency_log import leaf_hash, merkle_root

Reopen = Callable[[], Awaitable[Store]]


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def store(backend: StoreBackend, tmp_path: Path, listener: Listener) -> AsyncIterator[Store]:
    made = backend.make_store(tmp_path)
    await made.open(listener)
    yield made
    await made.close()


@pytest.fixture
async def opened(tmp_path: Path, listener: Listener) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    await made.open(listener)
    yield made
    await made.close()


@pytest.fixture
async def durable(durable_backend: StoreBackend, tmp_path: Path, listener: Listener) -> AsyncIterator[Store]:
    made = durable_backend.make_store(tmp_path)
    await made.open(listener)
    yield made
    await made.close()


@pytest.fixture
def reopen(durable_backend: StoreBackend, durable: Store, tmp_path: Path) -> Reopen:
    """Close the store and open its files again."""

    async def close_and_open() -> Store:
        await durable.close()
        again = durable_backend.make_store(tmp_path)
        await again.open(Listener())
        return again

    return close_and_open


# --- One write ------------------------------------------------------------------------------------


async def test_a_registration_comes_back_equal_with_its_revision(store: Store) -> None:
    registration = make_registration(
        "urn:agent:1",
        aliases=("a-1", "two"),
        invitees=("bob",),
        visibility="private",
        ttl_seconds=60,
        lease_expires_at=NOW + 60,
        announce_id="0b5f8c34-8a3b-4a2d-9c5e-1f2a3b4c5d6e",
        hosted="one.example",
        sources=(
            make_source(
                "adp", b'{"adp": "\xc3\xa4"}', sequence=2**53 - 1, verdicts=(Verdict(check="jws", state="passed"),)
            ),
            make_source("a2a", b"\x00\xff not json", url="https://one.example/card", updated_at=NOW, version="2"),
        ),
    )
    answer = await store.execute(put(registration))
    expected = msgspec.structs.replace(registration, revision=1)
    assert answer.outcome == "created"
    assert answer.revision == 1
    assert answer.registration == expected
    assert await store.fetch(["urn:agent:1"]) == {"urn:agent:1": expected}


async def test_entries_are_the_entries_of_the_registrations(store: Store) -> None:
    for number in range(5):
        await store.execute(
            put(
                make_registration(
                    f"agent-{number}",
                    aliases=(f"alias-{number}",) * (number % 2),
                    lease_expires_at=NOW + number if number else None,
                )
            )
        )
    entries = [entry async for page in store.entries() for entry in page]
    assert {entry.id: msgspec.structs.replace(entry, number=0) for entry in entries} == {
        agent_id: entry_of(registration) for agent_id, registration in (await everything(store)).items()
    }
    assert len(entries) == 5


async def test_the_earlier_of_lease_and_own_expiry_is_in_the_entry(store: Store) -> None:
    early = make_registration("early", lease_expires_at=NOW + 5)
    record = msgspec.structs.replace(early.record, expires_at="2026-01-01T00:00:00Z")
    await store.execute(put(msgspec.structs.replace(early, record=record)))
    await store.execute(put(make_registration("late", lease_expires_at=NOW + 5)))
    expiry = {entry.id: entry.expires_at async for page in store.entries() for entry in page}
    assert expiry == {"early": 1_767_225_600.0, "late": NOW + 5}


async def test_an_update_replaces_record_sources_and_envelope(store: Store) -> None:
    await store.execute(put(make_registration("x", text="old", aliases=("a",))))
    new = make_registration("x", text="new", aliases=("b",), sources=(make_source("rtfs", b"(new)"),))
    answer = await store.execute(put(new))
    assert answer.outcome == "updated"
    assert (await store.fetch(["x"]))["x"] == msgspec.structs.replace(new, revision=2)
    assert len(await everything(store)) == 1


async def test_a_removal_leaves_a_tombstone_and_nothing_else(store: Store) -> None:
    await store.execute(put(make_registration("x", aliases=("a",))))
    answer = await store.execute(withdraw("x"))
    assert (answer.outcome, answer.registration, answer.revision) == ("withdrawn", None, 2)
    assert await store.fetch(["x"]) == {}
    assert [page async for page in store.entries()] == []
    tombstone = await store.tombstone("x")
    assert tombstone is not None
    assert (tombstone.sequence, tombstone.type) == (7, "withdrawn")
    held = await held_for(store, "x", "a")
    assert held.registrations == {}
    assert held.tombstones == {"x": tombstone}


async def test_registering_again_lifts_the_tombstone(store: Store) -> None:
    for command in (put(make_registration("x")), withdraw("x"), put(make_registration("x", text="back"))):
        await store.execute(command)
    assert await store.tombstone("x") is None
    assert (await held_for(store, "x")).tombstones == {}


async def test_a_renewal_changes_the_lease_and_nothing_else(store: Store, listener: Listener) -> None:
    await store.execute(put(make_registration("x", ttl_seconds=60, lease_expires_at=NOW + 60, aliases=("a",))))
    before = (await store.fetch(["x"]))["x"]
    await store.execute(renew("x", now=NOW + 30))
    after = (await store.fetch(["x"]))["x"]
    assert after == msgspec.structs.replace(before, revision=2, renewed_at=NOW + 30, lease_expires_at=NOW + 90)
    assert [entry.expires_at async for page in store.entries() for entry in page] == [NOW + 90]
    assert listener.batches[1][0].registration == after


async def test_a_decision_without_a_change_takes_no_revision(store: Store, listener: Listener) -> None:
    await store.execute(put(make_registration("x")))
    held = (await store.fetch(["x"]))["x"]
    command = Command(
        keys=("x",), decide=lambda held: Decision(outcome="unchanged", registration=held.registrations["x"])
    )
    answer = await store.execute(command)
    assert (answer.outcome, answer.registration) == ("unchanged", held)
    assert await store.revision() == 1
    assert listener.revisions == [1]


async def test_a_removal_returns_the_registration_of_the_decision(store: Store) -> None:
    await store.execute(put(make_registration("x")))

    def decide(held: StoreState) -> Decision:
        current = held.registrations["x"]
        change = RegistrationChange(type="expired", at=NOW, removed=current, before=current.scopes)
        return Decision(outcome="expired", change=change, registration=current)

    answer = await store.execute(Command(keys=("x",), decide=decide))
    assert answer.registration is not None
    assert answer.registration.id == "x"


async def test_text_of_every_script_survives(store: Store) -> None:
    names = (
        "日本語",
        "agent:ä\u0301",
        "\U0001f9ed",
        "a\u0000b",
        "'; DROP TABLE entries; --",
        "%_\\",
        "x" * limits.ID_CHARS,
    )
    for name in names:
        await store.execute(put(make_registration(name, text=f"für {name}", aliases=(f"alias {name}",))))
    assert set(await store.fetch(names)) == set(names)
    for name in names:
        held = await held_for(store, f"alias {name}")
        assert list(held.registrations) == [name]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=records())
async def test_any_record_comes_back_equal(store: Store, record: AgentRecord) -> None:
    registration = make_registration(record.id)
    await store.execute(put(msgspec.structs.replace(registration, record=record)))
    assert (await store.fetch([record.id]))[record.id].record == record


# --- Names ----------------------------------------------------------------------------------------


async def test_a_decision_sees_every_registration_its_keys_lead_to(store: Store) -> None:
    await store.execute(put(make_registration("one", aliases=("first", "uno"))))
    await store.execute(put(make_registration("two", aliases=("second",))))
    held = await held_for(store, "uno", "two", "nobody")
    assert list(held.registrations) == ["one", "two"]
    assert held.registrations == await store.fetch(["one", "two"])
    assert held.revision == 2


async def test_an_id_and_an_equal_alias_lead_to_both_the_id_first(store: Store) -> None:
    await store.execute(put(make_registration("another", aliases=("shared",))))
    await store.execute(put(make_registration("shared")))
    assert list((await held_for(store, "shared")).registrations) == ["shared", "another"]


async def test_an_alias_stays_with_its_first_holder(store: Store) -> None:
    await store.execute(put(make_registration("first", aliases=("name",))))
    await store.execute(put(make_registration("second", aliases=("name",))))
    assert list((await held_for(store, "name")).registrations) == ["first"]
    await store.execute(put(make_registration("first", text="again", aliases=("name",))))
    assert list((await held_for(store, "name")).registrations) == ["first"]


async def test_an_alias_is_free_when_its_holder_is_removed_or_drops_it(store: Store) -> None:
    await store.execute(put(make_registration("first", aliases=("name", "other"))))
    await store.execute(put(make_registration("first", aliases=("other",))))
    await store.execute(put(make_registration("second", aliases=("name", "other"))))
    assert list((await held_for(store, "name")).registrations) == ["second"]
    await store.execute(withdraw("first"))
    assert (await held_for(store, "other")).registrations == {}
    await store.execute(put(make_registration("second", text="claims again", aliases=("name", "other"))))
    assert list((await held_for(store, "other")).registrations) == ["second"]


async def test_aliases_do_not_answer_fetch(store: Store) -> None:
    await store.execute(put(make_registration("x", aliases=("a",))))
    assert await store.fetch(["a"]) == {}


# --- All or nothing -------------------------------------------------------------------------------


async def test_a_refused_command_raises_its_error_and_writes_nothing(store: Store, listener: Listener) -> None:
    with pytest.raises(Conflict, match="Refused by the test"):
        await store.execute(refuse("x"))
    assert await store.revision() == 0
    assert listener.batches == []


async def test_a_fault_in_a_decision_reaches_only_its_caller(store: Store) -> None:
    def decide(held: StoreState) -> Decision:
        raise ZeroDivisionError

    commands = (put(make_registration("a")), Command(keys=("x",), decide=decide), put(make_registration("b")))
    results = await asyncio.gather(*map(store.execute, commands), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["CommandResult", "ZeroDivisionError", "CommandResult"]
    assert set(await everything(store)) == {"a", "b"}


async def test_refused_commands_in_a_group_do_not_affect_the_others(store: Store, listener: Listener) -> None:
    commands = [put(make_registration(f"agent-{n}")) if n % 3 else refuse(f"agent-{n}") for n in range(60)]
    results = await asyncio.gather(*map(store.execute, commands), return_exceptions=True)
    assert [isinstance(result, Conflict) for result in results] == [n % 3 == 0 for n in range(60)]
    assert set(await everything(store)) == {f"agent-{n}" for n in range(60) if n % 3}
    assert listener.revisions == list(range(1, 41))


async def test_removing_an_unknown_agent_raises_and_changes_nothing(store: Store) -> None:
    ghost = make_registration("ghost")
    command = Command(
        keys=("ghost",),
        decide=lambda held: Decision(
            outcome="withdrawn", change=RegistrationChange(type="withdrawn", at=NOW, removed=ghost)
        ),
    )
    with pytest.raises(ValueError, match="unknown agent"):
        await store.execute(command)
    assert await store.revision() == 0
    assert await store.events(0, 10) == []


async def test_a_command_sees_what_earlier_commands_of_its_group_wrote(store: Store) -> None:
    results = await asyncio.gather(*(store.execute(put(make_registration("x", text=str(n)))) for n in range(20)))
    assert [result.outcome for result in results] == ["created"] + ["updated"] * 19
    assert [result.revision for result in results] == list(range(1, 21))
    assert (await store.fetch(["x"]))["x"].record.description == "19"


async def test_revisions_are_dense_and_unique_under_many_writers(store: Store, listener: Listener) -> None:
    async def write(writer: int) -> list[int]:
        return [
            (await store.execute(put(make_registration(f"agent-{writer % 50}-{n}", text=str(writer))))).revision
            for n in range(5)
        ]

    taken = [revision for part in await asyncio.gather(*map(write, range(200))) for revision in part]
    assert sorted(taken) == list(range(1, 1001))
    assert listener.revisions == list(range(1, 1001))
    assert [event.revision for event in await store.events(0, 2000)] == list(range(1, 1001))
    assert await store.revision() == 1000


# --- The listener ---------------------------------------------------------------------------------


async def test_many_large_documents_at_once_are_stored(store: Store, listener: Listener) -> None:
    document = b"x" * limits.DOCUMENT_BYTES
    large = [make_registration(f"agent-{n}", sources=(make_source("a2a", document),)) for n in range(60)]
    await asyncio.gather(*map(store.execute, map(put, large)))
    assert listener.revisions == list(range(1, 61))
    assert len(await everything(store)) == 60


async def test_the_listener_is_notified_before_the_caller(store: Store, listener: Listener) -> None:
    async def write(n: int) -> bool:
        answer = await store.execute(put(make_registration(f"agent-{n}")))
        return answer.revision in listener.revisions

    assert all(await asyncio.gather(*map(write, range(50))))


async def test_committed_registrations_can_be_fetched_by_the_listener(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    heard: list[str] = []
    await store.open(lambda batch: heard.extend(committed.event.id for committed in batch))
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n}"))) for n in range(100)))
    assert set(await store.fetch(heard)) == set(heard) == {f"agent-{n}" for n in range(100)}
    await store.close()


async def test_a_listener_that_fails_does_not_cost_the_answer(tmp_path: Path) -> None:
    def fail(batch: object) -> None:
        raise RuntimeError("the listener fails")

    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    store = SqliteStore(tmp_path)
    await store.open(fail)
    assert (await store.execute(put(make_registration("x")))).outcome == "created"
    assert (await store.execute(put(make_registration("y")))).outcome == "created"
    await store.close()
    assert [str(fault["exception"]) for fault in faults] == ["the listener fails"] * 2


# --- The change log -------------------------------------------------------------------------------


async def test_events_carry_the_change_and_the_previous_audience(store: Store, listener: Listener) -> None:
    hidden = make_registration("x", visibility="private", invitees=("bob",), text="hidden")
    for command in (put(make_registration("x")), put(hidden, at=NOW + 1), renew("x", now=NOW + 2), withdraw("x")):
        await store.execute(command)
    events = await store.events(0, 10)
    assert [event.type for event in events] == ["registered", "updated", "renewed", "withdrawn"]
    assert [event.before for event in events] == [
        None,
        ("public",),
        ("private:alice", "private:bob"),
        ("private:alice", "private:bob"),
    ]
    assert events[1].scopes == ("private:alice", "private:bob")
    assert (events[1].record, events[1].at) == (record_bytes(hidden.record), NOW + 1)
    assert events[1].etag == hidden.etag
    assert [event.record is None for event in events] == [False, False, True, True]
    told = [committed.event for batch in listener.batches for committed in batch]
    assert [event.record is None for event in told] == [False, False, False, True]
    assert [msgspec.structs.replace(event, record=None) for event in told] == [
        msgspec.structs.replace(event, record=None) for event in events
    ]


async def test_a_renewal_is_read_with_its_record_while_the_content_is_the_same(store: Store) -> None:
    first = make_registration("x", text="first")
    for command in (put(first), renew("x", now=NOW + 1)):
        await store.execute(command)
    assert (await store.events(1, 10))[0].record == record_bytes(first.record)
    await store.execute(put(make_registration("x", text="second")))
    assert (await store.events(1, 1))[0].record is None


async def test_events_are_read_in_pages_after_a_revision(store: Store) -> None:
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n}"))) for n in range(10)))
    assert [event.revision for event in await store.events(3, 4)] == [4, 5, 6, 7]
    assert [event.revision for event in await store.events(8, 100)] == [9, 10]
    assert await store.events(10, 100) == []


async def test_the_oldest_event_of_an_empty_log_is_the_next_one(store: Store) -> None:
    assert await store.oldest_event() == 1
    await store.execute(put(make_registration("x")))
    assert await store.oldest_event() == 1


async def test_pruning_drops_old_events_beyond_the_newest(store: Store) -> None:
    for n in range(10):
        await store.execute(put(make_registration(f"agent-{n}"), at=NOW + n))
    assert await store.prune(events_before=NOW + 5, keep_events=3, now=NOW) == 5
    assert await store.oldest_event() == 6
    assert await store.prune(events_before=NOW + 100, keep_events=3, now=NOW) == 2
    assert [event.revision for event in await store.events(0, 100)] == [8, 9, 10]
    assert await store.prune(events_before=NOW + 100, keep_events=3, now=NOW) == 0


async def test_pruning_leaves_no_gap_where_the_clock_went_back(store: Store) -> None:
    for n, at in enumerate((NOW, NOW + 100, NOW + 1, NOW + 2)):
        await store.execute(put(make_registration(f"agent-{n}"), at=at))
    await store.prune(events_before=NOW + 50, keep_events=0, now=NOW)
    assert [event.revision for event in await store.events(0, 100)] == [2, 3, 4]


async def test_a_log_of_too_many_bytes_is_pruned_however_new_it_is(store: Store) -> None:
    for n in range(20):
        await store.execute(put(make_registration(f"agent-{n}", text="x" * 10_000)))
    kept = {"events_before": 0.0, "keep_events": 1000, "now": NOW}
    assert await store.prune(**kept, keep_bytes=1_000_000) == 0
    pruned = await store.prune(**kept, keep_bytes=100_000)
    assert 10 <= pruned <= 13
    assert [event.revision for event in await store.events(0, 100)] == list(range(pruned + 1, 21))
    assert await store.prune(**kept, keep_bytes=100_000) == 0
    for n in range(5):
        await store.execute(put(make_registration(f"later-{n}", text="x" * 10_000)))
    assert 4 <= await store.prune(**kept, keep_bytes=100_000) <= 6
    assert (await store.events(0, 100))[-1].revision == 25


async def test_pruning_by_age_is_counted_for_pruning_by_bytes(store: Store) -> None:
    for n in range(20):
        await store.execute(put(make_registration(f"agent-{n}", text="x" * 10_000), at=NOW + n))
    assert await store.prune(events_before=NOW + 15, keep_events=0, now=NOW, keep_bytes=1_000_000) == 15
    assert await store.prune(events_before=0, keep_events=0, now=NOW, keep_bytes=100_000) == 0
    assert await store.oldest_event() == 16


async def test_the_revision_goes_on_after_the_whole_log_was_pruned(store: Store) -> None:
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n}"))) for n in range(1200)))
    assert await store.prune(events_before=NOW + 1, keep_events=0, now=NOW) == 1200
    assert (await store.revision(), await store.oldest_event()) == (1200, 1201)
    assert (await store.execute(put(make_registration("next")))).revision == 1201


async def test_pruning_forgets_tombstones_and_idempotency_keys_when_their_time_is_over(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    await store.execute(put(make_registration("x"), idempotency=key))
    await store.execute(withdraw("x", forget_at=NOW + 20))
    assert await store.prune(events_before=0, keep_events=0, now=NOW + 9) == 0
    assert await store.prune(events_before=0, keep_events=0, now=NOW + 10) == 1
    assert await store.tombstone("x") is not None
    assert await store.prune(events_before=0, keep_events=0, now=NOW + 20) == 1
    assert await store.tombstone("x") is None
    assert (await store.execute(put(make_registration("x"), idempotency=key))).replayed is False


# --- Idempotency ----------------------------------------------------------------------------------


async def test_a_repeated_key_gives_the_first_answer_and_changes_nothing(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    first = await store.execute(put(make_registration("x", text="first", aliases=("a",)), idempotency=key))
    await store.execute(put(make_registration("x", text="second")))
    again = await store.execute(put(make_registration("x", text="first", aliases=("a",)), idempotency=key))
    assert again.replayed
    assert (again.outcome, again.revision) == (first.outcome, first.revision)
    assert first.registration is not None
    assert again.registration is not None
    assert again.registration == bare(first.registration)
    assert await store.revision() == 2


async def test_a_stored_answer_outlives_the_agent(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    await store.execute(put(make_registration("x"), idempotency=key))
    await store.execute(withdraw("x"))
    again = await store.execute(put(make_registration("x"), idempotency=key))
    assert again.outcome == "created"
    assert again.registration is not None
    assert await store.fetch(["x"]) == {}


async def test_a_key_with_another_request_is_a_conflict(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    await store.execute(put(make_registration("x"), idempotency=key))
    with pytest.raises(IdempotencyConflict):
        await store.execute(put(make_registration("y"), idempotency=msgspec.structs.replace(key, fingerprint="other")))


async def test_a_refused_command_does_not_use_up_its_key(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    with pytest.raises(Conflict):
        await store.execute(msgspec.structs.replace(refuse("x"), idempotency=key))
    assert (await store.execute(put(make_registration("x"), idempotency=key))).outcome == "created"


async def test_equal_requests_at_the_same_time_are_one_change(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    answers = await asyncio.gather(*(store.execute(put(make_registration("x"), idempotency=key)) for _ in range(10)))
    assert [answer.replayed for answer in answers] == [False] + [True] * 9
    assert {answer.revision for answer in answers} == {1}


async def test_an_answer_without_a_change_is_stored_too(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    idle = msgspec.structs.replace(look("x", seen=lambda held: None), idempotency=key)
    assert (await store.execute(idle)).replayed is False
    assert (await store.execute(idle)).replayed is True


# --- Reading --------------------------------------------------------------------------------------


def bare(registration: Registration) -> Registration:
    sources = tuple(msgspec.structs.replace(source, document=b"") for source in registration.sources)
    return msgspec.structs.replace(registration, sources=sources)


async def test_fetch_scan_and_entries_agree(store: Store) -> None:
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n:04}"))) for n in range(600)))
    await asyncio.gather(*(store.execute(withdraw(f"agent-{n:04}")) for n in range(0, 600, 7)))
    scanned = await everything(store)
    ids = sorted(scanned)
    assert ids == sorted(f"agent-{n:04}" for n in range(600) if n % 7)
    assert await store.fetch(ids) == scanned
    assert await store.fetch(ids[:3]) == {agent_id: scanned[agent_id] for agent_id in ids[:3]}
    assert sorted([entry.id async for page in store.entries() for entry in page]) == ids


async def test_documents_are_omitted_unless_requested(store: Store) -> None:
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n}"))) for n in range(100)))
    whole = await everything(store)
    assert await store.fetch(sorted(whole), sources=False) == {key: bare(value) for key, value in whole.items()}
    assert await store.fetch(["agent-1"], sources=False) == {"agent-1": bare(whole["agent-1"])}


async def documents_of(store: Store, entries: Sequence[CatalogEntry]) -> list[tuple[str, bytes] | None]:
    return [await store.document(entry, "profile") for entry in entries]


async def test_a_document_is_that_of_its_agent_however_old_the_entry_is(store: Store, listener: Listener) -> None:
    """Also if the stored row number of an agent now belongs to another agent, or to none."""

    def said(agent_id: str, text: bytes) -> Registration:
        return make_registration(agent_id, sources=(make_source("profile", text),), etag=text.decode())

    for agent_id in ("first", "second"):
        await store.execute(put(said(agent_id, b"old " + agent_id.encode())))
    old = [committed.entry for committed in listener.changes if committed.entry is not None]
    assert [entry.id for entry in old] == ["first", "second"]
    swapped = [msgspec.structs.replace(entry, number=other.number) for entry, other in zip(old, old[::-1], strict=True)]
    lost = [msgspec.structs.replace(entry, number=1000) for entry in old]
    untold = [msgspec.structs.replace(entry, number=0) for entry in old]
    for entries in (old, swapped, lost, untold):
        assert await documents_of(store, entries) == [("old first", b"old first"), ("old second", b"old second")]
    await store.execute(put(said("first", b"new")))
    await store.execute(withdraw("second"))
    await store.execute(put(said("third", b"third")))
    for entries in (old, swapped, lost, untold):
        assert await documents_of(store, entries) == [("new", b"new"), None]
    assert await store.document(old[0], "a2a") is None


async def test_a_notified_follower_reads_the_commit(opened: SqliteStore, listener: Listener) -> None:
    """Reads share a snapshot of the file for a while; a commit ends it, in its own process and in a notified one."""
    follower = SqliteFollowerStore(opened.path.parent)
    await follower.open(lambda _: None)
    try:
        for text in (b"one", b"two", b"three"):
            registration = make_registration("agent", sources=(make_source("profile", text),), etag="alike")
            await opened.execute(put(registration))
            entry = listener.changes[-1].entry
            assert entry is not None
            assert await opened.document(entry, "profile") == ("alike", text)
            assert (await follower.events(0, 100))[-1].revision == await opened.revision()
            assert await follower.document(entry, "profile") == ("alike", text)
            assert (await follower.events(0, 10))[-1].revision == await opened.revision()
    finally:
        await follower.close()


async def test_a_turn_of_reads_ends_by_itself(opened: SqliteStore, listener: Listener) -> None:
    """So that the WAL can be reset, even without further commits."""
    await opened.execute(put(make_registration("agent")))
    entry = listener.changes[-1].entry
    assert entry is not None
    await opened.document(entry, "profile")
    assert opened.has_snapshot
    async with asyncio.timeout(20):
        while opened.has_snapshot:
            await asyncio.sleep(0)


async def test_a_scan_of_some_ids_leaves_missing_ones_out(store: Store) -> None:
    await asyncio.gather(*(store.execute(put(make_registration(f"agent-{n}"))) for n in range(5)))
    found = [each.id async for page in store.scan(["agent-3", "nobody", "agent-1"]) for each in page]
    assert sorted(found) == ["agent-1", "agent-3"]


async def test_an_empty_store_has_nothing_to_read(store: Store) -> None:
    assert await store.fetch(["x"]) == {}
    assert await store.fetch([]) == {}
    assert await everything(store) == {}
    assert [page async for page in store.entries()] == []
    assert await store.tombstone("x") is None
    assert await store.revision() == 0


async def test_readers_see_whole_registrations_while_writers_change_them(store: Store) -> None:
    ids = [f"agent-{n}" for n in range(80)]
    done = False

    async def write() -> None:
        nonlocal done
        for round_ in range(15):
            texts = f"round {round_}"
            await asyncio.gather(*(store.execute(put(make_registration(each, text=texts))) for each in ids))
        done = True

    async def read(count: int) -> int:
        seen, newest = 0, 0
        while not done:
            for registration in (await store.fetch(ids[:count])).values():
                expected = make_registration(registration.id, text=registration.record.description)
                assert registration == msgspec.structs.replace(expected, revision=registration.revision)
                seen += 1
            revision = await store.revision()
            assert revision >= newest
            newest = revision
            await asyncio.sleep(0)
        return seen

    counts = await asyncio.gather(write(), read(3), read(80))
    assert counts[1]
    assert counts[2]


# --- Secrets and life -----------------------------------------------------------------------------


async def test_a_secret_is_made_once(store: Store) -> None:
    made = iter((b"one", b"two"))
    first, second = await asyncio.gather(*(store.secret("cursor", lambda: next(made)) for _ in range(2)))
    assert first == second == b"one"
    assert await store.secret("other", lambda: next(made)) == b"two"


async def test_an_open_store_is_healthy_and_a_closed_one_refuses(store: Store) -> None:
    assert await store.healthy()
    await store.close()
    assert not await store.healthy()
    with pytest.raises(StoreUnavailable):
        await store.execute(put(make_registration("x")))


async def test_commands_that_wait_when_the_store_closes_are_written_and_answered(
    store: Store, listener: Listener
) -> None:
    waiting = [asyncio.ensure_future(store.execute(put(make_registration(f"agent-{n}")))) for n in range(700)]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*waiting)
    assert len({answer.revision for answer in answers}) == 700
    assert len(listener.revisions) == 700


async def test_everything_survives_a_reopening(durable: Store, reopen: Reopen) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    await durable.execute(put(make_registration("x", aliases=("a",)), idempotency=key))
    await durable.execute(put(make_registration("y")))
    await durable.execute(withdraw("y"))
    secret = await durable.secret("cursor", lambda: b"\x00secret")
    before = await everything(durable), await durable.tombstone("y"), await durable.events(0, 10)
    again = await reopen()
    assert (await everything(again), await again.tombstone("y"), await again.events(0, 10)) == before
    assert await again.secret("cursor", lambda: b"another") == secret
    assert await again.revision() == 3
    assert (await again.execute(put(make_registration("x", aliases=("a",)), idempotency=key))).replayed
    assert list((await held_for(again, "a")).registrations) == ["x"]
    await again.close()


async def test_the_revision_of_an_emptied_log_survives_a_reopening(durable: Store, reopen: Reopen) -> None:
    await asyncio.gather(*(durable.execute(put(make_registration(f"agent-{n}"))) for n in range(5)))
    await durable.prune(events_before=NOW + 1, keep_events=0, now=NOW)
    again = await reopen()
    assert (await again.revision(), await again.oldest_event()) == (5, 6)
    await again.close()


async def test_a_command_cancelled_before_its_turn_is_not_executed(opened: SqliteStore) -> None:
    task = asyncio.ensure_future(opened.execute(put(make_registration("gone"))))
    await asyncio.sleep(0)
    task.cancel()
    await opened.execute(put(make_registration("here")))
    assert set(await everything(opened)) == {"here"}


async def test_more_waiting_writes_than_the_queue_holds_are_refused(opened: SqliteStore) -> None:
    more = limits.WRITE_QUEUE + 5
    command = refuse("x")
    results = await asyncio.gather(*(opened.execute(command) for _ in range(more)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, StoreUnavailable)]
    assert len(refused) == 5
    assert refused[0].retry_after
    assert sum(isinstance(result, Conflict) for result in results) == limits.WRITE_QUEUE


async def test_many_commands_share_a_commit(opened: SqliteStore, listener: Listener) -> None:
    await asyncio.gather(*(opened.execute(put(make_registration(f"agent-{n}"))) for n in range(1000)))
    assert len(listener.batches) <= 1000 / limits.GROUP_COMMIT_MAX + 2
    assert max(map(len, listener.batches)) <= limits.GROUP_COMMIT_MAX


# --- Notes, and refusals that are remembered ------------------------------------------------------


def note(
    notes: dict[str, bytes | None],
    *,
    sees: tuple[str, ...] = (),
    seen: Callable[[StoreState], None] = lambda held: None,
    **members: Any,
) -> Command:
    def decide(held: StoreState) -> Decision:
        seen(held)
        return Decision(outcome="noted", notes=notes, **members)

    return Command(keys=(), notes=sees, decide=decide)


async def test_a_note_is_read_by_key_and_listed_by_prefix(store: Store) -> None:
    await store.execute(note({"allow:*": b"1", "allow:é": b"2", "pin:a": b"3", "allowed": b"no"}))
    held: list[StoreState] = []
    await store.execute(note({}, sees=("pin:a", "pin:b"), seen=held.append))
    assert held[0].notes == {"pin:a": b"3"}
    assert await store.notes("allow:") == [("allow:*", b"1"), ("allow:é", b"2")]
    assert len(await store.notes("")) == 4
    assert await store.notes("allow", limit=2) == [("allow:*", b"1"), ("allow:é", b"2")]
    assert await store.notes("allow", "allow:*", 1) == [("allow:é", b"2")]
    assert await store.notes("pin:", "allow:é") == [("pin:a", b"3")]
    assert await store.notes("pin:a", limit=1) == [("pin:a", b"3")], "the whole name is a beginning too"
    assert await store.notes("pin:", "pin:a") == []
    await store.execute(note({"allow:*": None, "pin:a": b"4", "absent": None}))
    assert await store.notes("allow:") == [("allow:é", b"2")]
    assert await store.notes("pin:") == [("pin:a", b"4")]


async def test_notes_alone_take_no_revision_and_make_no_event(store: Store, listener: Listener) -> None:
    answer = await store.execute(note({"pin:a": b"1"}, audit=(entry("allow"),)))
    assert (answer.outcome, answer.revision) == ("noted", 0)
    assert (await store.revision(), await store.events(0, 10), listener.batches) == (0, [], [])


async def test_a_refused_command_raises_and_its_notes_are_stored(store: Store) -> None:
    key = Idempotency(key="alice\0k", fingerprint="f", forget_at=NOW + 10)
    tried = note({"pin:a": b"tried"}, refusal=Conflict("Another key."))
    commands = (
        put(make_registration("x")),
        msgspec.structs.replace(tried, idempotency=key),
        put(make_registration("y")),
    )
    results = await asyncio.gather(*map(store.execute, commands), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["CommandResult", "Conflict", "CommandResult"]
    assert await store.notes("pin:") == [("pin:a", b"tried")]
    assert (await store.execute(put(make_registration("z"), idempotency=key))).replayed is False


async def test_a_command_that_fails_leaves_no_note(store: Store) -> None:
    ghost = make_registration("ghost")
    change = RegistrationChange(type="withdrawn", at=NOW, removed=ghost)
    with pytest.raises(ValueError, match="unknown agent"):
        await store.execute(note({"pin:a": b"1"}, change=change))
    assert await store.notes("") == []


async def test_a_change_and_its_notes_are_one(store: Store) -> None:
    registration = make_registration("x")
    change = RegistrationChange(type="registered", at=NOW, registration=registration)
    await store.execute(note({"pin:x": b"1"}, change=change))
    assert set(await everything(store)) == {"x"}
    assert await store.notes("pin:") == [("pin:x", b"1")]


async def test_a_note_listener_is_notified_before_the_caller_and_of_notes_only(
    backend: StoreBackend, tmp_path: Path
) -> None:
    store = backend.make_store(tmp_path)
    told: dict[str, bytes | None] = {}
    times = []

    def hear(notes: Mapping[str, bytes | None]) -> None:
        told.update(notes)
        times.append(len(notes))

    await store.open(Listener(), hear)
    await store.execute(put(make_registration("x")))
    assert times == []
    await store.execute(note({"allow:a": b"1", "allow:b": b"2"}))
    assert told == {"allow:a": b"1", "allow:b": b"2"}
    with pytest.raises(Conflict):
        await store.execute(note({"allow:a": None}, refusal=Conflict("No.")))
    assert told["allow:a"] is None
    await store.close()


async def test_notes_survive_a_reopening(durable: Store, reopen: Reopen) -> None:
    await durable.execute(note({"pin:a": b"\x00\xff", "pin:b": b""}))
    again = await reopen()
    assert await again.notes("pin:") == [("pin:a", b"\x00\xff"), ("pin:b", b"")]
    await again.close()


async def test_a_follower_reads_notes(opened: SqliteStore) -> None:
    await opened.execute(note({"pin:a": b"\x00\xff", "pin:b": b""}))
    follower = SqliteFollowerStore(opened.path.parent)
    await follower.open(Listener())
    assert await follower.notes("pin:") == [("pin:a", b"\x00\xff"), ("pin:b", b"")]
    await follower.close()


def entry(action: str, **members: Any) -> AuditEntry:
    return AuditEntry(**{"at": NOW, "action": action, "subject": "alice", **members})


# --- The audit trail ------------------------------------------------------------------------------


async def write_entries(store: Store, count: int, **members: Any) -> None:
    for start in range(0, count, 100):
        audit = tuple(entry("register", object=f"agent-{n}", **members) for n in range(start, min(start + 100, count)))
        await store.execute(note({}, audit=audit))


async def every_leaf(store: Store, **asked: Any) -> list[bytes]:
    leaves: list[bytes] = []
    after: int | None = 0
    while after is not None:
        page = await store.audit(AuditQuery(after=after, limit=limits.AUDIT_PAGE_MAX, **asked))
        leaves += page.leaves
        after = page.next_after
    return leaves


async def test_entries_are_numbered_from_one_in_the_order_of_decisions(store: Store) -> None:
    await asyncio.gather(*(store.execute(note({}, audit=(entry("allow", object=str(n)),))) for n in range(300)))
    found = [read_leaf(leaf) for leaf in await every_leaf(store)]
    assert [(each.number, each.object) for each in found] == [(n + 1, str(n)) for n in range(300)]
    assert await store.audit_size() == 300


async def test_a_change_and_its_entry_are_one(store: Store) -> None:
    ghost = make_registration("ghost")
    wrong = RegistrationChange(type="withdrawn", at=NOW, removed=ghost)
    with pytest.raises(ValueError, match="unknown agent"):
        await store.execute(note({}, change=wrong, audit=(entry("withdraw"),)))
    right = RegistrationChange(type="registered", at=NOW, registration=ghost)
    await store.execute(note({}, change=right, audit=(entry("register"),)))
    with pytest.raises(Conflict):
        await store.execute(note({}, audit=(entry("refuse"),), refusal=Conflict("No.")))
    assert [read_leaf(leaf).action for leaf in await every_leaf(store)] == ["register", "refuse"]


async def test_the_tree_over_the_entries_is_the_tree_over_their_leaves(store: Store) -> None:
    await write_entries(store, 1000)
    leaves = [leaf_hash(leaf) for leaf in await every_leaf(store)]
    spans = [(0, 1000), (0, 777), (512, 1000), (255, 256), (256, 512), (999, 1000)]
    assert await store.audit_hashes(spans) == [merkle_root(leaves[start:end]) for start, end in spans]


async def test_entries_are_filtered_by_parsed_members_not_by_similar_text(store: Store) -> None:
    entries = (
        entry("register", object="a", subject="alice"),
        entry("withdraw", object='b","subject":"bob', subject="alice"),
        entry("register", object="a", subject="bob"),
        entry("register", object="aa", subject="bob", detail='"subject":"carol"'),
    )
    await store.execute(note({}, audit=entries))

    async def numbers(**asked: Any) -> list[int]:
        return [read_leaf(leaf).number for leaf in await every_leaf(store, **asked)]

    assert await numbers(subject="bob") == [3, 4]
    assert await numbers(object="a") == [1, 3]
    assert await numbers(object="a", subject="alice", action="register") == [1]
    assert await numbers(object='b","subject":"bob') == [2]
    assert await numbers(subject="carol") == []


async def test_a_page_names_the_next_one(store: Store) -> None:
    await write_entries(store, 250)
    page = await store.audit(AuditQuery(after=100, limit=100))
    assert (len(page.leaves), page.size, page.next_after) == (100, 250, 200)
    page = await store.audit(AuditQuery(after=200, limit=50))
    assert (len(page.leaves), page.next_after) == (50, None)
    page = await store.audit(AuditQuery(after=250))
    assert (page.leaves, page.size, page.next_after) == ([], 250, None)


async def test_dropped_contents_leave_their_hashes(store: Store) -> None:
    await write_entries(store, 1000)
    before = await store.audit_hashes([(0, 1000), (0, 300), (0, 1)])
    assert await store.prune(events_before=0, keep_events=0, now=NOW, keep_audit=400) == 512
    page = await store.audit(AuditQuery(limit=3))
    assert [read_leaf(leaf).number for leaf in page.leaves] == [513, 514, 515]
    assert (page.oldest, page.size) == (513, 1000)
    assert await store.audit_hashes([(0, 1000), (0, 300), (0, 1)]) == before
    await write_entries(store, 30)
    assert await store.audit_size() == 1030
    assert await store.prune(events_before=0, keep_events=0, now=NOW, keep_audit=0) == 512
    await write_entries(store, 1)
    assert await store.audit_size() == 1031


async def test_a_follower_reads_the_trail(opened: SqliteStore) -> None:
    await write_entries(opened, 700)
    follower = SqliteFollowerStore(opened.path.parent)
    await follower.open(Listener())
    assert await follower.audit_hashes([(0, 700)]) == await opened.audit_hashes([(0, 700)])
    assert await every_leaf(follower) == await every_leaf(opened)
    assert await follower.audit_size() == 700
    await follower.close()


async def test_the_trail_survives_a_reopening(durable: Store, reopen: Reopen) -> None:
    await write_entries(durable, 700)
    root = await durable.audit_hashes([(0, 700)])
    leaves = await every_leaf(durable)
    again = await reopen()
    await write_entries(again, 400)
    assert (await every_leaf(again))[:700] == leaves
    grown = [leaf_hash(leaf) for leaf in await every_leaf(again)]
    assert await again.audit_hashes([(0, 700), (0, 1100)]) == [*root, merkle_root(grown)]
    await again.close()


# --- History --------------------------------------------------------------------------------------


async def test_an_update_leaves_the_version_that_it_replaced(store: Store) -> None:
    first = make_registration("x", text="first", visibility="private")
    await store.execute(put(first))
    assert await store.history("x") == []
    await store.execute(renew("x", now=NOW + 1))
    assert await store.history("x") == []
    await store.execute(put(make_registration("x", text="second", changed_at=NOW + 2)))
    await store.execute(put(make_registration("x", text="third")))
    second, oldest = await store.history("x")
    assert (second.etag, second.at, second.scopes) == (make_registration("x", text="second").etag, NOW + 2, ("public",))
    assert (oldest.etag, oldest.subject, oldest.scopes) == (first.etag, "alice", ("private:alice",))
    assert oldest.record == record_bytes(first.record)
    assert oldest.digests == {"profile": first.sources[0].digest}
    assert len(await store.history("x", 1)) == 1


async def test_a_history_is_bounded_in_versions_and_bytes(store: Store) -> None:
    for n in range(limits.HISTORY_VERSIONS + 5):
        await store.execute(put(make_registration("x", text=str(n))))
    versions = await store.history("x", 1000)
    assert len(versions) == limits.HISTORY_VERSIONS
    assert b'"35"' in versions[0].record
    long = "x" * (limits.HISTORY_BYTES // 3)
    for n in range(5):
        await store.execute(put(make_registration("x", text=f"{n}{long}")))
    assert len(await store.history("x")) == 2


async def test_a_history_ends_with_its_agent(store: Store) -> None:
    for text in ("first", "second"):
        await store.execute(put(make_registration("x", text=text)))
    await store.execute(put(make_registration("y")))
    await store.execute(withdraw("x"))
    assert await store.history("x") == []
    await store.execute(put(make_registration("x", text="third")))
    assert await store.history("x") == []


async def test_commands_of_a_batch_share_one_commit_and_refusals_stay_alone(store: Store, listener: Listener) -> None:
    """Each result is in its place; a refused command changes nothing; later ones see earlier ones."""
    note = Command(keys=(), notes=("cursor",), decide=lambda held: Decision(outcome="saved", notes={"cursor": b"7"}))
    commands = (put(make_registration("a")), refuse("b"), put(make_registration("a", text="2")), note)
    results = await store.execute_all(commands)
    found = [type(each).__name__ if isinstance(each, Conflict) else each.outcome for each in results]  # type: ignore[union-attr]
    assert found == ["created", "Conflict", "updated", "saved"]
    assert set(await everything(store)) == {"a"}
    assert await store.notes("cursor") == [("cursor", b"7")]
    assert listener.revisions == [1, 2]
    assert await store.execute_all(()) == []


async def test_a_batch_may_be_larger_than_a_group(store: Store, listener: Listener) -> None:
    count = limits.GROUP_COMMIT_MAX + 10
    commands = [put(make_registration(f"agent-{number}")) for number in range(count)]
    others = [store.execute(put(make_registration(f"other-{number}"))) for number in range(3)]
    results, *_ = await asyncio.gather(store.execute_all(commands), *others)
    assert len(results) == count
    assert len(await everything(store)) == count + 3
    assert listener.revisions == list(range(1, count + 4))


async def test_a_batch_that_cannot_be_stored_leaves_nothing(tmp_path: Path) -> None:
    """All of its commands fail, also those that were not decided yet: the last one may rely on the others."""
    store = SqliteStore(tmp_path, max_pages=60)
    await store.open(Listener())
    try:
        large = [put(make_registration(f"agent-{number}", text="x" * 8000)) for number in range(100)]
        note = Command(
            keys=(), notes=("cursor",), decide=lambda held: Decision(outcome="saved", notes={"cursor": b"7"})
        )
        results = await store.execute_all((*large, note))
        assert {type(each) for each in results} == {StorageFull}
        assert await everything(store) == {}
        assert await store.notes("cursor") == []
    finally:
        await store.close()


async def test_the_newest_documents_are_those_of_the_first_sources(store: Store) -> None:
    """Without one: not there. An entry that is out of date shows by the entity tag."""
    for agent_id in ("a", "b"):
        sources = (make_source("profile", b'{"id": "%s"}' % agent_id.encode()), make_source("a2a", b"{}"))
        await store.execute(put(msgspec.structs.replace(make_registration(agent_id), sources=sources)))
    await store.execute(put(msgspec.structs.replace(make_registration("bare"), sources=())))
    entries = [entry async for page in store.entries() for entry in page]
    found = await store.newest_documents(entries)
    assert {agent_id: each.document for agent_id, each in found.items()} == {"a": b'{"id": "a"}', "b": b'{"id": "b"}'}
    assert {each.dialect for each in found.values()} == {"profile"}
    held = await store.fetch(["a"])
    assert found["a"].etag == held["a"].etag
    assert await store.newest_documents(()) == {}
