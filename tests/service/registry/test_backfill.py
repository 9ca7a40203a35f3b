"""A store of an earlier release: entries without facts and sizes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from support.service import profile, service
from waypost.model.principal import Principal
from waypost.model.query import Query
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entries import complete_entries, entry_of

ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))


async def test_facts_missing_in_an_older_entry_are_read_from_the_record(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for name, region in (("here", "eu"), ("there", "us"), ("changed", "eu")):
            document = profile(name, constraints={"region": region})
            assert (await bench.admin().post("/api/v1/agents", json=document)).status_code == 201
        registry = bench.registry
        held = [entry_of(found) for found in await registry.registrations(["here", "there", "changed"])]
        catalog = Catalog()
        catalog.load([msgspec.structs.replace(entry, facts=None) for entry in held])
        assert not catalog.facts.match_any("region", ["eu"])
        newer = msgspec.structs.replace(held[2], revision=99, facts=())
        catalog.put(newer, 1.0)
        await complete_entries(catalog, bench.application.store)
        assert catalog.tags.ids_of(catalog.facts.match_any("region", ["eu"])) == ["here"]
        assert catalog.find("changed") == newer
        assert catalog.take_incomplete() == []


async def test_a_restart_keeps_the_stated_facts_of_agents(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        document = profile("here", constraints={"region": "eu", "latency_ms_p95": 20})
        assert (await bench.admin().post("/api/v1/agents", json=document)).status_code == 201
    async with service(tmp_path, store="sqlite") as bench:
        query = Query(text="short factual questions", constraints={"region": "eu", "max_latency_ms": 20})
        found = await bench.registry.find(query, ADMIN)
        assert [candidate.record.id for candidate in found.candidates] == ["here"]


async def test_sizes_missing_in_an_older_entry_are_read_from_the_documents(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for subject, name in (("alice", "a"), ("alice", "b"), ("bob", "c")):
            assert (await bench.as_(subject).post("/api/v1/agents", json=profile(name))).status_code == 201
        held = [entry_of(found) for found in await bench.registry.registrations(["a", "b", "c"])]
        catalog = Catalog()
        catalog.load([msgspec.structs.replace(entry, stored_bytes=None) for entry in held])
        assert catalog.stored_bytes_of_owner("alice") == 0
        catalog.tags  # noqa: B018 - indexes all entries
        catalog.put(msgspec.structs.replace(held[1], revision=99, stored_bytes=7), 1.0)
        await complete_entries(catalog, bench.application.store)
        assert catalog.stored_bytes_of_owner("alice") == (held[0].stored_bytes or 0) + 7
        assert catalog.stored_bytes_of_owner("bob") == held[2].stored_bytes
        catalog.remove("c", 2.0)
        assert catalog.owners_above(0) == ["alice"]
