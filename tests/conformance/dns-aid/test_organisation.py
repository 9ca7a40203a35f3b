"""The agents of an organisation: index, aliases, text, and how far a pointer is followed."""

from __future__ import annotations

from typing import Any

import pytest

from support.resolve_fixtures import Bench
from waypost import limits
from waypost.domains.organisation_index import OrganisationReader
from waypost.errors import InvalidParameter
from waypost.net.clock import SystemClock

ORG = "example.com"
ENTRY: dict[str, Any] = {
    "identifier": "urn:air:example.com:agents:booking",
    "displayName": "Booking",
    "type": "application/a2a-agent-card+json",
    "url": "https://alice.example.com/.well-known/agent-card.json",
}


def point(
    bench: Bench, name: str = "_index._agents", *, target: str = "agent-index.example.com.", more: str = ""
) -> None:
    bench.zones.set(f"{name}.{ORG}", "SVCB", f"1 {target} alpn=h2 port={bench.web.port} {more}")


@pytest.mark.req("AID-3", "AID-5")
async def test_the_index_is_fetched_from_where_the_record_points(bench: Bench) -> None:
    point(bench, more='key65409="ai-catalog.json"')
    bench.web.put("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": [ENTRY]})
    index = await bench.organisations.read(ORG)
    assert (index.index.outcome, [entry.name for entry in index.index.entries]) == ("resolved", ["Booking"])
    assert [entry.url for entry in index.index.entries] == [ENTRY["url"]]
    assert len(index.documents) == 1


@pytest.mark.req("AID-5")
async def test_a_map_of_names_leads_to_domains(bench: Bench) -> None:
    point(bench)
    agents = {
        "booking": {"location": {"fqdn": "booking.example.com"}, "capability": {"protocols": ["mcp"]}},
        "broken": {"location": "nowhere"},
        "evil": {"location": {"fqdn": "a b"}},
    }
    bench.web.put("/.well-known/agents-index.json", agents)
    index = await bench.organisations.read(ORG)
    assert [(each.domain, each.protocol) for each in index.index.entries] == [("booking.example.com", "mcp")]


@pytest.mark.req("AID-3")
async def test_the_catalog_comes_before_the_index(bench: Bench) -> None:
    point(bench)
    point(bench, "_catalog._agents")
    bench.web.put("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": [ENTRY]})
    assert len((await bench.organisations.read(ORG)).documents) == 1
    assert bench.web.requests == [bench.url("/.well-known/ai-catalog.json", "agent-index.example.com")]


@pytest.mark.req("ADP-8")
async def test_many_aliases_at_agents_are_a_list(bench: Bench) -> None:
    bench.zones.set(f"_agents.{ORG}", "SVCB", "0 alice.example.com.", "0 bob.example.com.")
    index = await bench.organisations.read(ORG)
    assert [entry.domain for entry in index.index.entries] == ["alice.example.com", "bob.example.com"]
    bench.zones.set(f"_agents.{ORG}", "SVCB", *(f"0 a{number}.example.com." for number in range(100)))
    assert len((await bench.organisations.read(ORG)).index.entries) == limits.SVCB_RECORDS == 64


@pytest.mark.req("AID-11")
async def test_a_list_of_text_is_the_last_resort(bench: Bench) -> None:
    bench.zones.set(f"_index._agents.{ORG}", "TXT", '"agents=booking:mcp,chat:a2a,../evil:x"', '"something else"')
    index = await bench.organisations.read(ORG)
    assert [(each.domain, each.protocol) for each in index.index.entries] == [
        ("booking.example.com", "mcp"),
        ("chat.example.com", "a2a"),
    ]


@pytest.mark.req("AID-25")
async def test_an_index_of_another_organisation_is_followed_only_if_signed_and_requested(bench: Bench) -> None:
    point(bench, target="host.provider.net.", more='key65409="ai-catalog.json"')
    bench.web.put("/.well-known/ai-catalog.json", {"specVersion": "1.0", "entries": [ENTRY]})
    index = await bench.organisations.read(ORG)
    assert index.index.outcome == "not_found"
    assert any("AID-25" in warning for warning in index.index.warnings)
    assert bench.web.connections == 0
    willing = OrganisationReader(bench.zones, bench.fetcher, SystemClock(), follow_signed=True)
    assert (await willing.read(ORG)).index.outcome == "resolved"
    bench.zones.security = "insecure"
    point(bench, target="host.provider.net.", more='key65409="ai-catalog.json"')
    assert (await willing.read(ORG)).index.outcome == "not_found"


@pytest.mark.req("AID-26")
async def test_an_index_is_bounded_in_size_in_agents_and_in_pointers(bench: Bench) -> None:
    point(bench)
    many = {f"a{number}": {"location": {"fqdn": f"a{number}.example.com"}} for number in range(600)}
    bench.web.put("/.well-known/agents-index.json", many)
    assert len((await bench.organisations.read(ORG)).index.entries) == limits.INDEX_AGENTS == 500
    bench.web.put("/.well-known/agents-index.json", b"{" + b" " * (limits.INDEX_BYTES + 1) + b"}")
    assert (await bench.organisations.read(ORG)).index.outcome == "not_found"
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        *(f'{n} agent-index.example.com. port={bench.web.port} key65409="missing{n}.json"' for n in range(1, 9)),
    )
    bench.web.requests.clear()
    await bench.organisations.read(ORG)
    assert len(bench.web.requests) == limits.SVCB_TARGETS == 4


@pytest.mark.req("AID-3", "AID-22")
@pytest.mark.parametrize("name", ["_index._agents", "_catalog._agents", "_agents"])
async def test_a_failed_index_is_reported_and_no_weaker_source_is_read(bench: Bench, name: str) -> None:
    bench.zones.set(f"_index._agents.{ORG}", "TXT", '"agents=booking:mcp"')
    bench.zones.fail(f"{name}.{ORG}", "SVCB")
    index = await bench.organisations.read(ORG)
    assert (index.index.outcome, index.index.code, index.index.entries) == ("failed", "dns_failed", ())


@pytest.mark.req("AID-5")
async def test_an_index_that_is_no_index_is_refused(bench: Bench) -> None:
    point(bench)
    for body in (b"<html>", b"[1", b'"text"', b"7"):
        bench.web.put("/.well-known/agents-index.json", body)
        assert (await bench.organisations.read(ORG)).index.code == "malformed"


@pytest.mark.req("AID-3")
@pytest.mark.parametrize("name", ["com", "co.uk", "github.io", "127.0.0.1", "a b.com", "münchen.de", "x" * 300])
async def test_a_public_suffix_or_an_invalid_domain_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidParameter):
        await bench.organisations.read(name)
