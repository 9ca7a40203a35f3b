"""Of an index that another organisation keeps, the entries count that the organisation signed (AID-25)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.dns_aid_signing import JWKS, KEY, ORG, OTHER, Key, UsualPort, claims, jwk, sign
from support.resolve_fixtures import Bench
from waypost.domains.organisation_index import OrganisationReader
from waypost.net.clock import SystemClock

CATALOG = "/.well-known/ai-catalog.json"


def entry(name: str, url: str, **members: Any) -> dict[str, Any]:
    identifier = f"urn:air:{ORG}:agents:{name}"
    return {"identifier": identifier, "displayName": name, "type": "application/json", "url": url, **members}


def manifest(name: str, key: Key = KEY, **members: Any) -> dict[str, Any]:
    told = {"identity": f"urn:air:{ORG}:agents:{name}", "identityType": "other", **members}
    payload = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    return {**told, "signature": sign(payload, key, detached=True)}


def point(bench: Bench, *entries: dict[str, Any], keys: bool = True) -> None:
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        f'1 host.provider.net. alpn=h2 port={bench.web.port} key65409="ai-catalog.json"',
    )
    bench.web.put(CATALOG, {"specVersion": "1.0", "entries": list(entries)})
    if keys:
        bench.web.put(JWKS, {"keys": [jwk(KEY)]})


def reader(bench: Bench, *, willing: bool = False) -> OrganisationReader:
    return OrganisationReader(bench.zones, UsualPort(bench), SystemClock(), follow_signed=willing)


@pytest.mark.req("AID-25")
async def test_of_a_foreign_index_only_entries_that_the_organisation_signed_count(bench: Bench) -> None:
    bench.zones.security = "insecure"
    home, elsewhere = bench.url("/a.json"), bench.url("/a.json", "host.provider.net")
    point(
        bench,
        entry("signed", home, sig=sign(claims(bench))),
        entry("manifest", home, trustManifest=manifest("manifest")),
        entry("unsigned", home),
        entry("another", home, sig=sign(claims(bench, fqdn="bob.example.com", target="bob.example.com"))),
        entry("forged", home, sig=sign(claims(bench), OTHER)),
        entry("expired", home, sig=sign(claims(bench, exp=1))),
        entry("moved", elsewhere, trustManifest=manifest("moved")),
        entry("renamed", home, trustManifest=manifest("signed")),
    )
    index = await reader(bench).read(ORG)
    assert [each.name for each in index.index.entries] == ["signed", "manifest"]
    assert [each.signature.state for each in index.index.entries if each.signature is not None] == ["passed", "passed"]
    assert len(index.documents) == 2
    refused = {step.evidence["agent"]: (step.state, step.code) for step in index.index.steps if step.name == "entry"}
    assert refused == {
        "unsigned": ("not_checked", "unsigned"),
        "another": ("failed", "unbound"),
        "forged": ("failed", "bad_signature"),
        "expired": ("failed", "expired"),
        "moved": ("failed", "unbound"),
        "renamed": ("failed", "unbound"),
    }
    assert sum("AID-25" in warning for warning in index.index.warnings) == len(refused)


@pytest.mark.req("AID-25")
async def test_a_map_of_names_is_judged_in_the_same_way(bench: Bench) -> None:
    point(bench)
    agents = {
        "alice": {"location": {"fqdn": bench.domain}, "sig": sign(claims(bench))},
        "bob": {"location": {"fqdn": "bob.example.com"}, "sig": sign(claims(bench))},
        "carol": {"location": {"fqdn": "carol.example.com"}},
    }
    bench.web.put(CATALOG, agents)
    index = await reader(bench).read(ORG)
    assert [each.domain for each in index.index.entries] == [bench.domain]


@pytest.mark.req("AID-25")
async def test_without_keys_of_the_organisation_nothing_is_fetched(bench: Bench) -> None:
    point(bench, entry("signed", bench.url("/a.json"), sig=sign(claims(bench))), keys=False)
    index = await reader(bench).read(ORG)
    assert (index.index.outcome, index.documents) == ("not_found", ())
    assert not any(CATALOG in url for url in bench.web.requests)


@pytest.mark.req("AID-25")
async def test_a_signed_pointer_accepts_unsigned_records_and_refuses_forged_ones(
    bench: Bench,
) -> None:
    point(
        bench,
        entry("unsigned", bench.url("/a.json")),
        entry("forged", bench.url("/a.json"), sig=sign(claims(bench), OTHER)),
    )
    index = await reader(bench, willing=True).read(ORG)
    assert [(each.name, each.signature.state) for each in index.index.entries if each.signature] == [
        ("unsigned", "not_checked")
    ]


@pytest.mark.req("AID-25")
async def test_a_capability_address_does_not_lead_out_of_the_organisation_either(bench: Bench) -> None:
    url = bench.url(CATALOG, "host.provider.net")
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        f'1 agent-index.example.com. alpn=h2 port={bench.web.port} key65400="{url}"',
    )
    bench.web.put(CATALOG, {"specVersion": "1.0", "entries": [entry("a", bench.url("/a.json"))]})
    assert (await reader(bench).read(ORG)).index.outcome == "not_found"
