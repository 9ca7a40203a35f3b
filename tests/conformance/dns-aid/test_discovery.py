"""DNS-AID: names, records, descriptors and the rules of RFC 9460 that they stand on."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from support.fake_dns import states
from support.resolve_fixtures import Bench
from waypost.domains.resolver import ResolveOptions
from waypost.net.fetcher import FETCH_LIMITS
from waypost.protocols.dns_aid.svcb import BAP, encode_params

CARD: dict[str, Any] = {
    "name": "Booking",
    "description": "Books rooms",
    "version": "1.0.0",
    "supportedInterfaces": [
        {"url": "https://alice.example.com/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "book", "name": "Book", "description": "Books a room", "tags": ["booking"]}],
}


def digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.req("AID-1", "AID-6")
async def test_the_flat_name_is_tried_first_and_older_names_only_if_enabled(bench: Bench) -> None:
    legacy = "_alice._mcp._agents.example.com"
    bench.zones.set(legacy, "SVCB", "1 mcp.example.com. alpn=mcp port=443")
    assert (await bench.resolver.resolve(bench.domain, "dns")).outcome == "not_found"
    assert legacy not in {name for name, _ in bench.zones.asked}
    older = bench.with_options(ResolveOptions(legacy_names=True))
    found = await older.resolve(bench.domain, "dns")
    assert (found.outcome, found.endpoints[0].host) == ("resolved", "mcp.example.com")
    assert any("-01" in warning for warning in found.warnings)
    bench.publish()
    found = await older.resolve(bench.domain, "dns", fresh=True)
    assert found.endpoints[0].host == bench.domain
    assert not found.warnings


@pytest.mark.req("AID-2")
async def test_a_walkable_label_points_at_the_agent_whose_name_it_is(bench: Bench) -> None:
    bench.publish()
    bench.zones.set("alice._agents.example.com", "SVCB", f"0 {bench.domain}.")
    found = await bench.resolver.resolve("alice._agents.example.com")
    assert (found.agent, found.level) == ("agent:alice.example.com", "key-verified")


@pytest.mark.req("AID-4")
async def test_a_target_with_underscores_is_passed_over(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "1 _bad.example.com. alpn=a2a", "2 good.example.com. alpn=a2a")
    found = await bench.resolver.resolve(bench.domain, "dns")
    assert [endpoint.host for endpoint in found.endpoints] == ["good.example.com"]
    assert any("AID-4" in warning for warning in found.warnings)
    bench.zones.set(bench.domain, "SVCB", "1 _bad.example.com. alpn=a2a")
    assert (await bench.resolver.resolve(bench.domain, "dns", fresh=True)).code == "no_usable_record"


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.req("AID-7")
async def test_an_https_record_counts_when_it_tells_of_an_agent(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    bench.zones.remove(f"_agent.{bench.domain}", "TXT")
    bench.zones.set(bench.domain, "HTTPS", "1 . alpn=h2,h3")
    assert (await bench.resolver.resolve(bench.domain, "dns")).how is None
    bench.zones.set(bench.domain, "HTTPS", f'1 . alpn=h2 port={bench.web.port} key65409="agent.json"')
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert (found.how, found.level) == ("https", "dane-verified")


@pytest.mark.req("AID-8", "AID-10")
async def test_several_protocols_are_several_records_lowest_priority_first(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "2 . alpn=mcp,h2 port=443", "1 . alpn=a2a,h2 port=8443")
    found = await bench.resolver.resolve(bench.domain, "dns")
    assert [(each.protocol, each.port, each.priority) for each in found.endpoints] == [
        ("a2a", 8443, 1),
        ("mcp", 443, 2),
    ]


@pytest.mark.req("AID-10")
async def test_a_record_that_demands_an_unknown_key_is_passed_over(bench: Bench) -> None:
    bench.publish()
    good = f"2 . alpn=a2a port={bench.web.port}"
    bench.zones.set(bench.domain, "SVCB", '1 evil.example.net. mandatory=key667 key667="x"', good)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.level, [each.host for each in found.endpoints]) == ("key-verified", [bench.domain])
    assert any("key667" in warning for warning in found.warnings)
    bench.zones.set(bench.domain, "SVCB", '1 evil.example.net. mandatory=key667 key667="x"')
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).code == "no_usable_record"


@pytest.mark.req("AID-10")
async def test_one_malformed_record_spoils_the_set_and_nothing_weaker_is_tried(bench: Bench) -> None:
    bench.publish()
    twice = b"\0\1\0" + b"\0\3\0\2\1\xbb" * 2
    bench.zones.set_wire(bench.domain, "SVCB", b"\0\2\0", twice)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "malformed", "unverified")
    assert bench.web.connections == 0


@pytest.mark.req("AID-10")
async def test_aliases_are_followed_and_their_parameters_ignored(bench: Bench) -> None:
    bench.publish()
    bench.set_svcb(name="one.provider.net", target="host.provider.net.")
    bench.zones.set_wire(bench.domain, "SVCB", b"\0\0\3one\x08provider\3net\0" + b"\0\3\0\2\0\x35")
    name = f"_{bench.web.port}._tcp.host.provider.net"
    assert (await bench.resolver.resolve(bench.domain)).level == "key-verified"
    assert (name, "TLSA") in bench.zones.asked


@pytest.mark.req("AID-10")
async def test_an_alias_that_ends_at_a_host_without_records_leads_to_that_host(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "0 host.provider.net.")
    found = await bench.resolver.resolve(bench.domain, "dns")
    assert [(each.host, each.port) for each in found.endpoints] == [("host.provider.net", 443)]


@pytest.mark.req("AID-10")
async def test_behind_a_cname_the_target_dot_is_the_record_owner_and_the_agent_is_unchanged(
    bench: Bench,
) -> None:
    bench.publish()
    bench.set_svcb(name="host.provider.net")
    bench.zones.set_cname(bench.domain, "host.provider.net", "SVCB")
    found = await bench.resolver.resolve(bench.domain)
    assert [each.host for each in found.endpoints] == ["host.provider.net"]
    assert (found.agent, found.level) == ("agent:alice.example.com", "key-verified")


@pytest.mark.req("AID-10")
@pytest.mark.parametrize("size", [1, 2, 5])
async def test_aliases_in_a_circle_end(bench: Bench, size: int) -> None:
    for number in range(size):
        bench.zones.set(f"a{number}.example.com", "SVCB", f"0 a{(number + 1) % size}.example.com.")
    found = await bench.resolver.resolve("a0.example.com")
    assert (found.outcome, found.code, found.level) == ("failed", "alias_limit", "unverified")
    assert len(bench.zones.asked) < 20


@pytest.mark.req("AID-10")
async def test_a_chain_of_eight_aliases_is_followed_and_one_of_nine_is_not(bench: Bench) -> None:
    for number in range(9):
        bench.zones.set(f"a{number}.example.com", "SVCB", f"0 a{number + 1}.example.com.")
    bench.zones.set("a9.example.com", "SVCB", "1 . alpn=a2a")
    assert (await bench.resolver.resolve("a1.example.com", "dns")).outcome == "resolved"
    assert (await bench.resolver.resolve("a0.example.com", "dns")).code == "alias_limit"


@pytest.mark.req("AID-10")
async def test_aliases_beside_services_are_refused(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "0 other.example.com.", "1 . alpn=a2a")
    assert (await bench.resolver.resolve(bench.domain)).code == "alias_limit"


@pytest.mark.req("AID-10")
async def test_an_alias_to_the_root_means_that_there_is_no_service(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "0 .")
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code) == ("not_found", "not_offered")


@pytest.mark.req("AID-22")
@pytest.mark.parametrize("kind", ["indeterminate", "bogus"])
async def test_an_alias_whose_target_fails_is_not_followed_elsewhere(bench: Bench, kind: Any) -> None:
    bench.publish()
    bench.zones.set(bench.domain, "SVCB", "0 other.example.com.")
    bench.zones.fail("other.example.com", "SVCB", kind)
    found = await bench.resolver.resolve(bench.domain)
    assert found.outcome == "failed"
    assert bench.web.connections == 0


@pytest.mark.req("AID-22")
async def test_a_chain_is_as_secure_as_its_weakest_link(bench: Bench) -> None:
    bench.zones.set(bench.domain, "SVCB", "0 other.example.com.")
    bench.zones.set("other.example.com", "SVCB", "1 . alpn=a2a", security="insecure")
    assert (await bench.resolver.resolve(bench.domain, "dns")).dnssec == "insecure"


@pytest.mark.req("AID-13", "AID-18")
def test_values_go_by_number_and_cannot_carry_more_than_themselves() -> None:
    assert encode_params({BAP: "mcp"}) == {65402: b"mcp"}


@pytest.mark.req("AID-22")
async def test_a_forged_answer_is_refused(bench: Bench) -> None:
    bench.publish()
    bench.zones.fail(bench.domain, "SVCB", "bogus")
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.dnssec, states(found.verdicts)["dns-verified"]) == ("failed", "bogus", "failed")


@pytest.mark.req("AID-19")
async def test_an_unsigned_domain_is_resolved_and_reported_as_insecure(bench: Bench) -> None:
    bench.zones.security = "insecure"
    bench.publish()
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.dnssec, found.level) == ("resolved", "insecure", "key-verified")
    assert states(found.verdicts)["dane-verified"] == "unknown"
    assert found.key is not None
    assert found.key.dnssec == "insecure"


# --- Descriptors ----------------------------------------------------------------------------------


@pytest.mark.req("AID-14", "ADP-5", "ADP-6")
async def test_the_capability_document_is_the_one_whose_digest_the_dns_gives(bench: Bench) -> None:
    body = bench.web.put("/cap.json", CARD)
    cap = bench.url("/cap.json", "cdn.example.com")
    bench.publish(params=f'key65400="{cap}" key65401="{digest(body)}"')
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "key-verified"
    assert [(each.role, each.dialect) for each in found.documents] == [("capability", "a2a"), ("metadata", "adp")]
    bench.web.put("/cap.json", body + b" ")
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert (found.outcome, found.code, found.level) == ("failed", "digest_mismatch", "unverified")


@pytest.mark.req("AID-14")
@pytest.mark.parametrize("stated", ["", "x" * 43, "é" * 43, "A" * 42])
async def test_a_digest_that_is_none_matches_nothing(bench: Bench, stated: str) -> None:
    bench.web.put("/cap.json", CARD)
    escaped = "".join(f"\\{octet:03d}" if octet > 126 else chr(octet) for octet in stated.encode())
    bench.publish(params=f'key65400="{bench.url("/cap.json")}" key65401="{escaped}"')
    assert (await bench.resolver.resolve(bench.domain)).code == "digest_mismatch"


@pytest.mark.req("AID-14")
async def test_a_capability_document_that_cannot_be_had_is_another_state_than_one_that_differs(bench: Bench) -> None:
    bench.publish(params=f'key65400="{bench.url("/missing.json")}" key65401="{"A" * 43}"')
    found = await bench.resolver.resolve(bench.domain)
    assert found.outcome == "resolved"
    missing = next(each for each in found.steps if each.name == "capability")
    assert (missing.state, missing.code) == ("unknown", "status")


@pytest.mark.req("AID-17")
async def test_the_descriptor_is_cap_then_well_known_then_the_card(bench: Bench) -> None:
    bench.web.put("/cap.json", {**CARD, "name": "From cap"})
    bench.web.put("/.well-known/other.json", {**CARD, "name": "From well-known"})
    bench.web.put("/.well-known/agent-card.json", {**CARD, "name": "From the card"})
    for params, name in (
        (f'key65400="{bench.url("/cap.json")}" key65409="other.json"', "From cap"),
        ('key65400="urn:example:cap" key65409="other.json"', "From well-known"),
        ("", "From the card"),
    ):
        bench.set_svcb(params)
        found = await bench.resolver.resolve(bench.domain, fresh=True)
        assert found.document is not None
        assert (found.document.name, found.document.dialect) == (name, "a2a")


@pytest.mark.req("AID-17", "AID-11")
async def test_where_no_document_describes_the_agent_its_text_record_does(bench: Bench) -> None:
    bench.set_svcb()
    bench.zones.set(bench.domain, "TXT", '"v=spf1 -all"', '"capabilities=travel,booking,<evil>" "version=1.0.0"')
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.document, found.capabilities) == ("resolved", None, ("travel", "booking"))
    bench.publish()
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).capabilities == ("chat",)


@pytest.mark.req("AID-15")
@pytest.mark.parametrize(("bap", "warned"), [("mcp", 0), ("mcp=1.0", 0), ("mcp/1", 1), ("mcp,a2a", 1)])
async def test_of_several_protocols_in_one_record_the_first_is_taken_with_a_warning(
    bench: Bench, bap: str, warned: int
) -> None:
    bench.publish(params=f'key65402="{bap}"')
    found = await bench.resolver.resolve(bench.domain)
    assert [endpoint.protocol for endpoint in found.endpoints] == ["mcp"]
    assert len([warning for warning in found.warnings if "AID-15" in warning]) == warned


@pytest.mark.req("AIDTXT-2")
@pytest.mark.parametrize(
    ("proto", "uri", "server"),
    [
        ("mcp", "https://api.example.com:8443/mcp", ("api.example.com", 8443)),
        ("websocket", "wss://api.example.com/ws", ("api.example.com", 443)),
        ("local", "docker:example/image", (None, 443)),
        ("mcp", "https://api.example.com:99999/mcp", (None, 443)),
    ],
)
async def test_the_endpoint_of_an_aid_record_is_the_server_in_its_address(
    bench: Bench, proto: str, uri: str, server: tuple[str | None, int]
) -> None:
    bench.zones.set(f"_agent.{bench.domain}", "TXT", f'"v=aid2;p={proto};u={uri}"')
    [endpoint] = (await bench.resolver.resolve(bench.domain, depth="dns")).endpoints
    assert (endpoint.url, endpoint.host, endpoint.port) == (uri, server[0] or bench.domain, server[1])


@pytest.mark.req("AID-17")
async def test_with_an_unrecognised_capability_document_the_metadata_document_is_used(bench: Bench) -> None:
    bench.web.put("/cap.json", {"anything": ["goes"]})
    bench.publish(params=f'key65400="{bench.url("/cap.json")}"')
    found = await bench.resolver.resolve(bench.domain)
    assert found.document is not None
    assert (found.document.role, found.document.dialect) == ("metadata", "adp")


@pytest.mark.req("AID-17")
async def test_dns_aid_metadata_is_recognised_and_must_match_its_name(bench: Bench) -> None:
    document = {"aid_version": "1.0", "identity": {"name": "Alice", "fqdn": bench.domain}, "connection": {}}
    bench.web.put("/.well-known/agent.json", document)
    bench.set_svcb('key65409="agent.json"')
    found = await bench.resolver.resolve(bench.domain)
    assert found.document is not None
    assert found.document.dialect == "dns-aid"
    document["identity"] = {"name": "Alice", "fqdn": "bob.example.com"}
    bench.web.put("/.well-known/agent.json", document)
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).code == "identity_mismatch"


@pytest.mark.req("AID-26")
async def test_a_document_without_end_is_not_read(bench: Bench) -> None:
    bench.web.put("/.well-known/agent.json", b"{" + b" " * 300_000 + b"}")
    bench.set_svcb('key65409="agent.json"')
    found = await bench.resolver.resolve(bench.domain)
    assert next(each for each in found.steps if each.name == "document").code == "too_large"
    assert found.document is None


@pytest.mark.req("AID-26")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"a":1,"a":2}',
        b'{"protocol":"ADP/1.1"}',
        b"{" * 10_000,
        b'{"x":NaN}',
        b"\xff\xfe",
        b"<html>",
    ],
)
async def test_a_hostile_document_is_refused_in_words_of_our_own(bench: Bench, body: bytes) -> None:
    bench.publish(params='key65409="agent.json"')
    bench.web.put("/.well-known/agent.json", body)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "invalid_document", "unverified")


@pytest.mark.req("AID-26")
def test_a_slow_document_or_index_is_waited_for_twelve_seconds() -> None:
    assert [FETCH_LIMITS[purpose].total_seconds for purpose in ("descriptor", "index")] == [12.0, 12.0]


@pytest.mark.req("AID-26")
async def test_a_redirect_is_not_followed(bench: Bench) -> None:
    bench.publish(params='key65409="agent.json"')
    bench.web.put("/.well-known/agent.json", b"", status=302, Location=bench.url("/elsewhere", "bob.example.com"))
    found = await bench.resolver.resolve(bench.domain)
    assert bench.web.requests == [bench.url("/.well-known/agent.json")]
    assert found.document is None


@pytest.mark.req("AID-10")
async def test_a_server_that_is_down_is_followed_by_the_next_one(bench: Bench) -> None:
    bench.publish()
    bench.zones.set(bench.domain, "SVCB", "1 . alpn=a2a port=2", f"2 . alpn=a2a port={bench.web.port}")
    assert (await bench.resolver.resolve(bench.domain)).level == "key-verified"


# --- AID ------------------------------------------------------------------------------------------


@pytest.mark.req("AIDTXT-1")
async def test_an_aid_record_is_distinguished_and_used_if_there_is_no_other(bench: Bench) -> None:
    aid = '"v=aid2;p=mcp;u=https://api.example.com/mcp;s=Gateway"'
    bench.zones.set(f"_agent.{bench.domain}", "TXT", aid)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.how, found.level) == ("aid", "dns-verified")
    assert (found.endpoints[0].protocol, found.endpoints[0].url) == ("mcp", "https://api.example.com/mcp")
    bench.publish()
    bench.zones.set(f"_agent.{bench.domain}", "TXT", aid, bench.alice.txt(bench.url("/.well-known/agent.json")))
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).level == "key-verified"


@pytest.mark.req("AIDTXT-4")
async def test_aid_as_json_is_the_last_place(bench: Bench) -> None:
    bench.web.put("/.well-known/agent", {"v": "aid1", "u": "https://api.example.com/mcp", "p": "mcp"})
    found = await bench.resolver.resolve(bench.url("/"))
    assert found.document is not None
    assert (found.how, found.document.dialect) == ("well-known", "aid")
