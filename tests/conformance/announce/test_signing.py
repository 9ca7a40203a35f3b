"""How announcements are signed and verified (announce.md §3, §12)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512

from support.signing import KINDS, NOW, agent, key_of, seed_key
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.announce.signed_announcement import parse_signed_announcement, sign_announcement
from waypost.trust.checks.announce import check_announcement
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.document_signatures import canonicalize, canonicalize_legacy
from waypost.trust.encodings import decode_base64, encode_base64, encode_base64url
from waypost.trust.keys.private_key import PrivateKey

PEM = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n-----END PUBLIC KEY-----\n"
VECTOR: JsonObject = {
    "protocol_version": "v1.0",
    "agent": agent(public_key=PEM),
    "signature": "5jUJeYTRjZZyF54EU5JglomZ1YuFu56nqxXuafPArPoIaQHmOXqSxmhPSk58sQH3MSWUpFFucw50Yy3Mo1TvDA==",
}


def bound(*keys: PrivateKey) -> tuple[BoundKey, ...]:
    return tuple(BoundKey(key.public, "pin") for key in keys)


def verdict(message: JsonObject, *keys: PrivateKey, **more: Any) -> Verdict:
    [found] = check_announcement(message, bound(*keys), NOW, **more)
    return found


def with_signature(message: JsonObject, signature: bytes) -> JsonObject:
    return {**message, "signature": encode_base64(signature)}


@pytest.mark.req("ANN-10", "ANN-11")
def test_the_vector_has_its_canonical_bytes_its_digest_and_its_signature() -> None:
    covered = canonicalize(VECTOR["agent"])
    assert len(covered) == 350
    assert hashlib.sha256(covered).hexdigest() == "1286e784cc2f12ac935a11f61658f40365c12eae5b2d8f862022d13778577300"
    signed = sign_announcement(VECTOR["agent"], seed_key())
    assert signed["signature"] == VECTOR["signature"]
    found = verdict(VECTOR, seed_key())
    assert found.state == "passed"
    assert found.evidence == {
        "key_id": "sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5",
        "algorithm": "ed25519",
        "canon": "jcs",
        "covers": "agent",
        "bound_by": "pin",
    }


@pytest.mark.req("ANN-3")
@pytest.mark.parametrize(
    "changed",
    [
        {"agent_id": "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1e"},
        {"agent_name": "data-processor2"},
        {"capabilities": {"metrics": "2.1"}},
        {"transport": {"type": "tcp", "endpoint": "10.0.0.66:9000"}},
        {"metadata": {"__os": "linux", "load": 2, "note": "é"}},
        {"metadata": {"__os": "linux", "load": 1.0, "note": "e\u0301"}},
        {"extra": 1},
    ],
)
def test_an_agent_that_is_not_the_signed_one_fails(changed: JsonObject) -> None:
    message = {**VECTOR, "agent": {**VECTOR["agent"], **changed}}
    assert verdict(message, seed_key()).state == "failed"
    assert verdict(message).state == "failed"


@pytest.mark.req("ANN-3", "ANN-4")
def test_unknown_members_are_signed() -> None:
    message = sign_announcement(agent(vendor={"a": [1, None, "x"]}), key_of())
    assert verdict(message, key_of()).state == "passed"
    del message["agent"]["vendor"]
    assert verdict(message, key_of()).state == "failed"


@pytest.mark.req("ANN-3")
def test_a_signature_proves_nothing_when_nothing_binds_its_key() -> None:
    found = verdict(sign_announcement(agent(), key_of()))
    assert (found.state, found.reason) == ("unknown", "signed by a key that nothing binds to this agent")
    assert found.evidence["key_id"] == key_of().public.key_id
    assert verdict({"agent": agent()}).state == "not_checked"
    unnamed = {**sign_announcement(agent(), key_of()), "agent": agent()}
    assert verdict(unnamed).state == "unknown"


@pytest.mark.req("ANN-3")
def test_the_bound_key_verifies_and_never_the_one_in_the_message() -> None:
    """C4."""
    message = sign_announcement(agent(), key_of(number=2))
    found = verdict(message, key_of(number=1))
    assert (found.state, found.reason) == ("failed", "signed by another key than the one bound to this agent")


@pytest.mark.req("ANN-3")
def test_of_several_bound_keys_the_one_in_the_message_must_have_signed() -> None:
    """During a rotation two keys are bound; a signature with one does not replace that with the other."""
    one, two = key_of(number=1), key_of(number=2)
    assert verdict(sign_announcement(agent(), one), one, two).state == "passed"
    message = sign_announcement(agent(), one)
    swapped = with_signature(message, two.sign(canonicalize(message["agent"])))
    assert verdict(swapped, one, two).state == "failed"
    unnamed = with_signature({"agent": agent()}, two.sign(canonicalize(agent())))
    assert verdict(unnamed, one, two).state == "passed"


@pytest.mark.req("ANN-10")
def test_ttl_timestamp_and_version_are_outside_the_signature() -> None:
    message = {**sign_announcement(agent(), key_of()), "ttl": 60, "timestamp": 5, "protocol_version": "v1.1"}
    assert verdict(message, key_of()).state == "passed"


@pytest.mark.req("ANN-12")
@pytest.mark.parametrize("kind", KINDS)
def test_every_accepted_kind_of_key_signs_in_its_own_way(kind: str) -> None:
    message = sign_announcement(agent(), key_of(kind))
    emitted = {
        "ed25519": "ed25519",
        "p-256": "ecdsa-sha256",
        "p-384": "ecdsa-sha384",
        "p-521": "ecdsa-sha512",
        "rsa": "rsa-pss-sha256",
    }
    found = verdict(message, key_of(kind))
    assert (found.state, found.evidence["algorithm"]) == ("passed", emitted[kind])


@pytest.mark.req("ANN-12")
@pytest.mark.parametrize("kind", ["p-256", "p-384", "p-521"])
def test_ecdsa_is_read_raw_and_over_sha_256(kind: str) -> None:
    key = key_of(kind)
    assert isinstance(key.native, ec.EllipticCurvePrivateKey)
    message = sign_announcement(agent(), key)
    covered = canonicalize(message["agent"])
    raw = verdict(with_signature(message, key.sign_jose(covered)), key)
    assert str(raw.evidence["algorithm"]).endswith("-raw")
    shorter = verdict(with_signature(message, key.native.sign(covered, ec.ECDSA(SHA256()))), key)
    assert shorter.evidence["algorithm"] == "ecdsa-sha256"
    for digest in (SHA1(), SHA512() if kind != "p-521" else SHA1()):
        refused = with_signature(message, key.native.sign(covered, ec.ECDSA(digest)))
        assert verdict(refused, key).state == "failed"


@pytest.mark.req("ANN-12")
@pytest.mark.parametrize("salt", [0, 20, 32, 222])
def test_rsa_is_read_with_any_salt_and_in_its_older_form(salt: int) -> None:
    key = key_of("rsa")
    assert isinstance(key.native, rsa.RSAPrivateKey)
    message = sign_announcement(agent(), key)
    covered = canonicalize(message["agent"])
    pss = key.native.sign(covered, padding.PSS(padding.MGF1(SHA256()), salt), SHA256())
    assert verdict(with_signature(message, pss), key).evidence["algorithm"] == "rsa-pss-sha256"
    older = key.native.sign(covered, padding.PKCS1v15(), SHA256())
    assert verdict(with_signature(message, older), key).evidence["algorithm"] == "rsa-pkcs1-sha256"
    for refused in (
        key.native.sign(covered, padding.PKCS1v15(), SHA512()),
        key.native.sign(covered, padding.PKCS1v15(), SHA1()),
        key.native.sign(covered, padding.PSS(padding.MGF1(SHA512()), 32), SHA512()),
    ):
        assert verdict(with_signature(message, refused), key).state == "failed"


@pytest.mark.req("ANN-12")
def test_a_message_cannot_choose_how_it_is_verified() -> None:
    """C8, C9: members that name algorithms or versions have no effect."""
    message = sign_announcement(agent(metadata={"alg": "none"}), key_of())
    forged = {**message, "algorithm": "none", "alg": "HS256", "protocol_version": "v1.1", "signature": ""}
    assert verdict(forged, key_of()).state == "failed"
    assert verdict({**message, "algorithm": "none"}, key_of()).state == "passed"


@pytest.mark.req("ANN-12")
def test_a_signature_is_read_in_every_alphabet_that_is_allowed_and_in_no_other_form() -> None:
    raw = decode_base64(VECTOR["signature"])
    for text in (
        encode_base64(raw),
        encode_base64(raw).rstrip("="),
        encode_base64url(raw),
        encode_base64url(raw) + "==",
    ):
        assert verdict({**VECTOR, "signature": text}, seed_key()).state == "passed"
    for wrong in (
        encode_base64(raw) + "=",
        encode_base64(raw) + "\n",
        " " + encode_base64(raw),
        7,
        "é",
        ["x"],
    ):
        with pytest.raises(InvalidDocument) as refused:
            parse_signed_announcement({**VECTOR, "signature": wrong})
        assert refused.value.path == "$.signature"
        assert verdict({**VECTOR, "signature": wrong}, seed_key()).state == "failed"
    assert verdict({**VECTOR, "signature": raw.hex()}, seed_key()).state == "failed"


@pytest.mark.req("ANN-12")
def test_a_key_of_small_order_is_refused() -> None:
    """C7: with this key, one constant signature would be valid for every message."""
    weak = bytes.fromhex("302a300506032b6570032100") + b"\1" + bytes(31)
    message = {"agent": agent(public_key=encode_base64(weak)), "signature": encode_base64(b"\1" + bytes(63))}
    found = verdict(message)
    assert (found.state, "small order" in found.reason) == ("failed", True)


@pytest.mark.req("ANN-10")
def test_the_older_canonical_form_counts_only_where_it_is_allowed() -> None:
    older = canonicalize_legacy(VECTOR["agent"])
    assert len(older) == 356
    assert hashlib.sha256(older).hexdigest() == "3a92601e807664012f1f557ccac214b3c0f4f3434b1c56c767fe4055f7532b5d"
    message = with_signature(VECTOR, seed_key().sign(older))
    assert verdict(message, seed_key()).state == "failed"
    found = verdict(message, seed_key(), legacy=True)
    assert (found.state, found.evidence["canon"]) == ("passed", "legacy")
    changed = {**message, "agent": {**message["agent"], "metadata": {"__os": "linux", "load": 1, "note": "é"}}}
    assert verdict(changed, seed_key(), legacy=True).state == "failed"


@pytest.mark.req("ANN-10")
def test_a_new_key_is_signed_by_the_previous_key() -> None:
    old, new, other = key_of(number=1), key_of(number=2), key_of(number=3)
    found = verdict(sign_announcement(agent(), new, old), old)
    assert found.state == "passed"
    assert found.evidence["key_id"] == new.public.key_id
    assert found.evidence["rotated_from"] == old.public.key_id
    assert verdict(sign_announcement(agent(), new, other), old).state == "failed"
    assert verdict(sign_announcement(agent(), new), old).state == "failed"
    stolen = {
        **sign_announcement(agent(), other),
        "previous_signature": sign_announcement(agent(), new, old)["previous_signature"],
    }
    assert verdict(stolen, old).state == "failed"
