"""The `signature` of a profile record (profile.md, gaps: `jws-jcs`)."""

from __future__ import annotations

from typing import Any

import pytest

from support.signing import KINDS, NOW, key_of
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict, trust_summary
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import check_profile
from waypost.trust.document_signatures import sign_profile
from waypost.trust.keys.private_key import PrivateKey

RECORD: JsonObject = {
    "id": "https://a.example/agents/invoices",
    "name": "Invoices",
    "description": "Reads invoices.",
    "tags": ["invoice"],
    "bindings": [{"protocol": "https", "endpoint": "https://a.example/invoices"}],
    "org.example.more": {"rate": 1.0},
}


def verdict(document: JsonObject, *keys: PrivateKey, kid: str | None = None) -> Verdict:
    [found] = check_profile(document, [BoundKey(key.public, "pin", kid) for key in keys], NOW)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_a_bound_key_signed_is_verified_with_its_evidence(kind: str) -> None:
    signed = sign_profile(RECORD, key_of(kind), kid="k1")
    assert signed["signature"].keys() == {"format", "alg", "kid", "protected", "signature"}
    found = verdict(signed, key_of(kind), kid="k1")
    assert found.state == "passed"
    assert found.evidence["covers"] == "record without signature"
    assert found.evidence["algorithm"] == key_of(kind).jose_algorithm


@pytest.mark.parametrize("changed", [{"name": "Other"}, {"bindings": []}, {"org.example.more": {}}, {"extra": None}])
def test_a_record_that_is_not_the_signed_one_fails(changed: JsonObject) -> None:
    assert verdict({**sign_profile(RECORD, key_of()), **changed}, key_of()).state == "failed"


def test_self_asserted_and_verified_are_distinguished() -> None:
    signed = sign_profile(RECORD, key_of(number=1))
    assert trust_summary((verdict(signed, key_of(number=1)),)).level == "verified"
    assert trust_summary((verdict(signed),)).level == "self_asserted"
    assert trust_summary((verdict(RECORD),)).level == "self_asserted"
    assert trust_summary((verdict({**signed, "name": "x"}, key_of(number=1)),)).level == "failed"


@pytest.mark.parametrize("signature", [{}, {"format": "other"}, {"type": "announce-sig", "value": "x"}, "text", 7])
def test_a_signature_of_another_format_is_not_checked(signature: Any) -> None:
    assert verdict({**RECORD, "signature": signature}, key_of()).state == "not_checked"


@pytest.mark.parametrize(
    "more",
    [{"alg": "ES256"}, {"kid": "other"}, {"protected": ""}, {"signature": ""}, {"protected": None}, {"signature": 7}],
)
def test_signature_members_that_contradict_the_header_fail(more: JsonObject) -> None:
    signed = sign_profile(RECORD, key_of())
    found = verdict({**signed, "signature": {**signed["signature"], **more}}, key_of())
    assert (found.state, "is invalid" in found.reason) == ("failed", True)


def test_an_address_of_keys_is_not_followed() -> None:
    signed = sign_profile(RECORD, key_of())
    told = {**signed, "signature": {**signed["signature"], "jku": "https://evil.example/keys"}}
    assert verdict(told, key_of()).state == "passed"
    assert verdict(told).state == "unknown"
