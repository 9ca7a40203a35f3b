"""ard.md §2: identifiers of entries."""

from __future__ import annotations

import pytest

from support.records import DECODE, ENCODE
from waypost.errors import InvalidDocument
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.ard.codec import mint_urn, parse_urn
from waypost.protocols.dialects import ARD

ENTRY = ARD.examples()[0]


def refused(text: str) -> bool:
    try:
        parse_urn(text)
    except InvalidDocument as error:
        return error.path == "$.identifier" and bool(error.hint)
    return False


@pytest.mark.req("ARD-13")
def test_a_name_is_publisher_namespaces_and_name() -> None:
    urn = parse_urn("urn:air:acme.com:finance:invoices:Reader_1.0")
    assert (urn.publisher, urn.namespace, urn.name) == ("acme.com", ("finance", "invoices"), "Reader_1.0")
    assert all(map(refused, ["urn:air:acme.com", "urn:air:acme.com:a b", "urn:air:acme_x.com:a", "urn:x:acme.com:a"]))


@pytest.mark.req("ARD-14")
def test_the_publisher_is_a_domain_name() -> None:
    assert all(map(refused, ["urn:air:localhost:x", "urn:air:127.0.0.1:x", "urn:air:.com:x"]))
    assert parse_urn("urn:air:agent.localhost:x").publisher == "agent.localhost"
    assert mint_urn("plain", "localhost").publisher == "agent.localhost"


@pytest.mark.req("ARD-15")
def test_urns_that_only_the_published_patterns_accept_are_refused() -> None:
    assert all(map(refused, ["urn:air:a.com:n::x", "urn:air:-:x", "urn:air:a.com:x\n", f"urn:air:{'a' * 64}.com:x"]))
    assert refused("urn:air:a.com:" + "x" * 242)
    assert not refused("urn:air:a.com:" + "x" * 241)


@pytest.mark.req("ARD-16")
def test_scheme_and_publisher_compare_without_case_and_the_old_scheme_is_an_alias() -> None:
    assert parse_urn("URN:AIR:Acme.COM:Agent:X") == parse_urn("urn:air:acme.com:Agent:X")
    assert parse_urn("urn:air:acme.com:agent:x") != parse_urn("urn:air:acme.com:agent:X")
    decoded = ARD.decode(ENTRY | {"identifier": "urn:ai:ACME.com:agent:assistant"}, DECODE)
    assert decoded.record.id == "urn:air:acme.com:agent:assistant"
    assert decoded.aliases == ("urn:ai:ACME.com:agent:assistant",)
    assert decoded.warnings


@pytest.mark.req("ARD-16")
def test_a_record_of_another_scheme_gets_a_minted_name_that_says_so() -> None:
    record = AgentRecord(
        id="agent:acme.com",
        name="A",
        description="Does a.",
        bindings=(Binding(protocol="agp", endpoint="wss://acme.com/chat"),),
    )
    entry = ARD.encode(record, ENCODE).document
    assert parse_urn(entry["identifier"]).publisher == "acme.com"
    assert entry["metadata"] == {"org.agentdiscovery.id": "agent:acme.com", "org.agentdiscovery.minted": True}
    assert ARD.decode(entry, DECODE).record == record
