"""Facets are exact, however they are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from waypost.model.principal import SCOPE_ADMIN, SCOPE_READ, Principal, audience
from waypost.model.query import FACETS
from waypost.model.registration import CatalogEntry
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.find.facets import FacetCounter

ADMIN = Principal(subject="root", scopes=frozenset((SCOPE_ADMIN,)))
ALICE = Principal(subject="alice", scopes=frozenset((SCOPE_READ,)))
NOBODY = Principal()


def entry(number: int, *, tags: Sequence[str], owner: str = "alice", visibility: str = "public") -> CatalogEntry:
    return CatalogEntry(
        f"agent-{number}", f"Agent {number}", owner, visibility, "active", "e", number, 1.0, None, (), (),
        tuple(tags), ("https",),
    )  # fmt: skip


def population(count: int, tags: int, seed: int = 1) -> list[CatalogEntry]:
    chance = random.Random(seed)
    return [
        entry(
            number,
            tags=sorted({f"t{int(tags * chance.random() ** 3)}" for _ in range(3)}),
            owner=f"owner-{number % 40}",
            visibility=chance.choice(("public", "internal", "private")),
        )
        for number in range(count)
    ]


def expected(entries: Sequence[CatalogEntry], kind: str) -> list[tuple[str, int]]:
    values = (value for each in entries for value in (each.tags if kind == "tag" else (each.owner,)))
    return sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0]))[:20]


@pytest.mark.parametrize(("agents", "tags"), [(300, 50), (6000, 300), (6000, 5000)])
def test_the_most_frequent_values_are_counted_exactly(agents: int, tags: int) -> None:
    entries = population(agents, tags)
    catalog = Catalog()
    catalog.load(entries)
    counter = FacetCounter(catalog)
    for principal in (ADMIN, NOBODY):
        tokens = audience(principal)
        seen = [each for each in entries if tokens is None or tokens.intersection(each.scopes)]
        found = counter.count(("tag",), catalog.select(tokens), principal)["tag"]
        assert [(item.value, item.count) for item in found] == expected(seen, "tag")
    owners = counter.count(("owner",), catalog.select(None), ADMIN)["owner"]
    assert [(item.value, item.count) for item in owners] == expected(entries, "owner")


def test_counts_stay_exact_while_agents_come_change_and_go() -> None:
    entries = {each.id: each for each in population(5000, 4000)}
    catalog = Catalog()
    catalog.load(list(entries.values()))
    counter = FacetCounter(catalog)
    chance = random.Random(3)
    for turn in range(60):
        number = chance.randrange(5200)
        if turn % 3 == 0:
            catalog.remove(f"agent-{number}", 2.0)
            entries.pop(f"agent-{number}", None)
        else:
            changed = entry(number, tags=[f"new-{turn % 4}", f"t{turn}"], owner="bob")
            catalog.put(changed, 2.0)
            entries[changed.id] = changed
        found = counter.count(("tag",), catalog.select(None), ADMIN)["tag"]
        assert [(item.value, item.count) for item in found] == expected(list(entries.values()), "tag")


def test_a_subject_sees_its_own_name_only_and_a_stranger_none() -> None:
    catalog = Catalog()
    catalog.load([entry(1, tags=["a"]), entry(2, tags=["a"], owner="bob"), entry(3, tags=["b"], owner="bob")])
    counter = FacetCounter(catalog)

    def owners(principal: Principal) -> list[tuple[str, int]]:
        found = counter.count(("owner",), catalog.select(audience(principal)), principal)["owner"]
        return [(item.value, item.count) for item in found]

    assert owners(ADMIN) == [("bob", 2), ("alice", 1)]
    assert owners(ALICE) == [("alice", 1)]
    assert owners(NOBODY) == []


def test_every_facet_has_a_place_even_when_nothing_is_there() -> None:
    counter = FacetCounter(Catalog())
    assert counter.count(FACETS, Catalog().select(None), ADMIN) == dict.fromkeys(FACETS, ())


@pytest.mark.parametrize("principal", [NOBODY, ALICE])
def test_values_of_hidden_agents_neither_lead_nor_lengthen_the_way(principal: Principal) -> None:
    """V2: over many agents, the values that are counted do not depend on thousands of hidden agents."""
    visible = [entry(number, tags=[f"t{number % 250}", f"u{number % 3}"]) for number in range(3000)]
    hidden = [
        entry(number, tags=[f"secret-{number % 400}", "t7"], owner="bob", visibility="private")
        for number in range(10_000, 16_000)
    ]
    told = []
    for entries in (visible, [*visible, *hidden]):
        catalog = Catalog()
        catalog.load(entries)
        counter = FacetCounter(catalog)
        for late in (3000, 3001):
            catalog.put(entry(late, tags=["t7", "t8"]), 2.0)
            found = counter.count(("tag",), catalog.select(audience(principal)), principal)
        told.append((found, counter._frequencies))
    assert told[0] == told[1]
    assert len(told[0][1]) == 1


def test_private_agents_of_the_caller_are_counted_with_the_rest() -> None:
    entries = [entry(number, tags=[f"t{number % 300}"]) for number in range(4000)]
    entries += [entry(number, tags=["mine", f"t{number % 300}"], visibility="private") for number in range(4000, 4100)]
    entries += [entry(number, tags=["theirs"], owner="bob", visibility="private") for number in range(5000, 5500)]
    catalog = Catalog()
    catalog.load(entries)
    seen = [each for each in entries if each.owner == "alice"]
    found = FacetCounter(catalog).count(("tag",), catalog.select(audience(ALICE)), ALICE)["tag"]
    assert [(item.value, item.count) for item in found] == expected(seen, "tag")
    assert found[0].value == "mine"
