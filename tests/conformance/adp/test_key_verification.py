"""The key of an ADP document (adp.md §4, §8, C-2…C-4)."""

from __future__ import annotations

from typing import Any

import pytest

from support.signing import NOW, key_of, seed_key
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.trust.checks.adp import check_adp
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.document_signatures import sign_adp_public_key
from waypost.trust.encodings import encode_base64, encode_base64url
from waypost.trust.keys.public_key import PublicKey

DOMAIN = "alice.example.com"
VECTOR = "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"


def document(**members: Any) -> JsonObject:
    key = {**sign_adp_public_key(seed_key(), DOMAIN), **members}
    stated = {name: value for name, value in key.items() if value is not None}
    return {
        "protocol": "ADP/1.1",
        "identity": {"id": f"agent:{DOMAIN}", "domain": DOMAIN, "name": "A", "publicKey": stated},
    }


def verdicts(told: JsonObject, *keys: PublicKey, **more: Any) -> tuple[Verdict, ...]:
    return check_adp(told, [BoundKey(key, "pin") for key in keys], NOW, **more)


def states(told: JsonObject, *keys: PublicKey, **more: Any) -> dict[str, str]:
    return {verdict.check: verdict.state for verdict in verdicts(told, *keys, **more)}


RAW = seed_key().public.raw or b""
SPELLINGS = {
    "PEM": seed_key().public.pem(),
    "SPKI in base64url": encode_base64url(seed_key().public.spki),
    "raw in base64url": encode_base64url(RAW),
    "raw in base64": encode_base64(RAW),
}


@pytest.mark.req("ADP-26")
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_full_key_in_each_of_its_spellings_hashes_to_the_fingerprint(spelling: str) -> None:
    told = document(full=SPELLINGS[spelling])
    assert told["identity"]["publicKey"]["fingerprint"] == VECTOR
    assert states(told, seed_key().public) == {"adp-key": "passed", "adp-proof": "passed"}
    assert verdicts(told, seed_key().public)[0].evidence == {
        "key_id": seed_key().public.key_id,
        "fingerprint": VECTOR,
        "covers": "key",
        "bound_by": "pin",
    }


@pytest.mark.req("ADP-26")
def test_a_key_that_does_not_hash_to_the_fingerprint_fails() -> None:
    other = key_of(number=1).public
    assert states(document(full=other.pem()))["adp-key"] == "failed"
    assert states(document(fingerprint=other.fingerprint()))["adp-key"] == "failed"
    assert states(document(), other)["adp-key"] == "failed"  # the domain's key is another one
    assert states(document(), fingerprints={str(other.fingerprint()): "dns"})["adp-key"] == "failed"


@pytest.mark.req("ADP-26")
def test_a_fingerprint_that_the_domain_publishes_binds_the_key() -> None:
    [key, proof] = verdicts(document(), fingerprints={VECTOR: "dns:_agent.alice.example.com"})
    assert (key.state, proof.state) == ("passed", "passed")
    assert key.evidence["bound_by"] == "dns:_agent.alice.example.com"


@pytest.mark.req("ADP-26")
def test_self_asserted_claims_verify_nothing() -> None:
    [key, proof] = verdicts(document())
    assert (key.state, proof.state) == ("unknown", "unknown")
    assert "nothing binds it" in key.reason


@pytest.mark.req("ADP-26")
def test_without_a_full_key_or_a_proof_there_is_nothing_to_check() -> None:
    assert states(document(full=None), seed_key().public) == {"adp-key": "unknown", "adp-proof": "unknown"}
    assert states(document(proof=None), seed_key().public) == {"adp-key": "passed", "adp-proof": "not_checked"}
    assert states({"identity": {"domain": DOMAIN}}) == {"adp-key": "not_checked"}
    assert states({}) == {"adp-key": "not_checked"}


@pytest.mark.req("ADP-26")
def test_the_sample_fingerprint_of_the_draft_is_no_digest() -> None:
    """C-4."""
    sample = "ed25519:" + encode_base64url(b"this is a test public key")
    assert states(document(fingerprint=sample))["adp-key"] == "failed"
    assert states(document(fingerprint=sample, full=None))["adp-key"] == "unknown"


@pytest.mark.req("ADP-26")
@pytest.mark.parametrize(
    "full",
    [
        "",
        "text",
        7,
        key_of("p-256").public.pem(),
        seed_key().pem().decode(),
        encode_base64url(b"\1" + bytes(31)),  # of small order
        encode_base64url(bytes(31)),
    ],
)
def test_an_invalid_ed25519_key_fails_the_check(full: Any) -> None:
    assert states(document(full=full), seed_key().public)["adp-key"] == "failed"


@pytest.mark.req("ADP-26")
def test_a_proof_is_the_keys_signature_over_its_own_name() -> None:
    proof = sign_adp_public_key(seed_key(), DOMAIN)["proof"]
    assert proof.startswith("signature:")
    url = "ed25519:" + encode_base64url(seed_key().sign(f"agent:{DOMAIN}".encode()))
    assert states(document(proof=url), seed_key().public)["adp-proof"] == "passed"
    elsewhere = document()
    elsewhere["identity"]["domain"] = "bob.example.com"
    assert states(elsewhere, seed_key().public)["adp-proof"] == "failed"
    for wrong in ("", "signature:", "text", proof.removeprefix("signature:"), "rsa:AAAA", "signature:é", 7):
        assert states(document(proof=wrong), seed_key().public)["adp-proof"] == "failed"
