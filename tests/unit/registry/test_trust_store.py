"""The trust store: rules, bound keys and revocations as notes, and their effects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest

from support.announce import AGENT_ID, announcement, body, key
from support.registry_model import ALICE
from support.service import NOW, profile
from waypost import limits
from waypost.errors import InvalidParameter, KeyConflict, NotFound, Revoked
from waypost.model.registration import Registration
from waypost.net.clock import ManualClock
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.ports import AuditQuery, Command, Decision
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.registry.trust_store import RegistryTrustStore, RevocationEntry
from waypost.search.ranker import HybridRanker
from waypost.server.auth.authenticator import ADMIN
from waypost.stores.memory import MemoryStore
from waypost.trust.announce.trust_store import AgentPin

ONE, TWO = key("one"), key("two")
RECORD = f"urn:uuid:{AGENT_ID}"


@asynccontextmanager
async def registry(store: MemoryStore | None = None) -> AsyncIterator[Registry]:
    made = Registry(store or MemoryStore(), partial(HybridRanker, None), ManualClock(NOW))
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def announce(held: Registry, seq: int = 1, *, gated: bool = True) -> None:
    document = body(announcement(ONE, seq=seq, at=NOW))
    dialect, decoded = held.decode(document)
    await held.publish(Publication(dialect=dialect, document=document, decoded=decoded, principal=ALICE, gated=gated))


def revocation(**named: str) -> RevocationEntry:
    ((kind, name),) = named.items()
    return RevocationEntry(kind=kind, name=name, revoked_at=NOW, revoked_by="admin")  # type: ignore[arg-type]


async def test_a_rule_counts_from_the_moment_it_is_answered_until_it_is_removed() -> None:
    async with registry() as held:
        rule, outcome = await held.trust.allow(ADMIN, AGENT_ID)
        assert (rule.rule, rule.added_by, outcome) == (AGENT_ID, "admin", "added")
        assert AGENT_ID in held.trust.rules
        assert (await held.trust.allow(ALICE, AGENT_ID)) == (rule, "unchanged")
        await held.trust.disallow(ADMIN, AGENT_ID)
        assert AGENT_ID not in held.trust.rules
        with pytest.raises(NotFound):
            await held.trust.disallow(ADMIN, AGENT_ID)


async def test_another_process_reads_what_was_written() -> None:
    store = MemoryStore()
    async with registry(store) as held:
        await held.trust.allow(ADMIN, "*")
        await held.trust.revoke(ADMIN, revocation(serial="1f"))
        await held.trust.revoke(ADMIN, revocation(token="t-1"))
        other = RegistryTrustStore(store, ManualClock(NOW))
        await other.load()
        assert "*" in other.rules
        assert other.is_revoked("serial", "1f")
        assert other.is_revoked("token", "t-1")
        assert not other.is_revoked("key", "1f")
        await held.trust.disallow(ADMIN, "*")
        await other.load()
        assert len(other.rules) == 0


async def test_the_list_has_a_bound() -> None:
    async with registry() as held:
        for number in range(3):
            held.trust.rules.add(f"san:{number}")
        for number in range(limits.ALLOW_RULES - 3):
            held.trust.rules.add(f"key:{number}")
        with pytest.raises(InvalidParameter):
            await held.trust.allow(ADMIN, AGENT_ID)


async def test_a_key_is_bound_once_and_a_revoked_one_never() -> None:
    async with registry() as held:
        pin, outcome = await held.trust.trust(ADMIN, AGENT_ID, ONE.public)
        assert (pin.provisioned, outcome) == (True, "trusted")
        assert (await held.trust.trust(ADMIN, AGENT_ID, ONE.public))[1] == "unchanged"
        await held.trust.revoke(ADMIN, revocation(key=ONE.public.key_id))
        with pytest.raises((Revoked, KeyConflict)):
            await held.trust.trust(ADMIN, AGENT_ID, ONE.public)
        assert [key.state for pin in await held.trust.pins() for key in pin.keys] == ["revoked"]
        assert (await held.trust.trust(ADMIN, AGENT_ID, TWO.public))[1] == "trusted"


async def test_the_row_of_one_agent_is_not_that_of_one_whose_name_begins_alike() -> None:
    async with registry() as held:
        await held.trust.trust(ADMIN, "agents.example", ONE.public)
        await held.trust.trust(ADMIN, "agents.example.org", TWO.public)
        assert [pin.agent_id for pin in await held.trust.pins("agents.example")] == ["agents.example"]
        assert len(await held.trust.pins()) == 2


@pytest.mark.parametrize("gated", [True, False])
async def test_a_revoked_key_takes_its_records_along(gated: bool) -> None:
    async with registry() as held:
        await held.trust.allow(ADMIN, "*")
        await announce(held, gated=gated)
        done = await held.trust.revoke(ADMIN, revocation(key=ONE.public.key_id))
        assert (done.outcome, done.withdrawn) == ("revoked", (RECORD,))
        assert (await held.trust.revoke(ADMIN, revocation(key=ONE.public.key_id))).outcome == "already"
        with pytest.raises(Revoked):
            await announce(held, seq=2, gated=gated)


class UnscannableStore(MemoryStore):
    """Too many to read every record."""

    def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        raise AssertionError("a revocation reads every record")


@pytest.mark.parametrize("is_asked_before", [True, False])
async def test_a_revocation_reads_only_the_agents_of_its_key(is_asked_before: bool) -> None:
    async with registry(UnscannableStore()) as held:
        await held.trust.allow(ADMIN, "*")
        if is_asked_before:  # keys bound later are known without reading the rows again
            assert (await held.trust.revoke(ADMIN, revocation(key=TWO.public.key_id))).withdrawn == ()
        await announce(held)
        for number in range(20):
            document = msgspec.json.encode(profile(f"other-{number}"))
            dialect, decoded = held.decode(document)
            await held.publish(Publication(dialect=dialect, document=document, decoded=decoded, principal=ALICE))
        assert held.trust.signed_by(ONE.public.key_id) == [RECORD]
        assert held.trust.signed_by(TWO.public.key_id) == []
        done = await held.trust.revoke(ADMIN, revocation(key=ONE.public.key_id))
        assert done.withdrawn == (RECORD,)
        (pin,) = await held.trust.pins(AGENT_ID)
        assert [each.state for each in pin.keys] == ["revoked"]
        assert held.trust.signed_by(ONE.public.key_id) == []


async def test_a_revocation_also_covers_records_verified_before_keys_were_indexed() -> None:
    async with registry() as held:
        await held.trust.allow(ADMIN, "*")
        await announce(held)
        entry = held.entries.find(RECORD)
        assert entry is not None
        older = msgspec.structs.replace(entry, facts=tuple(fact for fact in entry.facts or () if "key:" not in fact))
        loaded = Catalog()
        loaded.load([older])
        assert loaded.signed_by(ONE.public.key_id) == loaded.signed_by("sha256:any") == [RECORD]
        loaded.remove(RECORD, NOW)
        assert loaded.signed_by(ONE.public.key_id) == []


async def test_the_trust_store_is_read_page_by_page() -> None:
    async with registry() as held:
        for number in range(5):
            await held.trust.trust(ADMIN, f"agent-{number}", key(f"key {number}").public)
        for number in range(3):
            await held.trust.revoke(ADMIN, revocation(serial=f"{number}"))
        seen: list[str] = []
        place: str | None = ""
        sizes = []
        while place is not None:
            rows, place = await held.trust.page(place, 3)
            sizes.append(len(rows))
            seen += [row.agent_id if isinstance(row, AgentPin) else f"serial {row.name}" for row in rows]
        assert sizes == [3, 3, 2]
        assert seen == [*(f"agent-{number}" for number in range(5)), "serial 0", "serial 1", "serial 2"]
        assert (await held.trust.page("", 8))[1] is None
        assert await held.trust.page("revoked:serial:2", 8) == ([], None)


async def test_a_revocation_that_a_crash_interrupted_is_finished_at_the_next_start() -> None:
    store = MemoryStore()
    async with registry(store) as held:
        await held.trust.allow(ADMIN, "*")
        await announce(held)
        begun = msgspec.structs.replace(revocation(key=ONE.public.key_id), unfinished=True)
        written = Decision(outcome="revoked", notes={begun.note: msgspec.json.encode(begun)})
        await store.execute(Command(keys=(), decide=lambda _: written))
        assert held.entries.is_alive(RECORD)
    async with registry(store) as held:
        assert not held.entries.is_alive(RECORD)
        assert [row.unfinished async for row in held.trust.revocations()] == [False]


async def test_the_row_of_a_long_silent_id_is_dropped_unless_pinned() -> None:
    async with registry() as held:
        await held.trust.allow(ADMIN, "*")
        await announce(held)
        await held.trust.trust(ADMIN, "agents.example", TWO.public)
        clock = held.clock
        assert isinstance(clock, ManualClock)
        clock.advance(limits.PIN_UNUSED_SECONDS - 1)
        await held.trust.forget()
        assert len(await held.trust.pins()) == 2
        await held.trust.allow(ADMIN, AGENT_ID)
        clock.advance(2)
        await held.trust.forget()
        assert len(await held.trust.pins()) == 2, "a rule names it"
        await held.trust.disallow(ADMIN, AGENT_ID)
        await held.trust.forget()
        assert [pin.agent_id for pin in await held.trust.pins()] == ["agents.example"]


async def test_the_audit_trail_names_subject_and_object() -> None:
    store = MemoryStore()
    async with registry(store) as held:
        await held.trust.allow(ADMIN, "*")
        await announce(held)
        await held.trust.trust(ADMIN, AGENT_ID, TWO.public)
        await held.trust.revoke(ADMIN, revocation(agent=AGENT_ID))
        await held.trust.disallow(ADMIN, "*")
        told = [msgspec.json.decode(leaf) for leaf in (await store.audit(AuditQuery())).leaves]
        assert [(entry["action"], entry["object"]) for entry in told] == [
            ("allow", "*"),
            ("register", RECORD),
            ("pin", RECORD),
            ("trust", RECORD),
            ("revoke", AGENT_ID),
            ("withdraw", RECORD),
            ("disallow", "*"),
        ]
