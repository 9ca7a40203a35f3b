"""Requirements of DNS-AID for publishers."""

from __future__ import annotations

import pytest

from support.zone_plans import params_of, plan, read_zone, zone_of
from waypost.domains.zone import ExtraProtocol, ZoneIndexEntry, format_zone, make_zone
from waypost.errors import InvalidParameter

INDEX = (
    ZoneIndexEntry(domain="alice.example.com", protocol="a2a"),
    ZoneIndexEntry(domain="bob.example.com", protocol="a2a"),
    ZoneIndexEntry(domain="x.deep.example.com", protocol="a2a"),
)


@pytest.mark.req("AID-1", "AID-6")
def test_the_primary_owner_is_flat_and_without_the_protocol() -> None:
    owners = [name for name, kind in read_zone(zone_of()) if kind == "SVCB"]
    assert owners == ["alice.example.com"]


@pytest.mark.req("AID-2")
def test_walkable_names_are_aliases_of_the_primary_owner() -> None:
    found = read_zone(zone_of(organisation="example.com", index=INDEX))
    (record,) = found["bob._agents.example.com", "SVCB"]
    assert (record.priority, record.target.to_text()) == (0, "bob.example.com.")
    assert not any(name.startswith("x.deep._agents") for name, _ in found)
    quiet = read_zone(zone_of())
    assert not any("_agents" in name for name, _ in quiet)  # an index can be walked, so it is asked for


@pytest.mark.req("AID-3")
def test_the_index_of_an_organisation_names_its_server() -> None:
    found = read_zone(zone_of(organisation="example.com", index=INDEX, index_host="agents.example.com"))
    (record,) = found["_index._agents.example.com", "SVCB"]
    assert (record.priority, record.target.to_text()) == (1, "agents.example.com.")
    assert params_of(record)[65409] == "ai-catalog.json"
    (text,) = found["_index._agents.example.com", "TXT"]
    assert b"".join(text.strings) == b"agents=alice:a2a,bob:a2a"


@pytest.mark.req("AID-4")
@pytest.mark.parametrize("host", ["_x.example.com", "a._b.example.com", "a.example_.com"])
def test_a_target_that_no_certificate_can_name_is_refused(host: str) -> None:
    with pytest.raises(InvalidParameter):
        zone_of(target=host)
    with pytest.raises(InvalidParameter):
        zone_of(organisation="example.com", index=INDEX, index_host=host)


@pytest.mark.req("AID-8", "AID-9")
def test_each_protocol_has_a_record_of_its_own() -> None:
    further = (ExtraProtocol(protocol="mcp", host="mcp.example.com", port=8443),)
    first, second = sorted(
        read_zone(zone_of(extra_protocols=further))["alice.example.com", "SVCB"], key=lambda one: one.priority
    )
    assert params_of(first)[1].startswith("a2a")
    assert params_of(second)[1].startswith("mcp")
    assert (params_of(second)[3], second.target.to_text()) == ("8443", "mcp.example.com.")


@pytest.mark.req("AID-12")
def test_an_oversized_record_set_is_reported() -> None:
    assert not any("AID-12" in warning for warning in zone_of().warnings)
    large = zone_of(capabilities_url="https://alice.example.com/" + "x" * 1100)
    assert any("AID-12" in warning and "alice.example.com SVCB" in warning for warning in large.warnings)


@pytest.mark.req("AID-13")
def test_keys_without_a_number_of_iana_are_written_by_their_private_number() -> None:
    text = format_zone(zone_of(), "bind")
    assert 'key65400="https://' in text
    for name in ("cap=", "cap-sha256=", 'bap="', "well-known="):
        assert f" {name}" not in text


@pytest.mark.req("AID-18")
@pytest.mark.parametrize("value", ['x" key65402="mcp', "x\\", "x\ny", "x\0", "x\x7f"])
@pytest.mark.parametrize("member", ["capabilities_url", "well_known", "capabilities_digest"])
def test_a_value_that_could_end_its_parameter_is_refused(member: str, value: str) -> None:
    with pytest.raises(InvalidParameter):
        make_zone(plan(**{member: value}))


@pytest.mark.req("AID-18")
@pytest.mark.parametrize("value", ["https://a.example/; v=ADP1", 'https://a.example/"', "https://a.example/\\"])
def test_a_value_that_could_end_its_pair_is_refused(value: str) -> None:
    with pytest.raises(InvalidParameter):
        make_zone(plan(metadata_url=value))
