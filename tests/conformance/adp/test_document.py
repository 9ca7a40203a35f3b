"""The metadata document of `/.well-known/agent.json` as the codec reads and writes it (adp.md §4, §10; neighbours.md §5)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.records import BASE, DECODE, ENCODE
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import AgentRecord, Binding
from waypost.protocols.adp.codec import ADP, find_raw_key, key_fingerprint
from waypost.protocols.codec import CARRY
from waypost.protocols.dialects import detect_dialect

MINIMAL, FULL = ADP.examples()
KEY = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
FINGERPRINT = "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
GONE = object()


def changed(path: str, value: Any, document: JsonObject = FULL) -> JsonObject:
    """The document with one member set or taken away."""
    document = copy.deepcopy(document)
    *parents, name = path.split(".")
    part: Any = document
    for parent in parents:
        part = part[int(parent)] if parent.isdigit() else part[parent]
    if value is GONE:
        del part[name]
    else:
        part[name] = value
    return document


def path_of_refusal(document: JsonObject) -> str | None:
    with pytest.raises(InvalidDocument) as refused:
        ADP.decode(document, DECODE)
    return refused.value.path


@pytest.mark.req("ADP-23")
@pytest.mark.parametrize("protocol", ["ADP/2.0", "ADP", "adp/1.1", "ADP/1.1 ", "", None, 1.1])
def test_the_protocol_is_checked_before_anything_else(protocol: Any) -> None:
    broken = {**changed("protocol", protocol), "identity": "nonsense", "endpoints": 7}
    assert path_of_refusal(broken) == "$.protocol"


@pytest.mark.req("ADP-57")
def test_metadata_of_version_1_0_is_read_and_stays_so() -> None:
    document = changed("protocol", "ADP/1.0")
    assert ADP.encode(ADP.decode(document, DECODE).record, ENCODE).document == document


@pytest.mark.req("ADP-23")
def test_unknown_members_are_ignored_and_kept_at_every_level() -> None:
    document = copy.deepcopy(FULL)
    document["x-top"] = {"a": [1]}
    document["$schema"] = "https://adp.example/schema.json"
    document["identity"]["x-identity"] = 1
    document["identity"]["publicKey"]["x-key"] = True
    document["endpoints"]["x-endpoint"] = {"not": "a string"}
    document["capabilities"][0]["x-capability"] = None
    document["security"]["x-security"] = []
    document["meta"]["x-meta"] = "m"
    document["availability"]["x-availability"] = 0
    assert ADP.encode(ADP.decode(document, DECODE).record, ENCODE).document == document


@pytest.mark.req("ADP-24")
@pytest.mark.parametrize("name", ["protocol", "identity", "endpoints", "capabilities"])
def test_a_required_member_that_is_missing_is_named(name: str) -> None:
    assert path_of_refusal(changed(name, GONE)) == f"$.{name}"


@pytest.mark.req("ADP-24")
def test_the_other_members_are_optional() -> None:
    decoded = ADP.decode(MINIMAL, DECODE)
    assert ADP.encode(decoded.record, ENCODE).document == MINIMAL
    for name in ("security", "policies", "availability", "meta", "dns", "relationships"):
        assert ADP.decode(changed(name, GONE), DECODE)


@pytest.mark.req("ADP-25")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("identity.id", GONE),
        ("identity.id", "agent:mallory.example.com"),
        ("identity.id", "alice.example.com"),
        ("identity.domain", GONE),
        ("identity.domain", "alice example.com"),
        ("identity.domain", "alice.example.com/x"),
        ("identity.name", GONE),
        ("identity.name", ""),
        ("identity.publicKey", "ed25519:x"),
    ],
)
def test_a_wrong_identity_is_named_by_its_path(path: str, value: Any) -> None:
    assert path_of_refusal(changed(path, value)) == f"$.{path}"


@pytest.mark.req("ADP-25")
def test_domains_are_compared_without_case_and_come_back_as_written() -> None:
    document = changed("identity.domain", "Alice.Example.com")
    decoded = ADP.decode(document, DECODE)
    assert decoded.record.id == "agent:alice.example.com"
    assert ADP.encode(decoded.record, ENCODE).document == document


@pytest.mark.req("ADP-25")
def test_an_agent_that_shows_no_key_is_read_with_a_warning() -> None:
    decoded = ADP.decode(changed("identity.publicKey", GONE), DECODE)
    assert any("$.identity.publicKey" in warning for warning in decoded.warnings)
    assert decoded.record.signature is None


@pytest.mark.req("ADP-26")
@pytest.mark.parametrize(
    "full",
    [
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n-----END PUBLIC KEY-----\n",
        "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",
        "MCowBQYDK2VwAyEAA6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg",
    ],
)
def test_a_full_key_is_read_in_its_three_spellings(full: str) -> None:
    assert find_raw_key(full) == KEY
    assert key_fingerprint(KEY) == FINGERPRINT
    document = changed("identity.publicKey.full", full, MINIMAL)
    assert not any("publicKey" in warning for warning in ADP.decode(document, DECODE).warnings)


@pytest.mark.req("ADP-26")
def test_the_drafts_own_fingerprint_is_read_and_doubted() -> None:
    decoded = ADP.decode(FULL, DECODE)
    assert decoded.record.signature == {
        "type": "adp-ed25519",
        "fingerprint": "ed25519:dGhpcyBpcyBhIHRlc3QgcHVibGljIGtleQ",
    }
    assert sum("$.identity.publicKey.fingerprint" in warning for warning in decoded.warnings) == 2


@pytest.mark.req("ADP-26")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("identity.publicKey.algorithm", "rsa"),
        ("identity.publicKey.algorithm", GONE),
        ("identity.publicKey.fingerprint", GONE),
        ("identity.publicKey.fingerprint", 7),
        ("identity.publicKey.full", []),
    ],
)
def test_a_wrong_key_is_named_by_its_path(path: str, value: Any) -> None:
    assert path_of_refusal(changed(path, value)) == f"$.{path}"


@pytest.mark.req("ADP-26")
def test_a_key_that_is_no_key_is_warned_of() -> None:
    decoded = ADP.decode(changed("identity.publicKey.full", "not a key", MINIMAL), DECODE)
    assert any("$.identity.publicKey.full" in warning for warning in decoded.warnings)


@pytest.mark.req("ADP-27")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("endpoints.wellKnown", GONE),
        ("endpoints.wellKnown", 7),
        ("endpoints.chat", "wss://a b"),
        ("endpoints.tasks", ["https://alice.example.com/agent/tasks"]),
    ],
)
def test_a_wrong_endpoint_is_named_by_its_path(path: str, value: Any) -> None:
    assert path_of_refusal(changed(path, value)) == f"$.{path}"


@pytest.mark.req("ADP-27", "MAP-5")
def test_the_chat_endpoint_uses_agp_and_the_others_https() -> None:
    bindings = ADP.decode(FULL, DECODE).record.bindings
    assert [(binding.protocol, binding.endpoint) for binding in bindings] == [
        ("agp", "wss://alice.example.com/agent/chat"),
        ("https", "https://alice.example.com/agent/tasks"),
        ("https", "https://alice.example.com/agent/swarm/join"),
    ]
    (only,) = ADP.decode(MINIMAL, DECODE).record.bindings
    assert (only.protocol, only.endpoint) == ("adp", "https://alice.example.com/.well-known/agent.json")


@pytest.mark.req("ADP-28", "MAP-5")
def test_capabilities_give_tags_and_the_description() -> None:
    record = ADP.decode(FULL, DECODE).record
    assert record.tags == ("chat", "code-review", "lang-en", "lang-zh-cn")
    assert record.description == "Talks about the owner's calendar. Reviews patches."
    assert ADP.decode(MINIMAL, DECODE).record.description == "Agent offering Conversational Chat"


@pytest.mark.req("ADP-28")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("capabilities", {}),
        ("capabilities.0.id", GONE),
        ("capabilities.0.description", 1),
        ("capabilities.1.input", "text"),
        ("capabilities.0.languages", [1]),
        ("capabilities.0.pricing", "free"),
    ],
)
def test_a_wrong_capability_is_named_by_its_path(path: str, value: Any) -> None:
    told = path_of_refusal(changed(path, value)) or ""
    assert told.replace("[", ".").replace("]", "").startswith(f"$.{path}")


@pytest.mark.req("ADP-29", "MAP-5")
def test_security_and_policies_give_authentication_and_constraints() -> None:
    record = ADP.decode(FULL, DECODE).record
    assert record.auth == {"schemes": [{"type": "pubkey"}, {"type": "bearer_token"}]}
    assert record.constraints == {
        "rateLimit": {"requestsPerMinute": 60, "burstSize": 10},
        "pricing": {"chat": {"model": "free"}, "code-review": {"model": "per_use", "details": "0.10 USD"}},
        "policies": {"privacy": "https://alice.example.com/privacy", "dataRetention": "30d"},
    }


@pytest.mark.req("ADP-29")
def test_tls_may_not_be_waived_and_dane_is_accepted() -> None:
    assert path_of_refusal(changed("security.tlsRequired", False)) == "$.security.tlsRequired"
    assert path_of_refusal(changed("security.authMethods", "pubkey")) == "$.security.authMethods"
    assert ADP.decode(changed("security.authMethods", ["dane"]), DECODE).record.auth == {"schemes": [{"type": "dane"}]}


@pytest.mark.req("ADP-30")
@pytest.mark.parametrize(
    "dns", [{"svcbVerified": True, "dnssecSigned": True}, {"svcbRecord": "x", "tlsaRecord": "y", "dnssec": True}]
)
def test_dns_claims_are_stored_in_either_spelling_and_prove_nothing(dns: JsonObject) -> None:
    record = ADP.decode(changed("dns", dns), DECODE).record
    assert record.extra["org.waypost.adp"]["dns"] == dns
    told = (record.tags, record.auth, record.constraints, record.signature)
    assert told == tuple(
        getattr(ADP.decode(changed("dns", GONE), DECODE).record, name)
        for name in ("tags", "auth", "constraints", "signature")
    )


@pytest.mark.req("MAP-5")
@pytest.mark.parametrize(
    ("word", "status"), [("online", "active"), ("maintenance", "suspended"), ("offline", "inactive"), ("busy", None)]
)
def test_availability_gives_the_status(word: str, status: str | None) -> None:
    document = changed("availability.status", word)
    record = ADP.decode(document, DECODE).record
    assert record.status == status
    assert ADP.encode(record, ENCODE).document == document


@pytest.mark.req("MAP-5")
def test_meta_gives_version_and_time_and_a_bare_date_is_only_warned_of() -> None:
    record = ADP.decode(FULL, DECODE).record
    assert (record.version, record.updated_at) == ("1.1.0", "2026-06-18T10:00:00Z")
    dated = ADP.decode(changed("meta.updated", "2026-06-18"), DECODE)
    assert dated.record.updated_at is None
    assert any("$.meta.updated" in warning for warning in dated.warnings)
    assert path_of_refusal(changed("meta.updated", "2036-06-18T10:00:00Z")) == "$.meta.updated"


@pytest.mark.req("ADP-25", "ADP-27")
def test_an_agent_without_a_domain_is_encoded_with_the_host_of_the_service() -> None:
    record = AgentRecord(
        id="weather",
        name="Weather",
        description="Tells the weather.",
        bindings=(Binding(protocol="https", endpoint="https://weather.example/invoke"),),
        tags=("weather", "lang-de"),
    )
    document = ADP.encode(record, ENCODE).document
    assert detect_dialect(document) == "adp"
    assert document["identity"] == {"id": f"agent:{ENCODE.host}", "domain": ENCODE.host, "name": "Weather"}
    assert document["endpoints"] == {"wellKnown": f"{BASE}/api/v1/agents/weather?as=adp"}
    assert document["capabilities"] == [
        {"id": "weather", "name": "weather", "description": "Tells the weather.", "languages": ["de"]}
    ]
    assert document[CARRY]["members"]["id"] == "weather"
    decoded = ADP.decode(document, DECODE)
    assert (decoded.record, decoded.source_id, decoded.aliases) == (record, "weather", ())


@pytest.mark.req("ADP-25")
@pytest.mark.parametrize(
    ("agent_id", "domain"),
    [
        ("agent:alice.example.com", "alice.example.com"),
        ("https://bob.example/agents/1", "bob.example"),
        ("did:web:carol.example:x", "carol.example"),
        ("urn:air:dave.example:agent:x", "dave.example"),
        ("urn:uuid:3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d", ENCODE.host),
    ],
)
def test_the_domain_is_the_one_in_the_id(agent_id: str, domain: str) -> None:
    record = AgentRecord(id=agent_id, name="X", description="x")
    assert ADP.encode(record, ENCODE).document["identity"]["id"] == f"agent:{domain}"
