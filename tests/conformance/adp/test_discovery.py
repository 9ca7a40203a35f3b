"""Layer 1 of ADP: SVCB first, the fallback only where there is no record, and what follows from which answer."""

from __future__ import annotations

import pytest

from support.fake_dns import states
from support.resolve_fixtures import Bench


@pytest.mark.req("ADP-1", "ADP-19")
async def test_svcb_at_the_domain_is_queried_first_and_alone_if_it_suffices(bench: Bench) -> None:
    bench.publish()
    found = await bench.resolver.resolve(bench.domain, "dns")
    assert bench.zones.asked == [(bench.domain, "SVCB")]
    assert (found.outcome, found.how, found.level) == ("resolved", "svcb", "dns-verified")
    assert (found.cost.queries, found.cost.round_trips, found.cost.fetches) == (1, 1, 0)
    assert bench.web.connections == 0
    assert states(found.verdicts) == {
        "dns-verified": "passed",
        "dane-verified": "not_checked",
        "key-verified": "not_checked",
        "peer-verified": "not_checked",
    }


@pytest.mark.req("ADP-2", "ADP-3", "AID-8", "AID-9", "AID-15")
@pytest.mark.parametrize(
    ("params", "protocol"),
    [
        ('alpn="a2a,h2"', "a2a"),
        ('alpn="h2,h3,mcp"', "mcp"),
        ('alpn="h2" key65402="a2a"', "a2a"),
        ('alpn="h2" key65402="mcp=1.0"', "mcp"),
        ('alpn="h2" key65402="mcp/1,a2a/1"', "mcp"),
        ('alpn="h2"', ""),
    ],
)
async def test_the_protocol_of_the_agent_is_reported_beside_its_transports(
    bench: Bench, params: str, protocol: str
) -> None:
    bench.zones.set(bench.domain, "SVCB", f"1 . {params} port=443")
    found = await bench.resolver.resolve(bench.domain, "dns")
    assert [endpoint.protocol for endpoint in found.endpoints] == [protocol]


@pytest.mark.req("ADP-4", "AID-16")
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ("", "/.well-known/agent.json"),
        ('key65409="agent-card.json"', "/.well-known/agent-card.json"),
        ('key65409="deep/card.json"', "/.well-known/deep/card.json"),
        ('key65409="/not-well-known/other.json"', "/not-well-known/other.json"),
    ],
)
async def test_the_key_well_known_gives_the_path_below_the_target(bench: Bench, params: str, path: str) -> None:
    bench.publish(params=params)
    bench.web.put(path, bench.alice.document())
    found = await bench.resolver.resolve(bench.domain)
    assert bench.web.requests == [bench.url(path)]
    assert found.level == "key-verified"


@pytest.mark.req("ADP-4", "AID-16")
@pytest.mark.parametrize(
    "value",
    [
        "../admin",
        "a/../b",
        "//evil.example.net/x",
        "a//b",
        "https://evil.example.net/",
        "a?b",
        "a%2f",
        "a b",
        "x" * 200,
    ],
)
async def test_a_path_that_leads_outside_is_not_followed(bench: Bench, value: str) -> None:
    bench.publish(params=f'key65409="{value}"')
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "bad_path", "unverified")
    assert bench.web.connections == 0


@pytest.mark.req("ADP-7", "AID-23")
async def test_a_hosted_agent_is_fetched_from_its_provider_and_is_still_itself(bench: Bench) -> None:
    bench.publish(target="host.provider.net.")
    found = await bench.resolver.resolve(bench.domain)
    assert bench.web.requests == [bench.url("/.well-known/agent.json", "host.provider.net")]
    assert (f"_{bench.web.port}._tcp.host.provider.net", "TLSA") in bench.zones.asked
    assert found.level == "key-verified"
    assert found.agent == "agent:alice.example.com"
    assert states(found.verdicts)["dane-verified"] == "passed"


@pytest.mark.req("ADP-7")
async def test_the_document_of_another_agent_of_the_provider_is_refused(bench: Bench) -> None:
    bench.publish(target="host.provider.net.")
    bench.web.put("/.well-known/agent.json", bench.alice.document(domain="mallory.example.com"))
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "identity_mismatch", "unverified")
    assert states(found.verdicts)["key-verified"] == "failed"


@pytest.mark.req("ADP-14", "ADP-15", "ADP-19", "ADP-20")
async def test_without_svcb_the_text_record_is_used_and_reported(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.how, found.level) == ("resolved", "txt", "key-verified")
    assert any("fallback" in warning for warning in found.warnings)
    assert found.endpoints[0].host == bench.domain


@pytest.mark.req("ADP-14")
@pytest.mark.parametrize("security", ["indeterminate", "bogus"])
async def test_a_failure_is_no_reason_to_fall_back(bench: Bench, security: str) -> None:
    bench.publish()
    bench.zones.fail(bench.domain, "SVCB", security)  # type: ignore[arg-type]
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.how, found.level) == ("failed", None, "unverified")
    assert found.code == ("bogus" if security == "bogus" else "dns_failed")
    assert states(found.verdicts)["dns-verified"] == ("failed" if security == "bogus" else "unknown")
    assert [(step.name, step.state) for step in found.steps] == [
        ("svcb", "failed" if security == "bogus" else "unknown")
    ]
    assert found.cost.queries == 2
    assert bench.web.connections == 0


@pytest.mark.req("ADP-14")
@pytest.mark.parametrize(("place", "kind"), [("_agent.", "TXT"), ("", "HTTPS"), ("_agent._tcp.", "SRV")])
async def test_a_failure_on_the_way_of_the_fallback_ends_it(bench: Bench, place: str, kind: str) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    bench.zones.fail(f"{place}{bench.domain}", kind)  # type: ignore[arg-type]
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code) == ("failed", "dns_failed")
    assert bench.web.connections == 0


@pytest.mark.req("ADP-15")
async def test_a_text_record_of_another_version_is_refused(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    bench.zones.set(f"_agent.{bench.domain}", "TXT", bench.alice.txt("https://a/").replace("ADP1.1", "ADP9"))
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code) == ("failed", "version")


@pytest.mark.req("ADP-16")
async def test_several_text_records_are_joined_only_where_their_order_is_plain(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    path = "/" + "a" * 200
    text = bench.alice.txt(bench.url(path)).strip('"')
    bench.zones.set(f"_agent.{bench.domain}", "TXT", f'"{text[255:]}"', f'"{text[:255]}"')
    bench.web.put(path, bench.alice.document())
    assert (await bench.resolver.resolve(bench.domain)).level == "key-verified"
    bench.zones.set(
        f"_agent.{bench.domain}", "TXT", bench.alice.txt("https://a.example/"), bench.alice.txt("https://b.example/")
    )
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert (found.outcome, found.code) == ("failed", "ambiguous")


@pytest.mark.req("ADP-17", "ADP-18")
async def test_the_server_record_gives_the_endpoint_and_without_one_it_is_the_domain(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    found = await bench.resolver.resolve(bench.domain)
    assert [(each.host, each.port) for each in found.endpoints] == [(bench.domain, 443)]
    bench.zones.set(f"_agent._tcp.{bench.domain}", "SRV", "20 0 1 far.example.com.", "10 0 8443 near.example.com.")
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert [(each.host, each.port) for each in found.endpoints] == [("near.example.com", 8443)]
    bench.zones.set(f"_agent._tcp.{bench.domain}", "SRV", "0 0 0 .")
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert (found.outcome, found.code) == ("not_found", "not_offered")


@pytest.mark.req("ADP-21", "ADP-48")
async def test_without_any_record_the_well_known_document_is_tried_and_proves_nothing(bench: Bench) -> None:
    bench.web.put("/.well-known/agent.json", bench.alice.document())
    found = await bench.resolver.resolve(bench.url("/"))
    assert (found.outcome, found.how, found.level) == ("resolved", "well-known", "unverified")
    assert states(found.verdicts)["dns-verified"] == "not_checked"
    assert states(found.verdicts)["key-verified"] == "unknown"


@pytest.mark.req("ADP-21")
async def test_the_address_of_a_document_is_resolved_as_its_domain(bench: Bench) -> None:
    bench.publish()
    bench.web.put("/here.json", bench.alice.document())
    found = await bench.resolver.resolve(bench.url("/here.json"))
    assert (found.how, found.level, found.domain) == ("url", "key-verified", bench.domain)
    assert bench.web.requests == [bench.url("/here.json")]


@pytest.mark.req("ADP-19")
async def test_where_there_is_nothing_that_is_the_answer(bench: Bench) -> None:
    found = await bench.resolver.resolve(bench.url("/"))
    assert (found.outcome, found.code, found.level) == ("not_found", "no_agent", "unverified")
    assert "failed" not in states(found.verdicts).values()


@pytest.mark.req("ADP-23")
async def test_a_document_of_another_protocol_version_is_refused(bench: Bench) -> None:
    bench.publish()
    bench.web.put("/.well-known/agent.json", {**bench.alice.document(), "protocol": "ADP/9.0"})
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "invalid_document", "unverified")


@pytest.mark.req("ADP-22")
async def test_a_document_of_an_unusual_type_is_read_with_a_warning(bench: Bench) -> None:
    bench.publish()
    bench.web.put("/.well-known/agent.json", bench.alice.document(), kind="text/html")
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "key-verified"
    assert any("ADP-22" in warning for warning in found.warnings)


@pytest.mark.req("ADP-31")
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("max-age=60", 60),
        ("public, max-age=7", 7),
        ("no-store", 0),
        ("no-cache", 0),
        ("", 3600),
        ("max-age=99999999", 86400),
    ],
)
async def test_a_resolution_is_cached_as_long_as_its_document_and_records(
    bench: Bench, header: str, seconds: int
) -> None:
    bench.publish()
    bench.zones.set(bench.domain, "SVCB", f"1 . alpn=a2a port={bench.web.port}", ttl=90_000)
    url = bench.url("/.well-known/agent.json")
    bench.zones.set(f"_agent.{bench.domain}", "TXT", bench.alice.txt(url), ttl=90_000)
    bench.web.put("/.well-known/agent.json", bench.alice.document(), Cache_Control=header)
    found = await bench.resolver.resolve(bench.domain)
    assert found.ttl_seconds == seconds
    again = await bench.resolver.resolve(bench.domain)
    assert again.remembered == (seconds > 0)
    assert len(bench.web.requests) == (1 if seconds else 2)
    assert not (await bench.resolver.resolve(bench.domain, fresh=True)).remembered


@pytest.mark.req("ADP-30", "ADP-48")
async def test_dns_claims_in_a_document_raise_no_trust_level(bench: Bench) -> None:
    claims = {"svcbVerified": True, "dnssecSigned": True, "dane": {"supported": True}}
    bench.web.put("/.well-known/agent.json", {**bench.alice.document(), "dns": claims})
    found = await bench.resolver.resolve(bench.url("/"))
    assert found.level == "unverified"
    assert "passed" not in states(found.verdicts).values()


@pytest.mark.req("ADP-57")
async def test_the_fallback_of_version_one_is_understood(bench: Bench) -> None:
    bench.publish()
    bench.zones.remove(bench.domain, "SVCB")
    url = bench.url("/.well-known/agent.json")
    bench.zones.set(f"_agent.{bench.domain}", "TXT", bench.alice.txt(url).replace("ADP1.1", "ADP1"))
    bench.web.put("/.well-known/agent.json", {**bench.alice.document(), "protocol": "ADP/1.0"})
    assert (await bench.resolver.resolve(bench.domain)).level == "key-verified"


@pytest.mark.req("ADP-19", "ADP-48")
async def test_all_of_the_ladder_takes_two_rounds_of_questions(bench: Bench) -> None:
    bench.publish()
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "key-verified"
    assert (found.cost.queries, found.cost.round_trips, found.cost.fetches) == (3, 2, 1)
    assert [each.name for each in found.steps] == ["svcb", "txt", "tlsa", "document", "identity", "key"]
