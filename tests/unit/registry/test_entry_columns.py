"""A catalog loaded by columns answers like one loaded by entries, at every point of its preparation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from waypost.model.registration import CatalogEntry
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entry_columns import EntryColumns, LazyEntries

NOW = 1_790_000_000.0


def _entry(number: int, **more: object) -> CatalogEntry:
    made = CatalogEntry(
        id=f"urn:a:{number:03}" if number % 7 else f"urn:agent:{'é' * 30}:{number}",
        name=f"Agent {number}",
        owner=("alice", "bob")[number % 2],
        visibility=("public", "internal", "private")[number % 3],
        status="active" if number % 5 else "suspended",
        etag=f"{number:022}",
        revision=number,
        changed_at=NOW + number,
        expires_at=NOW + 1000 if number % 11 == 0 else None,
        aliases=(f"alias-{number}",) if number % 4 == 0 else (),
        invitees=("carol",) if number % 6 == 2 else (),
        tags=(f"tag-{number % 9}", "all"),
        protocols=("https",),
        domain=None,
        renewed_at=None,
        facts=("trust:verified",) if number % 13 == 0 else ("region:eu",),
    )
    return msgspec.structs.replace(made, **more)


ENTRIES = sorted((_entry(number) for number in range(1, 90)), key=lambda entry: entry.id)
AUDIENCES = (None, frozenset(("public",)), frozenset(("public", "internal", "private:bob")))


def _late() -> Catalog:
    catalog = Catalog()
    catalog.load(EntryColumns(list(zip(*map(msgspec.structs.astuple, ENTRIES), strict=True))))
    return catalog


def _whole() -> Catalog:
    catalog = Catalog()
    catalog.load(ENTRIES)
    return catalog


def _told(catalog: Catalog) -> list[object]:
    told: list[object] = [sorted(catalog.ids()), len(catalog)]
    for entry in ENTRIES:
        told += [catalog.find(entry.id), catalog.resolve(entry.id), catalog.is_reachable(entry.id)]
        told += [catalog.resolve(alias) for alias in entry.aliases]
    for audience in AUDIENCES:
        told += [catalog.page(audience, limit=200), catalog.page(audience, limit=9, offset=7, tags=("tag-3",))]
        told += [catalog.fingerprint(audience), catalog.last_modified(audience), catalog.has_verdicts(audience)]
    return told


def test_a_roll_is_the_entries_that_it_was_made_of() -> None:
    roll = EntryColumns(list(zip(*map(msgspec.structs.astuple, ENTRIES), strict=True)))
    assert list(roll) == ENTRIES == list(EntryColumns.of(ENTRIES))
    assert roll[3] == ENTRIES[3]
    assert roll[5:9] == ENTRIES[5:9] == EntryColumns.of(ENTRIES)[5:9]
    assert len(EntryColumns.of([])) == 0


def test_lazily_loaded_entries_equal_eagerly_loaded_ones() -> None:
    assert _told(_late()) == _told(_whole())


def _renew(catalog: Catalog) -> None:
    catalog.renew(msgspec.structs.replace(ENTRIES[2], expires_at=NOW + 50, revision=200))


def _put(catalog: Catalog) -> None:
    catalog.put(msgspec.structs.replace(ENTRIES[4], tags=("other",), revision=201), NOW + 500)


def _remove(catalog: Catalog) -> None:
    catalog.remove(ENTRIES[6].id, NOW + 500)


def _expire(catalog: Catalog) -> None:
    catalog.expire(NOW + 2000)


def _register(catalog: Catalog) -> None:
    catalog.put(_entry(500), NOW + 500)


def _load_more(catalog: Catalog) -> None:
    more = [_entry(number) for number in range(600, 620)]
    catalog.load(EntryColumns(list(zip(*map(msgspec.structs.astuple, more), strict=True))))


@pytest.mark.parametrize("change", [_renew, _put, _remove, _expire, _register, _load_more])
def test_a_change_while_entries_are_lazy_gives_the_same_catalog(change: Callable[[Catalog], None]) -> None:
    late, whole = _late(), _whole()
    for catalog in (late, whole):
        change(catalog)
    assert _told(late) == _told(whole)


def test_a_lazy_entry_is_created_once() -> None:
    entries = LazyEntries({}, EntryColumns(list(zip(*map(msgspec.structs.astuple, ENTRIES), strict=True))))
    first = entries[ENTRIES[0].id]
    assert first is entries.get(ENTRIES[0].id)
    entries.fill([msgspec.structs.replace(ENTRIES[0], name="later"), ENTRIES[1]])
    assert first is entries[ENTRIES[0].id]
    assert entries[ENTRIES[1].id] is ENTRIES[1]
    assert entries.pop(ENTRIES[2].id, None) == ENTRIES[2]
    assert entries.pop(ENTRIES[2].id, None) is None
    assert entries.get("nobody") is None
