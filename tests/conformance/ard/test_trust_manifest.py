"""Trust manifests (ard.md §3): their subject and their signature."""

from __future__ import annotations

from typing import Any

import pytest

from support.records import DECODE, ENCODE
from support.signing import NOW, key_of, sign_manifest
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json
from waypost.model.verdict import Verdict
from waypost.protocols.dialects import ARD
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import IDENTITY_MISMATCH, check_ard_entry
from waypost.trust.document_signatures import ard_payload
from waypost.trust.encodings import encode_base64url
from waypost.trust.keys.private_key import PrivateKey

URN = "urn:air:acme.com:agent:invoices"
MANIFEST: JsonObject = {
    "identity": URN,
    "identityType": "other",
    "attestations": [
        {"type": "soc2", "uri": "https://acme.com/soc2", "mediaType": "text/html", "digest": "sha256:" + "a" * 64}
    ],
}


def entry(manifest: Any, **members: Any) -> JsonObject:
    return {
        "identifier": URN,
        "displayName": "Invoices",
        "type": "a2a",
        "url": "https://acme.com",
        "trustManifest": manifest,
    } | members


def verdict(document: JsonObject, *keys: PrivateKey) -> Verdict:
    [found] = check_ard_entry(document, [BoundKey(key.public, "domain:acme.com") for key in keys], NOW)
    return found


@pytest.mark.req("ARD-17")
@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ({}, "$.trustManifest.identity"),
        ({"identity": 7}, "$.trustManifest.identity"),
        ({"identity": URN, "attestations": {}}, "$.trustManifest.attestations"),
        ({"identity": URN, "attestations": [{"uri": "x"}]}, "$.trustManifest.attestations[0].type"),
        ({"identity": URN, "attestations": [{"type": "x"}]}, "$.trustManifest.attestations[0].uri"),
        ({"identity": URN, "provenance": [{"sourceId": "x"}]}, "$.trustManifest.provenance[0].relation"),
        ({"identity": URN, "provenance": [{"relation": "derivedFrom"}]}, "$.trustManifest.provenance[0].sourceId"),
        ({"identity": URN, "trustSchema": {"version": "1"}}, "$.trustManifest.trustSchema.identifier"),
        ({"identity": URN, "trustSchema": {"identifier": "x"}}, "$.trustManifest.trustSchema.version"),
        ({"identity": URN, "signature": 7}, "$.trustManifest.signature"),
    ],
)
def test_a_manifest_has_its_members_or_is_refused_where_they_are_missing(manifest: JsonObject, path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        ARD.decode(entry(manifest), DECODE)
    assert refused.value.path == path


@pytest.mark.req("ARD-17")
def test_unknown_manifest_members_are_kept_and_signed() -> None:
    """The two specifications disagree on these members; a signature covers all of them."""
    told = {**MANIFEST, "privacyPolicyUrl": "https://acme.com/privacy", "metadata": {"a": 1}}
    signed = entry(sign_manifest(told, key_of()))
    record = ARD.decode(signed, DECODE).record
    assert ARD.encode(record, ENCODE).document["trustManifest"] == signed["trustManifest"]
    assert verdict(signed, key_of()).state == "passed"
    del signed["trustManifest"]["privacyPolicyUrl"]
    assert verdict(signed, key_of()).state == "failed"


@pytest.mark.req("ARD-19")
@pytest.mark.parametrize("kind", ["ed25519", "p-256", "rsa"])
def test_a_manifest_that_a_bound_key_signed_is_verified(kind: str) -> None:
    signed = sign_manifest(MANIFEST, key_of(kind), kid="m1")
    assert ".." in signed["signature"]
    found = verdict(entry(signed), key_of(kind))
    assert found.state == "passed"
    assert found.evidence == {
        "identity": URN,
        "covers": "manifest",
        "binds_entry": True,
        "algorithm": key_of(kind).jose_algorithm,
        "canon": "jcs",
        "key_id": key_of(kind).public.key_id,
        "bound_by": "domain:acme.com",
    }


@pytest.mark.req("ARD-19")
def test_the_signature_covers_the_manifest_and_not_the_entry() -> None:
    signed = sign_manifest({**MANIFEST, "identity": "https://agents.acme.com/invoices"}, key_of())
    moved = entry(signed, url="https://evil.example", displayName="Other")
    found = verdict(moved, key_of())
    assert found.state == "passed"
    assert (found.evidence["covers"], found.evidence["binds_entry"]) == ("manifest", False)


@pytest.mark.req("ARD-18")
@pytest.mark.parametrize(
    ("identifier", "identity", "state"),
    [
        ("https://acme.com/agents/invoices", "did:web:acme.com", "not_checked"),
        ("did:web:acme.com:agents:invoices", "spiffe://agents.acme.com/invoices", "not_checked"),
        ("https://acme.com/agents/invoices", "did:web:evil.example", "failed"),
        ("com.acme/invoices", "did:web:acme.com", "failed"),
    ],
)
def test_the_publisher_of_an_identifier_of_another_form_is_the_domain_that_it_names(
    identifier: str, identity: str, state: str
) -> None:
    assert verdict(entry({"identity": identity}, identifier=identifier)).state == state


@pytest.mark.req("ARD-19")
def test_a_manifest_that_is_not_the_signed_one_fails() -> None:
    signed = sign_manifest(MANIFEST, key_of())
    for changed in (
        {"identityType": "did"},
        {"attestations": []},
        {"extra": 1},
        {"signature": "a..b"},
        {"signature": "x"},
    ):
        assert verdict(entry({**signed, **changed}), key_of()).state == "failed"


@pytest.mark.req("ARD-19")
def test_an_unbound_key_is_unknown_and_no_signature_is_not_checked() -> None:
    signed = sign_manifest(MANIFEST, key_of(number=1), kid="theirs")
    found = verdict(entry(signed), key_of(number=2))
    assert (found.state, found.evidence["kid"]) == ("unknown", "theirs")
    assert verdict(entry(signed)).state == "unknown"
    assert verdict(entry(MANIFEST), key_of()).state == "not_checked"
    assert verdict(entry(None), key_of()).state == "not_checked"


@pytest.mark.req("ARD-19")
@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("none", "ed25519"), ("HS256", "ed25519"), ("ES384", "p-384"), ("ES512", "p-521"), ("PS384", "rsa")],
)
def test_only_four_algorithms_sign_manifests(algorithm: str, kind: str) -> None:
    protected = encode_base64url(dump_json({"alg": algorithm, "kid": "k"}))
    signing_input = f"{protected}.{encode_base64url(ard_payload(MANIFEST))}".encode()
    signature = f"{protected}..{encode_base64url(key_of(kind).sign_jose(signing_input))}"
    found = verdict(entry({**MANIFEST, "signature": signature}), key_of(kind))
    assert (found.state, "algorithm" in found.reason) == ("failed", True)


@pytest.mark.req("ARD-19")
@pytest.mark.parametrize(
    "digest",
    ["md5:" + "a" * 32, "sha1:" + "a" * 40, "sha256:" + "A" * 64, "sha256:aa", "a" * 64, 7, "sha224:" + "a" * 56],
)
@pytest.mark.parametrize("where", [("attestations", "digest"), ("provenance", "sourceDigest")])
def test_digests_weaker_than_sha_256_are_refused(digest: Any, where: tuple[str, str]) -> None:
    manifest = {**MANIFEST, where[0]: [{"type": "x", "uri": "y", where[1]: digest}]}
    found = verdict(entry(sign_manifest(manifest, key_of())), key_of())
    assert (found.state, "SHA-256" in found.reason) == ("failed", True)


@pytest.mark.req("ARD-18")
@pytest.mark.parametrize(
    "identity",
    [
        URN,
        "spiffe://acme.com/agent",
        "spiffe://prod.acme.com/agent",
        "did:web:acme.com",
        "did:web:agents.acme.com:invoices",
        "did:web:acme.com%3A8443:invoices",
        "https://acme.com/agents/invoices",
        "https://ACME.com/",
    ],
)
def test_an_identity_of_the_publisher_fits(identity: str) -> None:
    assert verdict(entry({**MANIFEST, "identity": identity})).state == "not_checked"


@pytest.mark.req("ARD-18")
@pytest.mark.parametrize(
    "identity",
    [
        "spiffe://evil.example/agent",
        "https://notacme.com/",
        "https://acme.com.evil.example/",
        "https://acme.com@evil.example/",
        "did:web:evil.example",
        "did:key:z6Mk",
        "http://acme.com/",
        "acme.com",
        "urn:air:acme.com:agent:other",
        "",
        None,
        7,
    ],
)
def test_an_identity_of_another_agent_is_a_mismatch(identity: Any) -> None:
    found = verdict(entry(sign_manifest({**MANIFEST, "identity": identity}, key_of())), key_of())
    assert (found.state, found.reason) == ("failed", IDENTITY_MISMATCH)


@pytest.mark.req("ARD-18")
def test_an_entry_that_is_no_urn_fits_its_own_name_only() -> None:
    assert verdict(entry(MANIFEST, identifier="https://acme.com/a")).reason == IDENTITY_MISMATCH
    same = {**MANIFEST, "identity": "https://acme.com/a"}
    assert verdict(entry(same, identifier="https://acme.com/a")).state == "not_checked"
