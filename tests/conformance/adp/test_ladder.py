"""The trust ladder: each rung from what was found, and from nothing that a document says of itself."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from support.certificates import Authority
from support.fake_dns import Identity, site, states
from support.resolve_fixtures import Bench
from waypost.model.verdict import Verdict
from waypost.protocols.dns_rdata import tlsa_of

MALLORY = bytes(32)


def rung(found: Any, name: str) -> Verdict:
    verdict = found.find_verdict(name)
    assert verdict is not None
    return verdict


@pytest.mark.req("ADP-48", "ADP-51", "ADP-9", "ADP-10")
async def test_every_rung_is_reached_with_its_evidence(bench: Bench) -> None:
    bench.publish()
    found = await bench.resolver.resolve(bench.domain)
    assert states(found.verdicts) == {
        "dns-verified": "passed",
        "dane-verified": "passed",
        "key-verified": "passed",
        "peer-verified": "not_checked",
    }
    assert rung(found, "dns-verified").evidence["dnssec"] == "secure"
    assert rung(found, "dane-verified").evidence["tlsa"].startswith("3 1 1 ")
    assert rung(found, "dane-verified").evidence["tls"] == "TLSv1.3"
    assert rung(found, "key-verified").evidence["fingerprint"] == bench.alice.fingerprint
    assert all(verdict.at for verdict in found.verdicts)
    assert found.key is not None
    assert found.key.public_key == bench.alice.pem


# --- The key --------------------------------------------------------------------------------------


@pytest.mark.req("ADP-51", "ADP-26")
@pytest.mark.parametrize("stated", ["own", "pinned"])
async def test_another_key_than_the_dns_names_is_not_trusted_at_all(bench: Bench, stated: str) -> None:
    bench.publish()
    mallory = Identity(bench.domain, MALLORY)
    document = mallory.document()
    if stated == "pinned":
        document["identity"]["publicKey"]["fingerprint"] = bench.alice.fingerprint
    bench.web.put("/.well-known/agent.json", document)
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "key_mismatch", "unverified")
    assert states(found.verdicts)["key-verified"] == "failed"
    assert states(found.verdicts)["dane-verified"] == "passed"
    assert found.key is None or not found.key.public_key


@pytest.mark.req("ADP-48")
async def test_without_a_fingerprint_the_key_is_unpinned_and_not_wrong(bench: Bench) -> None:
    bench.publish(txt=False)
    found = await bench.resolver.resolve(bench.domain)
    verdict = rung(found, "key-verified")
    assert (found.outcome, found.level) == ("resolved", "dane-verified")
    assert (verdict.state, verdict.evidence["code"]) == ("unknown", "unpinned")


@pytest.mark.req("ADP-51")
async def test_a_fingerprint_in_svcb_is_a_pin_too_and_must_not_contradict(bench: Bench) -> None:
    bench.publish(txt=False, params=f'key65410="{bench.alice.fingerprint}"')
    assert (await bench.resolver.resolve(bench.domain)).level == "key-verified"
    mallory = Identity(bench.domain, MALLORY)
    bench.publish(params=f'key65410="{mallory.fingerprint}"')
    found = await bench.resolver.resolve(bench.domain, fresh=True)
    assert (found.outcome, found.code) == ("failed", "key_conflict")


@pytest.mark.req("ADP-48")
async def test_a_text_record_that_cannot_be_looked_up_leaves_the_key_unknown(bench: Bench) -> None:
    bench.publish()
    bench.zones.fail(f"_agent.{bench.domain}", "TXT")
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "dane-verified"
    assert states(found.verdicts)["key-verified"] == "unknown"


@pytest.mark.req("ADP-16", "ADP-51")
async def test_text_records_that_contradict_each_other_are_refused(bench: Bench) -> None:
    bench.publish()
    url = bench.url("/.well-known/agent.json")
    bench.zones.set(f"_agent.{bench.domain}", "TXT", bench.alice.txt(url), Identity(bench.domain, MALLORY).txt(url))
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "ambiguous", "unverified")


@pytest.mark.req("ADP-51")
async def test_a_document_without_a_full_key_proves_none(bench: Bench) -> None:
    bench.publish()
    document = bench.alice.document()
    del document["identity"]["publicKey"]["full"]
    bench.web.put("/.well-known/agent.json", document)
    found = await bench.resolver.resolve(bench.domain)
    assert states(found.verdicts)["key-verified"] == "unknown"
    document["identity"]["publicKey"]["fingerprint"] = Identity(bench.domain, MALLORY).fingerprint
    bench.web.put("/.well-known/agent.json", document)
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).code == "key_mismatch"


@pytest.mark.req("ADP-26")
@pytest.mark.parametrize("full", ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "A" * 43])
async def test_a_key_that_is_none_fails(bench: Bench, full: str) -> None:
    bench.publish()
    document = bench.alice.document()
    document["identity"]["publicKey"]["full"] = full
    bench.web.put("/.well-known/agent.json", document)
    found = await bench.resolver.resolve(bench.domain)
    assert found.outcome == "failed"
    assert found.level == "unverified"


# --- DANE -----------------------------------------------------------------------------------------


@pytest.mark.req("ADP-12", "ADP-54")
async def test_a_certificate_without_a_matching_tlsa_record_ends_the_connection_before_a_request(
    bench: Bench, authority: Authority
) -> None:
    bench.publish()
    other = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    bench.zones.set(bench.tlsa_name, "TLSA", str(tlsa_of(other)))
    found = await bench.resolver.resolve(bench.domain)
    assert (found.outcome, found.code, found.level) == ("failed", "dane_mismatch", "unverified")
    assert states(found.verdicts)["dane-verified"] == "failed"
    assert bench.web.connections == 1
    assert bench.web.requests == []


@pytest.mark.req("ADP-11", "ADP-13", "AID-21")
@pytest.mark.parametrize("security", ["insecure", "indeterminate"])
async def test_an_unsigned_record_proves_nothing_whether_it_matches_or_not(
    bench: Bench, authority: Authority, security: Any
) -> None:
    bench.publish()
    other = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    for certificate in (bench.certificate, other):
        bench.zones.set(bench.tlsa_name, "TLSA", str(tlsa_of(certificate)), security=security)
        found = await bench.resolver.resolve(bench.domain, fresh=True)
        assert found.level == "key-verified"
        assert states(found.verdicts)["dane-verified"] == "unknown"


@pytest.mark.req("AID-24")
async def test_several_records_pass_when_one_matches_as_in_a_rollover(bench: Bench, authority: Authority) -> None:
    bench.publish()
    other = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    records = [str(tlsa_of(other)), "9 9 9 abcd", str(tlsa_of(bench.certificate, selector=0, matching=2))]
    bench.zones.set(bench.tlsa_name, "TLSA", *records)
    found = await bench.resolver.resolve(bench.domain)
    assert states(found.verdicts)["dane-verified"] == "passed"


@pytest.mark.req("AID-24")
async def test_records_that_cannot_be_used_are_neither_a_pass_nor_an_absence(
    bench: Bench, authority: Authority
) -> None:
    bench.publish()
    bench.zones.set(bench.tlsa_name, "TLSA", "9 9 9 abcd", "3 2 0 abcd")
    found = await bench.resolver.resolve(bench.domain)
    verdict = rung(found, "dane-verified")
    assert (verdict.state, verdict.evidence["code"]) == ("unknown", "tlsa_unusable")
    other = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    bench.zones.set(bench.tlsa_name, "TLSA", "9 9 9 abcd", str(tlsa_of(other)))
    assert (await bench.resolver.resolve(bench.domain, fresh=True)).code == "dane_mismatch"


@pytest.mark.req("ADP-9", "AID-19", "AID-20")
async def test_without_a_record_dane_is_not_checked(bench: Bench) -> None:
    bench.publish(tlsa=False)
    found = await bench.resolver.resolve(bench.domain)
    assert found.level == "key-verified"
    assert states(found.verdicts)["dane-verified"] == "not_checked"


@pytest.mark.req("AID-22")
@pytest.mark.parametrize(
    ("leading", "security", "state"),
    [
        ("secure", "indeterminate", "failed"),
        ("secure", "bogus", "failed"),
        ("insecure", "bogus", "failed"),
        ("insecure", "indeterminate", "unknown"),
    ],
)
async def test_a_record_that_cannot_be_had_ends_the_way_where_the_domain_is_signed(
    bench: Bench, leading: Any, security: Any, state: str
) -> None:
    bench.zones.security = leading
    bench.publish()
    bench.zones.fail(bench.tlsa_name, "TLSA", security)
    found = await bench.resolver.resolve(bench.domain)
    assert states(found.verdicts)["dane-verified"] == state
    assert bench.web.requests == ([] if state == "failed" else [bench.url("/.well-known/agent.json")])


@pytest.mark.req("ADP-13")
async def test_a_signed_record_of_a_host_proves_nothing_when_an_unsigned_one_led_there(bench: Bench) -> None:
    bench.zones.security = "insecure"
    bench.publish(target="host.provider.net.", tlsa=False)
    name = f"_{bench.web.port}._tcp.host.provider.net"
    bench.zones.set(name, "TLSA", str(tlsa_of(bench.certificate)), security="secure")
    found = await bench.resolver.resolve(bench.domain)
    verdict = rung(found, "dane-verified")
    assert (verdict.state, verdict.evidence["code"]) == ("unknown", "leading_insecure")


@pytest.mark.req("ADP-53", "ADP-54")
async def test_a_certificate_of_no_authority_is_not_accepted_although_a_record_names_it(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"))
    files = stranger.server_files(*Bench.hosts)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    async with site(context) as web:
        bench.web = web
        bench.certificate = ssl.PEM_cert_to_DER_cert(files[0].read_text())
        bench.publish()
        found = await bench.resolver.resolve(bench.domain)
        assert (found.outcome, found.code) == ("failed", "tls")
        assert web.requests == []
        assert found.level == "dns-verified"


@pytest.mark.req("ADP-52")
async def test_a_server_without_tls_1_3_is_refused(bench: Bench, certificate_files: Any) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate_files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with site(context) as web:
        bench.web = web
        bench.publish()
        found = await bench.resolver.resolve(bench.domain)
        assert found.code == "tls"
        assert web.requests == []
