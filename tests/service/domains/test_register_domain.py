"""Registering a domain instead of a document: the record, its verdicts, and the effect of later checks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.domain_imports import ADMIN, ALICE, BOB, Registering
from support.fake_dns import Identity
from support.resolve_fixtures import Bench
from support.service import service
from waypost.errors import AgentRefused, FetchFailed, OwnerConflict, PreconditionFailed

PATH = "/.well-known/agent.json"


@pytest.fixture
async def registering(tmp_path: Path, bench: Bench) -> AsyncIterator[Registering]:
    async with service(tmp_path) as made:
        yield Registering(made, bench)


async def test_a_domain_is_registered_with_its_rungs_as_verdicts(bench: Bench, registering: Registering) -> None:
    bench.publish()
    found = await registering.take(bench.domain)
    (agent,) = found.agents
    assert agent.receipt is not None
    assert (agent.receipt.id, agent.receipt.outcome) == ("agent:alice.example.com", "created")
    checks = await registering.checks("agent:alice.example.com")
    assert checks["dns-verified"] == checks["dane-verified"] == checks["key-verified"] == "passed"
    assert checks["adp-key"] == "passed"
    assert await registering.level("agent:alice.example.com") == "verified"
    (watched,) = await registering.rechecks.watched()
    assert (watched.domain, watched.subject) == (bench.domain, "alice")


async def test_resending_a_document_keeps_its_domain_proof(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    before = await registering.checks("agent:alice.example.com")
    (source,) = (await registering.registry.get(ALICE, "agent:alice.example.com")).sources
    sent = await registering.service.as_("alice").post("/api/v1/agents", content=source.document)
    assert (sent.status_code, sent.json()["outcome"]) == (200, "unchanged")
    assert await registering.checks("agent:alice.example.com") == before
    assert await registering.level("agent:alice.example.com") == "verified"


async def test_an_agent_that_an_admin_registers_by_domain_is_not_hosted_here(
    bench: Bench, registering: Registering
) -> None:
    bench.publish()
    await registering.take(bench.domain, ADMIN)
    assert (await registering.registry.get(ADMIN, "agent:alice.example.com")).hosted is None


async def test_an_agent_of_a_domain_is_saved_only_as_shown(bench: Bench, registering: Registering) -> None:
    bench.publish()
    shown = await registering.take(bench.domain, save=False)
    assert shown.agents[0].receipt is None
    assert {each.check: each.state for each in shown.agents[0].trust.checks or ()}["key-verified"] == "passed"
    document = bench.alice.document()
    document["capabilities"][0]["name"] = "Another"
    bench.web.put(PATH, document)
    with pytest.raises(PreconditionFailed):
        await registering.take(bench.domain, digest=shown.digest)
    assert registering.registry.entries.find("agent:alice.example.com") is None


async def test_a_record_in_the_dns_alone_verifies_nothing(bench: Bench, registering: Registering) -> None:
    bench.publish(txt=False, tlsa=False)
    await registering.take(bench.domain)
    assert (await registering.checks("agent:alice.example.com"))["dns-verified"] == "passed"
    assert await registering.level("agent:alice.example.com") == "self_asserted"


@pytest.mark.parametrize("wrong", ["key", "certificate", "failure"])
async def test_a_domain_that_is_not_to_be_trusted_is_not_registered(
    bench: Bench, registering: Registering, wrong: str
) -> None:
    bench.publish()
    if wrong == "key":
        bench.web.put(PATH, Identity(bench.domain, bytes(32)).document())
    elif wrong == "certificate":
        bench.zones.set(bench.tlsa_name, "TLSA", "3 1 1 " + "00" * 32)
    else:
        bench.zones.fail(bench.domain, "SVCB")
    with pytest.raises(FetchFailed if wrong == "failure" else AgentRefused):
        await registering.take(bench.domain, ADMIN)
    assert registering.registry.entries.find("agent:alice.example.com") is None


async def test_the_same_agent_known_otherwise_is_one_record(bench: Bench, registering: Registering) -> None:
    card = {
        "name": "Alice",
        "description": "Talks",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": bench.url("/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "talk", "name": "Talk", "description": "Talks", "tags": ["talk"]}],
    }
    bench.web.put("/cap.json", card)
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    found = await registering.take(bench.domain)
    ids = {agent.receipt.id for agent in found.agents if agent.receipt is not None}
    assert len(found.agents) == 2
    assert len(ids) == 1
    held = await registering.registry.get(ADMIN, "agent:alice.example.com")
    assert {source.dialect for source in held.sources} == {"a2a", "adp"}


async def test_an_agent_of_another_owner_is_not_replaced(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    with pytest.raises(OwnerConflict):
        await registering.take(bench.domain, BOB)


@pytest.mark.req("MAP-3")
async def test_a_record_of_aid_becomes_a_profile(bench: Bench, registering: Registering) -> None:
    bench.zones.set(f"_agent.{bench.domain}", "TXT", '"v=aid2;p=mcp;u=https://api.example.com/mcp;s=Gateway"')
    await registering.take(bench.domain)
    held = await registering.registry.get(ADMIN, f"dns:_agent.{bench.domain}")
    assert (held.record.name, held.record.tags) == ("Gateway", ("mcp",))
    assert held.record.bindings[0].endpoint == "https://api.example.com/mcp"
    assert "agent:alice.example.com" in held.aliases


async def test_an_agent_without_a_document_is_written_from_its_records(bench: Bench, registering: Registering) -> None:
    bench.zones.set(bench.domain, "SVCB", f"1 . alpn=mcp,h2 port={bench.web.port}")
    await registering.take(bench.domain)
    held = await registering.registry.get(ADMIN, "agent:alice.example.com")
    assert held.record.bindings[0].protocol == "mcp"


async def test_an_organisation_is_registered_with_all_that_it_lists(bench: Bench, registering: Registering) -> None:
    bench.publish()
    bench.zones.set("_agents.example.com", "SVCB", "0 alice.example.com.", "0 bob.example.com.", "0 gone.example.com.")
    bob = Identity("bob.example.com", bytes([7] * 32))
    bench.set_svcb('key65409="/bob.json"', name="bob.example.com")
    bench.web.put("/bob.json", bob.document())
    found = await registering.take("example.com", organisation=True)
    outcomes = {agent.decoded.record.id: agent.receipt for agent in found.agents if agent.decoded is not None}
    assert set(outcomes) == {"agent:alice.example.com", "agent:bob.example.com"}
    assert [agent.error.message for agent in found.agents if agent.error is not None] == [
        "gone.example.com has no agent: no agent has this name."
    ]


async def test_only_admin_learns_network_details(bench: Bench, registering: Registering) -> None:
    bench.zones.fail(bench.domain, "SVCB")
    with pytest.raises(FetchFailed) as told:
        await registering.take(bench.domain)
    assert told.value.details == {"reason": "unreachable"}


# --- Later ----------------------------------------------------------------------------------------


async def test_endpoints_are_checked_when_due_with_jitter(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    asked = len(bench.zones.asked)
    await registering.later(999.0)
    assert len(bench.zones.asked) == asked
    await registering.later(2.0)
    assert len(bench.zones.asked) > asked
    (watched,) = await registering.rechecks.watched()
    assert (watched.failures, watched.next_at) == (0, registering.service.clock.now() + 1000.0)


async def test_a_key_that_is_no_longer_valid_is_reported(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    bench.web.put(PATH, Identity(bench.domain, bytes(32)).document())
    await registering.later(1001.0)
    assert await registering.level("agent:alice.example.com") == "failed"
    bench.web.put(PATH, bench.alice.document())
    await registering.later(1001.0)
    assert await registering.level("agent:alice.example.com") == "verified"


async def test_a_domain_that_no_longer_names_the_agent_is_reported(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    for name, kind in ((bench.domain, "SVCB"), (f"_agent.{bench.domain}", "TXT")):
        bench.zones.remove(name, kind)  # type: ignore[arg-type]
    await registering.later(1001.0)
    assert (await registering.checks("agent:alice.example.com"))["dns-verified"] == "failed"


async def test_an_outage_changes_nothing_and_is_tried_again_sooner(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    bench.zones.fail(bench.domain, "SVCB")
    await registering.later(1001.0)
    assert await registering.level("agent:alice.example.com") == "verified"
    (watched,) = await registering.rechecks.watched()
    assert watched.failures == 1
    assert watched.next_at < registering.service.clock.now() + 100.0


async def test_a_change_of_endpoint_of_a_verified_agent_waits_for_its_owner(
    bench: Bench, registering: Registering
) -> None:
    bench.publish()
    await registering.take(bench.domain)
    document = bench.alice.document()
    document["endpoints"]["chat"] = "wss://elsewhere.example.net/agent/chat"
    bench.web.put(PATH, document)
    await registering.later(1001.0)
    held = await registering.registry.get(ADMIN, "agent:alice.example.com")
    assert held.record.bindings[0].endpoint == "wss://alice.example.com/agent/chat"
    assert await registering.registry.count_pending() == 1


async def test_an_agent_that_was_withdrawn_is_not_looked_up_again(bench: Bench, registering: Registering) -> None:
    bench.publish()
    await registering.take(bench.domain)
    await registering.registry.withdraw(ALICE, "agent:alice.example.com")
    asked = len(bench.zones.asked)
    await registering.later(1001.0)
    assert await registering.rechecks.watched() == []
    assert len(bench.zones.asked) == asked
