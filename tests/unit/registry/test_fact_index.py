"""Bitmaps of facts, compared with a scan of the same entries."""

from __future__ import annotations

import random

from pyroaring import BitMap

from waypost.model.registration import CatalogEntry
from waypost.registry.catalog.fact_index import AmountIndex, FactIndex


def entry(number: int, *facts: str, changed_at: float = 1.0, renewed_at: float | None = None) -> CatalogEntry:
    return CatalogEntry(
        f"agent-{number}", "A", "alice", "public", "active", "e", number, changed_at, None, (), (), (), ("https",),
        None, renewed_at, facts,
    )  # fmt: skip


def test_amounts_up_to_a_bound_are_exact_at_every_bound() -> None:
    chance = random.Random(5)
    held = {ordinal: chance.choice((0.0, 0.001, 1.0, 250.0, chance.random() * 1000)) for ordinal in range(500)}
    amounts = AmountIndex()
    for ordinal, value in held.items():
        amounts.add(ordinal, value)
    for ordinal in range(0, 500, 7):
        amounts.discard(ordinal)
        del held[ordinal]
    for most in (0.0, 0.0009, 0.001, 0.9, 1.0, 249.9, 250.0, 600.0, 1e9):
        assert amounts.at_most(most) == BitMap(ordinal for ordinal, value in held.items() if value <= most)


def test_a_narrower_region_is_in_the_broader_one_and_not_the_other_way() -> None:
    stated = FactIndex()
    stated.put(0, entry(0, "region:eu"))
    stated.put(1, entry(1, "region:eu-west-1"))
    stated.put(2, entry(2, "region:*"))
    stated.put(3, entry(3))
    assert list(stated.match_any("region", ["eu"])) == [0, 1, 2]
    assert list(stated.match_any("region", ["eu-west-1"])) == [1, 2]
    assert list(stated.match_any("region", ["e"])) == [2]


def test_a_language_is_understood_in_all_its_regions() -> None:
    stated = FactIndex()
    stated.put(0, entry(0, "language:de"))
    stated.put(1, entry(1, "language:de-at"))
    stated.put(2, entry(2, "language:en"))
    assert list(stated.match_any("language", ["de"])) == [0, 1]
    assert list(stated.match_any("language", ["de-at"])) == [0, 1]
    assert list(stated.match_any("language", ["de-ch"])) == [0]


def test_removed_entries_leave_the_fact_index() -> None:
    stated = FactIndex()
    facts = ("region:eu", "latency:5.0", "cost:eur:1.0", "auth:oauth2")
    stated.put(0, entry(0, *facts))
    stated.remove(0, entry(0, *facts))
    for found in (stated.match_any("region", ["eu"]), stated.match_any("auth", ["oauth2"]), stated.owners.get("alice")):
        assert not found
    assert not stated.at_most("latency", 10)
    assert not stated.at_most("cost:eur", 10)


def test_last_seen_is_the_last_change_or_renewal() -> None:
    stated = FactIndex()
    stated.load([(0, entry(0, changed_at=10)), (2, entry(2, changed_at=5, renewed_at=30))])
    assert list(stated.active_since(10)) == [0, 2]
    assert list(stated.active_since(11)) == [2]
    stated.touch(0, entry(0, changed_at=10, renewed_at=40))
    assert list(stated.active_since(40)) == [0]
    assert not FactIndex().active_since(0)
