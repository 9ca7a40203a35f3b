"""Trust anchors in the formats of other validators."""

from __future__ import annotations

import dns.name
import pytest

from support.signed_zones import key
from waypost.errors import ConfigurationError
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors, parse_domains

DIGEST = "0D6FCE3BD04F5D76ED2A6D21FD0D36A0E0E19D0F1FF0BFA5EA5C0EA72E24B0FA"
KEY = key(13, "anchor")
DNSKEY = KEY.record.to_text().replace(" ", "!", 3).replace(" ", "").replace("!", " ")
MATERIAL = DNSKEY.split()[3]


@pytest.mark.parametrize(
    "text",
    [
        f"agent.test. IN DS 12345 13 2 {DIGEST}",
        f"; of today\nagent.test. 3600 IN DS 12345 13 2 {DIGEST} ; the key of 2026\n\n",
        f"Agent.Test 3600 DS 12345 13 2 {DIGEST[:20]} {DIGEST[20:]}",
        f"agent.test. IN DS (\n 12345 13 2\n {DIGEST[:32]}\n {DIGEST[32:]} )\n",
        f'trust-anchors {{ agent.test. static-ds 12345 13 2 "{DIGEST}"; }};',
        f'/* BIND */ trust-anchors {{\n # one\n "agent.test." initial-ds 12345 13 2 "{DIGEST[:20]}\n{DIGEST[20:]}"; // it\n}};',
    ],
)
def test_a_ds_record_is_read_however_it_is_written(text: str) -> None:
    [(name, row)] = parse_anchors(text)
    assert name == dns.name.from_text("agent.test.")
    assert (row.key_tag, int(row.algorithm), row.digest_type, row.digest.hex().upper()) == (12345, 13, 2, DIGEST)


@pytest.mark.parametrize(
    "text",
    [
        f"agent.test. IN DNSKEY {DNSKEY}",
        f"$TTL 1h\nagent.test. 1h IN DNSKEY {DNSKEY}\nagent.test. 1h IN RRSIG DNSKEY 13 2 3600 1 1 1 agent.test. AAAA\n",
        f"agent.test. 172800 IN DNSKEY 257 3 13 {MATERIAL[:30]} {MATERIAL[30:]} ;{{id = 1 (ksk), size = 256b}}",
        f'trust-anchors {{ agent.test. initial-key 257 3 13 "{MATERIAL}"; }};',
        f'managed-keys {{ agent.test. initial-key 257 3 13 "{MATERIAL[:10]} {MATERIAL[10:]}"; }};',
        f'trusted-keys {{ agent.test. 257 3 13 "{MATERIAL}"; }};',
    ],
    ids=["plain", "as dig writes it", "commented", "bind", "managed", "trusted"],
)
def test_a_dnskey_anchor_becomes_its_ds_record(text: str) -> None:
    [(_, row)] = parse_anchors(text)
    assert row.to_text() == KEY.ds("agent.test.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "; nothing\n",
        "agent.test. IN A 192.0.2.1",
        "agent.test. IN DS 12345 13 2 xyz",
        "agent.test. IN DS 12345",
        f"a..b IN DS 12345 13 2 {DIGEST}",
        f"agent.test. IN DNSKEY 0 3 13 {MATERIAL}",  # no key of a zone
        "trust-anchors { };",
        "trust-anchors { agent.test. static-ds; };",
    ],
    ids=["empty", "comment", "address", "no digest", "short", "no name", "no key of a zone", "none", "nothing of it"],
)
def test_a_text_without_a_trust_anchor_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse_anchors(text)
    assert refusal.value.path == "trust_anchors"


def test_both_keys_of_the_root_are_built_in_and_a_file_may_replace_them() -> None:
    built_in = TrustAnchors()
    assert [row.key_tag for row in built_in.records(dns.name.root)] == [20326, 38696]
    assert not built_in.is_required(dns.name.root)
    own = TrustAnchors(parse_anchors(f". IN DS 1 13 2 {DIGEST}"))
    assert [row.key_tag for row in own.records(dns.name.root)] == [1]
    assert own.is_required(dns.name.root)


def test_a_chain_begins_at_the_closest_anchor_above() -> None:
    anchors = TrustAnchors(parse_anchors(f"test. DS 1 13 2 {DIGEST}\nagent.test. DS 2 13 2 {DIGEST}"))
    for name, above in (
        ("www.agent.test", "agent.test."),
        ("agent.test", "agent.test."),
        ("x.test", "test."),
        ("x", "."),
    ):
        assert anchors.above(dns.name.from_text(name)) == dns.name.from_text(above)
    assert TrustAnchors(root=False).above(dns.name.from_text("x")) is None


def test_a_domain_that_is_named_as_not_signed_has_no_anchor_unless_one_is_closer() -> None:
    unsigned = parse_domains(["Corp.Test"], "insecure_domains")
    anchors = TrustAnchors(parse_anchors(f"lab.corp.test. DS 1 13 2 {DIGEST}"), unsigned=unsigned)
    for name, above in (
        ("www.corp.test", None),
        ("www.lab.corp.test", "lab.corp.test."),
        ("test", "."),
        ("a.internal", None),
    ):
        assert anchors.above(dns.name.from_text(name)) == (None if above is None else dns.name.from_text(above))
    with pytest.raises(ConfigurationError) as refusal:
        parse_domains(["a..b"], "insecure_domains")
    assert refusal.value.path == "insecure_domains"
