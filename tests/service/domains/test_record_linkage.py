"""One agent, one record: entries of an organisation, fetched documents and domains are linked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.domain_imports import ADMIN, ALICE, BOB, Registering
from support.fake_dns import Identity
from support.resolve_fixtures import Bench
from support.service import service
from waypost.errors import PreconditionFailed
from waypost.model.json import dump_json
from waypost.model.registration import Registration
from waypost.protocols.codec import CARRY
from waypost.registry.importer import ImportResult
from waypost.registry.publication import Publication

ORG = "example.com"
AGENT = "agent:alice.example.com"
URN = "urn:air:example.com:agents:alice"
CATALOG = "/.well-known/ai-catalog.json"
DOCUMENT = "/.well-known/agent.json"
CARD = "/.well-known/agent-card.json"


@pytest.fixture
async def registering(tmp_path: Path, bench: Bench) -> AsyncIterator[Registering]:
    async with service(tmp_path) as made:
        yield Registering(made, bench)


def entry(url: str, identifier: str = URN, **members: Any) -> dict[str, Any]:
    return {
        "identifier": identifier,
        "displayName": "Alice of the catalog",
        "type": "application/a2a-agent-card+json",
        "url": url,
        "tags": ["listed"],
        **members,
    }


def card(bench: Bench, path: str = "/a2a") -> dict[str, Any]:
    return {
        "name": "Alice's card",
        "description": "Talks",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": bench.url(path), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "talk", "name": "Talk", "description": "Talks", "tags": ["talk"]}],
    }


def catalog(bench: Bench, *entries: dict[str, Any]) -> None:
    bench.zones.set(
        f"_index._agents.{ORG}",
        "SVCB",
        f'1 agent-index.example.com. alpn=h2 port={bench.web.port} key65409="ai-catalog.json"',
    )
    bench.web.put(CATALOG, {"specVersion": "1.0", "entries": list(entries)})


def receipts(found: ImportResult) -> list[tuple[str, str]]:
    return [(each.receipt.id, each.receipt.outcome) for each in found.agents if each.receipt is not None]


async def held(registering: Registering, name: str) -> Registration:
    return await registering.registry.get(ADMIN, name)


async def post(registering: Registering, document: dict[str, Any]) -> str:
    """As a caller who sends it would."""
    body = dump_json(document)
    dialect, decoded = registering.registry.decode(body)
    publication = Publication(dialect=dialect, document=body, decoded=decoded, principal=ALICE)
    return (await registering.registry.publish(publication)).id


# --- An organisation ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DOCUMENT, CARD])
@pytest.mark.parametrize("listed", [True, False], ids=["in the DNS too", "in the catalog alone"])
async def test_an_agent_in_the_catalog_and_at_its_domain_is_one_record(
    bench: Bench, registering: Registering, path: str, listed: bool
) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(path)))
    if listed:
        bench.zones.set(f"_agents.{ORG}", "SVCB", "0 alice.example.com.")
    found = await registering.take(ORG, organisation=True)
    assert receipts(found) == [(AGENT, "created"), (AGENT, "updated")]
    record = await held(registering, URN)
    assert (record.id, len(registering.registry.entries)) == (AGENT, 1)
    assert {source.dialect: source.url for source in record.sources} == {
        "ard": bench.url(CATALOG, "agent-index.example.com"),
        "adp": bench.url(DOCUMENT),
    }
    assert record.record.name == bench.alice.document()["identity"]["name"]
    assert record.record.bindings[0].endpoint == "wss://alice.example.com/agent/chat"
    assert await registering.level(AGENT) == "verified"


async def test_an_import_that_is_repeated_changes_nothing(bench: Bench, registering: Registering) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(DOCUMENT)), entry("https://other.example.net/card", "urn:air:example.net:a:b"))
    await registering.take(ORG, organisation=True)
    before = registering.registry.changes.revision
    found = await registering.take(ORG, organisation=True)
    assert {outcome for _, outcome in receipts(found)} == {"unchanged"}
    assert (registering.registry.changes.revision, len(registering.registry.entries)) == (before, 2)


async def test_a_changed_catalog_entry_does_not_override_the_agents_own_document(
    bench: Bench, registering: Registering
) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(DOCUMENT)))
    await registering.take(ORG, organisation=True)
    catalog(bench, entry(bench.url(DOCUMENT), displayName="Another", updatedAt="2020-01-01T00:00:00Z"))
    found = await registering.take(ORG, organisation=True)
    assert receipts(found) == [(AGENT, "unchanged"), (AGENT, "updated")]
    record = (await held(registering, AGENT)).record
    assert record.name == bench.alice.document()["identity"]["name"]
    assert record.bindings[0].endpoint == "wss://alice.example.com/agent/chat"


async def test_a_preview_names_the_record_that_an_entry_would_join(bench: Bench, registering: Registering) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(DOCUMENT)))
    shown = await registering.take(ORG, organisation=True, save=False)
    listed = next(each.decoded for each in shown.agents if each.dialect == "ard")
    assert listed is not None
    assert AGENT in listed.aliases
    assert "points to the document of alice.example.com" in listed.warnings[-1]
    assert len(registering.registry.entries) == 0


async def test_the_agents_of_an_organisation_are_saved_only_as_shown(bench: Bench, registering: Registering) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(DOCUMENT)))
    shown = await registering.take(ORG, organisation=True, save=False)
    catalog(bench, entry(bench.url(DOCUMENT), displayName="Another"))
    with pytest.raises(PreconditionFailed):
        await registering.take(ORG, organisation=True, digest=shown.digest)
    assert len(registering.registry.entries) == 0
    catalog(bench, entry(bench.url(DOCUMENT)))
    found = await registering.take(ORG, organisation=True, digest=shown.digest)
    assert found.digest == shown.digest
    assert {agent_id for agent_id, _ in receipts(found)} == {AGENT}


async def test_two_entries_for_one_agent_do_not_take_turns(bench: Bench, registering: Registering) -> None:
    bench.publish()
    catalog(bench, entry(bench.url(DOCUMENT)), entry(bench.url(CARD), f"{URN}-2"))
    await registering.take(ORG, organisation=True)
    assert len(registering.registry.entries) == 2
    found = await registering.take(ORG, organisation=True)
    assert {outcome for _, outcome in receipts(found)} == {"unchanged"}


async def test_entries_of_agents_that_share_a_host_stay_apart(bench: Bench, registering: Registering) -> None:
    bench.publish()
    catalog(bench, entry(bench.url("/a/card.json")), entry(bench.url("/b/card.json"), f"{URN}-b"))
    bench.zones.set(f"_agents.{ORG}", "SVCB", "0 alice.example.com.")
    await registering.take(ORG, organisation=True)
    assert {AGENT, URN, f"{URN}-b"} == set(registering.registry.entries.ids())


# --- What ties nothing ----------------------------------------------------------------------------


async def test_a_catalog_of_another_origin_is_not_linked(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    bench.web.put("/catalog", {"specVersion": "1.0", "entries": [entry(bench.url(DOCUMENT), "urn:air:evil.net:a:b")]})
    await registering.take(bench.url("/catalog", "host.provider.net"))
    assert len((await held(registering, AGENT)).sources) == 1
    assert (await held(registering, "urn:air:evil.net:a:b")).id == "urn:air:evil.net:a:b"


async def test_an_entry_is_not_merged_into_an_agent_of_another_owner(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain, BOB)
    catalog(bench, entry(bench.url(DOCUMENT)))
    found = await registering.take(ORG, organisation=True)
    assert receipts(found) == [(URN, "created")]
    assert (await held(registering, AGENT)).owner == "bob"
    assert len((await held(registering, AGENT)).sources) == 1


async def test_a_posted_catalog_entry_is_not_linked_to_the_document_it_names(
    bench: Bench, registering: Registering
) -> None:
    """An entry that was sent, not fetched, may point where it likes."""
    sent = await post(registering, entry(bench.url(DOCUMENT)))
    bench.publish()
    await registering.take(bench.domain)
    assert (await held(registering, sent)).id == sent == URN
    assert len((await held(registering, AGENT)).sources) == 1


async def test_a_name_that_another_owner_took_stops_no_document_of_the_domain(
    bench: Bench, registering: Registering
) -> None:
    body = dump_json(card(bench))
    dialect, decoded = registering.registry.decode(body)
    await registering.registry.publish(Publication(dialect=dialect, document=body, decoded=decoded, principal=BOB))
    bench.web.put("/cap.json", card(bench))
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    found = await registering.take(bench.domain)
    assert receipts(found) == [(AGENT, "created"), (AGENT, "updated")]
    assert (await held(registering, bench.url("/a2a"))).owner == "bob"


# --- A domain whose agent is known otherwise ------------------------------------------------------


async def test_a_domain_joins_the_card_that_was_fetched_from_it(bench: Bench, registering: Registering) -> None:
    bench.web.put(CARD, card(bench))
    await registering.take(bench.url(CARD))
    bench.publish()
    found = await registering.take(bench.domain)
    assert receipts(found) == [(bench.url(CARD), "updated")]
    record = await held(registering, AGENT)
    assert {source.dialect for source in record.sources} == {"a2a", "adp"}
    assert len(registering.registry.entries) == 1


async def test_a_card_that_is_fetched_joins_its_domain(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    bench.web.put(CARD, card(bench, "/agent/tasks"))
    found = await registering.take(bench.url(CARD))
    assert [each[0] for each in receipts(found)] == [AGENT]
    assert len(registering.registry.entries) == 1


async def test_a_domain_joins_the_entry_of_its_organisations_catalog(bench: Bench, registering: Registering) -> None:
    bench.web.put(CATALOG, {"specVersion": "1.0", "entries": [entry(bench.url(DOCUMENT))]})
    await registering.take(bench.url(CATALOG, ORG))
    assert set(registering.registry.entries.ids()) == {URN}
    bench.publish()
    found = await registering.take(bench.domain)
    assert receipts(found) == [(URN, "updated")]
    record = await held(registering, AGENT)
    assert record.record.bindings[0].endpoint == "wss://alice.example.com/agent/chat"
    assert await registering.level(URN) == "verified"
    again = await registering.take(bench.domain)
    assert receipts(again) == [(URN, "unchanged")]


async def test_a_domain_joins_the_card_that_its_caller_sent_when_its_own_document_names_it(
    bench: Bench, registering: Registering
) -> None:
    sent = await post(registering, card(bench))
    bench.web.put("/cap.json", card(bench))
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    found = await registering.take(bench.domain)
    assert {agent_id for agent_id, _ in receipts(found)} == {sent}
    assert len(registering.registry.entries) == 1


async def test_two_records_that_turn_out_to_be_one_agent_become_one(bench: Bench, registering: Registering) -> None:
    sent = await post(registering, card(bench))
    bench.publish(txt=False, tlsa=False)
    await registering.take(bench.domain)
    assert set(registering.registry.entries.ids()) == {sent, AGENT}
    bench.web.put("/cap.json", card(bench))
    bench.publish(txt=False, tlsa=False, params=f'key65400="{bench.url("/cap.json")}"')
    await registering.take(bench.domain)
    assert set(registering.registry.entries.ids()) == {AGENT}
    record = await held(registering, sent)
    assert {source.dialect: source.via for source in record.sources} == {"a2a": "domain", "adp": "domain"}


async def test_two_records_merge_only_after_the_pending_change_of_a_verified_agent_is_confirmed(
    bench: Bench, registering: Registering
) -> None:
    sent = await post(registering, card(bench))
    bench.publish()
    await registering.take(bench.domain)
    bench.web.put("/cap.json", card(bench))
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    assert receipts(await registering.take(bench.domain))[-1] == (AGENT, "held")
    assert set(registering.registry.entries.ids()) == {sent, AGENT}
    waiting = await registering.registry.pending_change(ADMIN, AGENT)
    assert waiting is not None
    assert (await registering.registry.confirm(ALICE, AGENT, waiting.etag)).id == AGENT
    await registering.take(bench.domain)
    assert set(registering.registry.entries.ids()) == {AGENT}
    assert (await held(registering, sent)).id == AGENT


async def test_a_private_record_is_not_shown_by_joining(bench: Bench, registering: Registering) -> None:
    sent = await post(registering, {**card(bench)})
    bench.publish()
    await registering.take(bench.domain, visibility="private")
    bench.web.put("/cap.json", card(bench))
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    await registering.take(bench.domain)
    assert (await held(registering, AGENT)).visibility == "private"
    assert (await held(registering, sent)).visibility == "public"


async def test_agent_framework_joins_by_the_endpoints_that_the_domain_gives(
    bench: Bench, registering: Registering
) -> None:
    document = bench.alice.document()
    document["endpoints"]["tasks"] = bench.url("/agent/tasks")
    del document["endpoints"]["chat"]
    bench.publish()
    bench.web.put(DOCUMENT, document)
    await registering.take(bench.domain)
    known = {
        "id": "alice",
        "name": "Alice",
        "summary": "Talks",
        "endpoints": [{"method": "POST", "path": "/agent/tasks", "description": "work"}],
        "capabilities": {},
    }
    listing = "/.well-known/agentframework/v1/agents/alice"
    bench.web.put(listing, known)
    found = await registering.take(bench.url(listing))
    assert [each[0] for each in receipts(found)] == [AGENT]


async def test_bob_is_not_alice(bench: Bench, registering: Registering) -> None:
    bench.publish()
    bob = Identity("bob.example.com", bytes([7] * 32))
    bench.set_svcb('key65409="/bob.json"', name="bob.example.com")
    bench.web.put("/bob.json", bob.document())
    catalog(bench, entry(bench.url(DOCUMENT)), entry(bench.url("/bob.json", "bob.example.com"), f"{URN}-bob"))
    bench.zones.set(f"_agents.{ORG}", "SVCB", "0 alice.example.com.", "0 bob.example.com.")
    await registering.take(ORG, organisation=True)
    assert set(registering.registry.entries.ids()) == {AGENT, "agent:bob.example.com"}
    assert (await held(registering, f"{URN}-bob")).id == "agent:bob.example.com"


# --- From the DNS alone ---------------------------------------------------------------------------


async def test_a_domain_that_is_hosted_here_is_the_agent_that_is_served_under_it(
    bench: Bench, registering: Registering
) -> None:
    """The service does not fetch from itself, so it finds its own agents in the DNS only."""
    bindings = [{"protocol": "https", "endpoint": "https://alice.example.com/invoke"}]
    body = dump_json({"id": "urn:agent:alice", "name": "Alice", "description": "Talks", "bindings": bindings})
    dialect, decoded = registering.registry.decode(body)
    sent = Publication(dialect=dialect, document=body, decoded=decoded, principal=ADMIN)
    await registering.registry.publish(sent)
    await registering.registry.host(ADMIN, "urn:agent:alice", bench.domain)
    bench.set_svcb()
    found = await registering.take(bench.domain, ADMIN)
    assert receipts(found) == [("urn:agent:alice", "updated")]
    record = await held(registering, AGENT)
    assert (record.id, record.record.name, record.hosted) == ("urn:agent:alice", "Alice", bench.domain)
    assert receipts(await registering.take(bench.domain, ADMIN)) == [("urn:agent:alice", "unchanged")]


async def test_an_outage_of_its_documents_takes_nothing_from_an_agent(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    before = await held(registering, AGENT)
    bench.web.pages.clear()
    await registering.later(1001.0)
    assert (await registering.take(bench.domain)).agents[0].error is None
    after = await held(registering, AGENT)
    assert (after.record, after.etag) == (before.record, before.etag)
    assert await registering.level(AGENT) == "verified"
    assert await registering.registry.count_pending() == 0


async def test_two_documents_of_one_dialect_do_not_take_turns(bench: Bench, registering: Registering) -> None:
    """The document of capabilities may be one of the agent as well, as those that are hosted here are."""
    told = bench.alice.document()
    told["endpoints"] = {"wellKnown": told["endpoints"]["wellKnown"], "tasks": "https://alice.example.com/work"}
    bench.web.put("/cap.json", told)
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    found = await registering.take(bench.domain)
    assert [(each.url, each.receipt.outcome) for each in found.agents if each.receipt] == [
        (bench.url(DOCUMENT), "created")
    ]
    assert receipts(await registering.take(bench.domain)) == [(AGENT, "unchanged")]


async def test_the_document_of_a_domain_is_worth_as_much_from_its_address(
    bench: Bench, registering: Registering
) -> None:
    bench.publish()
    await registering.take(bench.domain)
    found = await registering.take(bench.url(DOCUMENT))
    assert receipts(found) == [(AGENT, "unchanged")]
    assert await registering.level(AGENT) == "verified"


@pytest.mark.parametrize(
    ("stated", "alias"),
    [("agent:bob.example.com", False), ("https://bob.example.com/", False), ("urn:agent:alice", True)],
)
async def test_a_domain_proof_does_not_apply_to_another_id(
    bench: Bench, registering: Registering, stated: str, alias: bool
) -> None:
    document = bench.alice.document()
    document[CARRY] = {"members": {"id": stated}}
    bench.publish()
    bench.web.put(DOCUMENT, document)
    found = await registering.take(bench.domain)
    assert receipts(found) == [(AGENT, "created")]
    assert (stated in (await held(registering, AGENT)).aliases) is alias
