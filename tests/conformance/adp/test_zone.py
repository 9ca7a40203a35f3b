"""The records that are written for an agent, read by another reader of zones."""

from __future__ import annotations

import pytest

from support.zone_plans import DIGEST, FINGERPRINT, params_of, plan, read_zone, zone_of
from waypost.domains.zone import ZoneIndexEntry, make_zone

ALICE = "alice.example.com"


@pytest.mark.req("ADP-1", "ADP-2", "ADP-3", "ADP-5", "ADP-6")
def test_an_agent_has_a_service_record_at_its_own_name() -> None:
    (record,) = read_zone(zone_of())[ALICE, "SVCB"]
    assert (record.priority, record.target.to_text()) == (1, f"{ALICE}.")  # "." in full
    params = params_of(record)
    assert params[1].split(",") == ["a2a", "h2"]
    assert params[3] == "443"
    assert params[65400] == "https://alice.example.com/.well-known/agent-capabilities.json"
    assert params[65401] == DIGEST
    assert params[65402] == "a2a"
    assert params[65409] == "agent.json"


@pytest.mark.req("ADP-7")
def test_an_agent_that_a_provider_hosts_points_at_the_provider() -> None:
    found = read_zone(zone_of(target="host.provider.example", well_known="agents/alice.example.com.json"))
    (record,) = found[ALICE, "SVCB"]
    assert record.target.to_text() == "host.provider.example."
    assert params_of(record)[65409] == "agents/alice.example.com.json"
    assert found["_agent._tcp.alice.example.com", "SRV"][0].target.to_text() == "host.provider.example."


@pytest.mark.req("ADP-15")
def test_the_key_is_in_one_txt_record() -> None:
    (record,) = read_zone(zone_of(port=8443))["_agent.alice.example.com", "TXT"]
    pairs = dict(part.strip().split("=", 1) for part in b"".join(record.strings).decode().split(";"))
    assert pairs == {
        "v": "ADP1.1",
        "pk": FINGERPRINT,
        "wk": "https://alice.example.com/.well-known/agent.json",
        "alpn": "a2a",
        "port": "8443",
        "bap": "a2a",
    }


@pytest.mark.req("ADP-17")
def test_the_server_record_names_port_and_target() -> None:
    (record,) = read_zone(zone_of(port=8443))["_agent._tcp.alice.example.com", "SRV"]
    assert (record.port, record.target.to_text()) == (8443, "alice.example.com.")


@pytest.mark.req("ADP-9", "ADP-10")
def test_the_certificate_is_named_at_host_and_port_in_the_form_3_1_1() -> None:
    (record,) = read_zone(zone_of(port=8443, target="host.example.com"))["_8443._tcp.host.example.com", "TLSA"]
    assert (record.usage, record.selector, record.mtype, record.cert) == (3, 1, 1, bytes(range(32)))


@pytest.mark.req("ADP-8")
def test_an_organisation_lists_its_agents_as_aliases() -> None:
    index = (
        ZoneIndexEntry(domain="alice.example.com", protocol="a2a"),
        ZoneIndexEntry(domain="bob.example.com", protocol="a2a"),
    )
    records = read_zone(zone_of(organisation="example.com", index=index))["_agents.example.com", "SVCB"]
    assert {(record.priority, record.target.to_text()) for record in records} == {
        (0, "alice.example.com."),
        (0, "bob.example.com."),
    }
    assert all(not record.params for record in records)


@pytest.mark.req("ADP-13")
def test_publishing_a_certificate_warns_that_the_zone_must_be_signed() -> None:
    assert any("DNSSEC" in warning for warning in zone_of().warnings)


@pytest.mark.req("ADP-9", "ADP-15")
def test_missing_parts_of_a_zone_are_reported() -> None:
    bare = zone_of(fingerprint=None, certificates=())
    assert any("key-verified" in warning for warning in bare.warnings)
    assert any("dane-verified" in warning for warning in bare.warnings)
    assert ("_agent.alice.example.com", "TXT") not in read_zone(bare)


@pytest.mark.req("ADP-1")
def test_addresses_are_records_of_the_host_and_hints() -> None:
    found = read_zone(zone_of(addresses=("192.0.2.7", "2001:db8::1")))
    assert [record.address for record in found[ALICE, "A"]] == ["192.0.2.7"]
    assert [record.address for record in found[ALICE, "AAAA"]] == ["2001:db8::1"]
    params = params_of(found[ALICE, "SVCB"][0])
    assert (params[4], params[6]) == ("192.0.2.7", "2001:db8::1")


@pytest.mark.req("ADP-15", "ADP-19")
def test_managed_dns_gets_no_key_that_it_would_refuse() -> None:
    zone = make_zone(plan(), private_keys=False)
    (record,) = read_zone(zone)[ALICE, "SVCB"]
    assert set(params_of(record)) == {1}
    (other,) = read_zone(make_zone(plan(port=8443), private_keys=False))[ALICE, "SVCB"]
    assert params_of(other) == {1: "a2a,h2", 3: "8443"}
    assert ("_agent.alice.example.com", "TXT") in read_zone(zone)
