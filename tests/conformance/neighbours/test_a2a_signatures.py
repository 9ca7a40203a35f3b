"""Signatures of A2A cards (neighbours.md §1)."""

from __future__ import annotations

from typing import Any

import pytest

from support.signing import KINDS, NOW, card, key_of, sign_card
from waypost import limits
from waypost.model.json import JsonObject, dump_json
from waypost.model.verdict import Verdict
from waypost.trust.checks.bound_key import BoundKey
from waypost.trust.checks.signed_documents import check_card
from waypost.trust.document_signatures import a2a_payload, canonicalize
from waypost.trust.encodings import encode_base64url
from waypost.trust.keys.private_key import PrivateKey


def verdict(document: JsonObject, *keys: PrivateKey, kid: str | None = None) -> Verdict:
    [found] = check_card(document, [BoundKey(key.public, "pin", kid) for key in keys], NOW)
    return found


def signed_by_hand(document: JsonObject, header: JsonObject, payload: bytes | None = None) -> JsonObject:
    protected = encode_base64url(dump_json(header))
    covered = encode_base64url(a2a_payload(document) if payload is None else payload)
    signature = encode_base64url(key_of().sign_jose(f"{protected}.{covered}".encode()))
    return {**document, "signatures": [{"protected": protected, "signature": signature}]}


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_card_that_a_bound_key_signed_is_verified_with_its_evidence(kind: str) -> None:
    found = verdict(sign_card(card(), key_of(kind), kid="key-1"), key_of(kind), kid="key-1")
    assert found.state == "passed"
    assert found.evidence == {
        "key_id": key_of(kind).public.key_id,
        "algorithm": key_of(kind).jose_algorithm,
        "kid": "key-1",
        "canon": "a2a",
        "covers": "card without signatures",
        "bound_by": "pin",
    }


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Other"},
        {
            "supportedInterfaces": [
                {"url": "https://evil.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ]
        },
        {"capabilities": {"streaming": True}},
        {"capabilities": {}},
        {"iconUrl": "https://evil.example/i.png"},
        {"unknown": 1},
        {"skills": []},
    ],
)
def test_a_card_that_is_not_the_signed_one_fails(changed: JsonObject) -> None:
    found = verdict({**sign_card(card(), key_of(), kid="k"), **changed}, key_of(), kid="k")
    assert (found.state, "is invalid" in found.reason) == ("failed", True)


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    "defaulted",
    [
        {"securitySchemes": {}, "securityRequirements": []},
        {"supportedInterfaces": [{**card()["supportedInterfaces"][0], "tenant": ""}]},
        {"capabilities": {"streaming": False, "extensions": []}},
        {
            "skills": [
                {**card()["skills"][0], "examples": [], "inputModes": [], "outputModes": [], "securityRequirements": []}
            ]
        },
        {"documentationUrl": None},
    ],
)
def test_members_at_their_default_are_not_covered(defaulted: JsonObject) -> None:
    assert a2a_payload({**card(), **defaulted}) == a2a_payload(card())
    found = verdict({**sign_card(card(), key_of()), **defaulted}, key_of())
    assert found.state == "passed"


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    "told",
    [
        {"documentationUrl": ""},  # absent and empty differ
        {"capabilities": {"streaming": False, "pushNotifications": False}},
        {"provider": {}},
        {"defaultInputModes": []},  # required
        {"description": ""},
        {"skills": [{**card()["skills"][0], "tags": []}]},
    ],
)
def test_required_members_and_those_that_are_set_are_covered(told: JsonObject) -> None:
    assert a2a_payload({**card(), **told}) != a2a_payload(card())


@pytest.mark.req("A2A-8")
def test_defaults_inside_security_are_left_out_at_every_depth() -> None:
    flow = {"tokenUrl": "https://a.example/t", "scopes": {"read": ""}}
    schemes = {
        "o": {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}},
        "k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}},
        "m": {"mtlsSecurityScheme": {}},
    }
    wordy = {
        "o": {
            "oauth2SecurityScheme": {
                "description": "",
                "oauth2MetadataUrl": "",
                "flows": {"clientCredentials": {**flow, "refreshUrl": ""}},
            }
        },
        "k": {"apiKeySecurityScheme": {"location": "header", "name": "X", "description": ""}},
        "m": {"mtlsSecurityScheme": {"description": ""}},
    }
    needs: Any = [{"schemes": {"o": {"list": []}}}]
    plain: Any = [{"schemes": {"o": {}}}]
    assert a2a_payload(card(securitySchemes=wordy, securityRequirements=needs)) == a2a_payload(
        card(securitySchemes=schemes, securityRequirements=plain)
    )


@pytest.mark.req("A2A-8")
def test_cards_are_read_that_dropped_every_empty_value_or_none_before_they_were_signed() -> None:
    document = card(capabilities={}, securityRequirements=[], description="")
    without_empty = {name: value for name, value in document.items() if value}
    sdk = signed_by_hand(document, {"alg": "EdDSA", "kid": "k"}, canonicalize(without_empty))
    assert verdict(sdk, key_of(), kid="k").evidence["canon"] == "a2a-sdk"
    verbatim = signed_by_hand(document, {"alg": "EdDSA", "kid": "k"}, canonicalize(document))
    assert verdict(verbatim, key_of(), kid="k").evidence["canon"] == "jcs"


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    "added",
    [
        {"securityRequirements": [{"schemes": {"o": {"list": ["read"]}}}, {}]},
        {"securityRequirements": [{"schemes": {"o": {"list": ["read"]}}}, {"schemes": {"none": {"list": []}}}]},
        {"skills": [{**card()["skills"][0], "securityRequirements": [{}]}]},
    ],
)
def test_a_form_that_drops_demands_for_a_credential_verifies_nothing(added: JsonObject) -> None:
    """The signed card requires a scope. The shown one also accepts no credential, and canonicalizes to the same bytes."""
    needed = card(securityRequirements=[{"schemes": {"o": {"list": ["read"]}}}])
    signed = sign_card(needed, key_of(), kid="k")
    assert verdict(signed, key_of(), kid="k").state == "passed"
    found = verdict({**signed, **added}, key_of(), kid="k")
    assert (found.state, "security" in found.reason) == ("unknown", True)


@pytest.mark.req("A2A-8")
def test_a_signature_by_a_key_that_nothing_binds_is_unknown_and_none_is_not_checked() -> None:
    document = sign_card(card(), key_of(number=2), kid="theirs")
    assert verdict(document).state == "unknown"
    assert verdict(document, key_of(number=1)).state == "unknown"
    assert verdict(document, key_of(number=1)).reason == "signed by a key that nothing binds to this agent"
    assert verdict(document, key_of(number=1), kid="theirs").state == "failed"
    assert verdict(card(), key_of()).state == "not_checked"
    assert verdict(card(signatures=[]), key_of()).state == "not_checked"


@pytest.mark.req("A2A-8")
def test_a_changed_card_of_an_agent_with_a_key_of_its_own_fails_whatever_its_kid() -> None:
    """A signer may choose any `kid`; it need not be the name under which the key is bound."""
    own = [BoundKey(key_of().public, "trust", own=True)]
    signed = sign_card(card(), key_of(), kid="any-name")
    [good], [changed] = (check_card(told, own, NOW) for told in (signed, {**signed, "description": "Other"}))
    assert (good.state, changed.state) == ("passed", "failed")
    for kid in (key_of(number=2).public.key_id, key_of(number=2).public.thumbprint()):
        [other] = check_card(sign_card(card(), key_of(number=2), kid=kid), own, NOW)
        assert other.state == "unknown"


@pytest.mark.req("A2A-8")
def test_one_good_signature_of_several_is_enough_and_a_wrong_one_is_reported() -> None:
    both = sign_card(sign_card(card(), key_of(number=2)), key_of(number=1))
    assert verdict(both, key_of(number=1)).state == "passed"
    assert verdict(both, key_of(number=2)).state == "passed"
    altered = {**both, "name": "Other"}
    assert verdict(altered, key_of(number=1)).state == "failed"
    wrong = {**both, "signatures": [{"protected": "x", "signature": "y"}, both["signatures"][1]]}
    assert verdict(wrong, key_of(number=1)).state == "passed"


@pytest.mark.req("A2A-8")
def test_a_card_cannot_name_the_location_of_its_key() -> None:
    """J3: `jku` is allowed and not followed; a key in the header is refused."""
    header = {"alg": "EdDSA", "kid": "k", "jku": "https://evil.example/keys"}
    document = signed_by_hand(card(), header)
    assert verdict(document).state == "unknown"
    assert verdict(document, key_of(), kid="k").evidence["jku"] == "not followed"
    for name in ("jwk", "x5c", "x5u", "crit", "b64"):
        assert verdict(signed_by_hand(card(), {**header, name: []}), key_of(), kid="k").state == "failed"


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    ("algorithm", "state"), [("none", "failed"), ("HS256", "failed"), ("ES256K", "unknown"), ("ES256", "failed")]
)
def test_the_header_does_not_choose_the_algorithm(algorithm: str, state: str) -> None:
    document = signed_by_hand(card(), {"alg": algorithm, "kid": "k"})
    assert verdict(document, key_of(), kid="k").state == state


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize("signatures", ["text", {"a": 1}, [None], [{}], [{"protected": 1, "signature": 2}], [[]]])
def test_malformed_signatures_fail_the_check(signatures: Any) -> None:
    assert verdict(card(signatures=signatures), key_of()).state == "failed"


@pytest.mark.req("A2A-8")
def test_the_number_of_checked_signatures_is_limited() -> None:
    filler = [{"protected": "x", "signature": "y"}]
    good = sign_card(card(), key_of())["signatures"]
    assert verdict(card(signatures=filler * (limits.SIGNATURES - 1) + good), key_of()).state == "passed"
    assert verdict(card(signatures=filler * limits.SIGNATURES + good), key_of()).state == "failed"


@pytest.mark.req("A2A-8")
def test_evidence_quotes_no_name_of_a_key_at_length() -> None:
    found = verdict(signed_by_hand(card(), {"alg": "EdDSA", "kid": "k" * 5000}), key_of(number=1))
    assert (found.state, found.evidence["kid"]) == ("unknown", "k" * 256)


# Signed by a2a-sdk 0.3.26 (Python) with the key of the tests.
OLDER_HEADER = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsiLCJ0eXAiOiJKT1NFIn0"
OLDER: JsonObject = {
    "protocolVersion": "0.3.0",
    "preferredTransport": "JSONRPC",
    "name": "Rechnungen – groß",
    "description": "Reads invoices.",
    "url": "https://a.example/rpc",
    "version": "1.0.0",
    "capabilities": {"streaming": False, "extensions": [{"uri": "urn:x", "params": {"rate": 1.5, "note": ""}}]},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": [],
    "skills": [{"id": "read", "name": "Read", "description": "", "tags": ["invoice"]}],
}
OLDER_OAUTH: JsonObject = {
    **OLDER,
    "preferredTransport": "GRPC",
    "additionalInterfaces": [{"url": "https://a.example/x", "transport": "JSONRPC"}],
    "securitySchemes": {
        "o": {
            "type": "oauth2",
            "flows": {"clientCredentials": {"tokenUrl": "https://a.example/t", "scopes": {"r": "read"}}},
        }
    },
    "security": [{"o": ["r"]}],
}
OLDER_KEY: JsonObject = {
    **OLDER,
    "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X"}},
    "security": [{"k": []}],
}
OLDER_SIGNATURES = {
    "plain": "T_iUNOEcW6ZHFSQQQsFbZjoe1IOyuFK7gFBcINlsc6skH29GT153FPNOxcFc2BipAJG3mP05V98-9KKEIDimBw",
    "oauth": "Q-mIbLcJBED3WB5bEoc-UVV3IwPHpfuPRE37XC7aVUMw354f3LE-BefxEbqp6V8WDky4AhWBvAxhfsT6IJ2vAw",
    "key": "rttqLwUU0KWx_T-Grh8k0lXmH0E_ev-PQNNk8QwQR23qzZ2b71okXNtCkJt3fPVi6LdCyuOTruTtiKFizcLHAg",
}


def older_card(document: JsonObject, name: str) -> JsonObject:
    return {**document, "signatures": [{"protected": OLDER_HEADER, "signature": OLDER_SIGNATURES[name]}]}


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    ("document", "name", "state"),
    [(OLDER, "plain", "passed"), (OLDER_OAUTH, "oauth", "passed"), (OLDER_KEY, "key", "unknown")],
    ids=["plain", "oauth", "key"],
)
def test_a_card_that_the_sdk_0_3_signed_never_fails(document: JsonObject, name: str, state: str) -> None:
    """Its form drops `{"key": []}`, a demand for a credential, so a card with one is not verified."""
    found = verdict(older_card(document, name), key_of(), kid="k")
    assert (found.state, found.evidence["canon"]) == (state, "a2a-sdk-0.3")


@pytest.mark.req("A2A-8")
@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Other"},
        {"url": "https://evil.example"},
        {"preferredTransport": "JSONRPC"},
        {"security": []},
        {"securitySchemes": {"o": {**OLDER_OAUTH["securitySchemes"]["o"], "type": "http"}}},
        {"unknown": 1},
    ],
)
def test_a_changed_card_of_0_3_is_not_verified(changed: JsonObject) -> None:
    found = verdict({**older_card(OLDER_OAUTH, "oauth"), **changed}, key_of(), kid="k")
    assert found.state == "unknown"


@pytest.mark.req("A2A-8")
def test_a_malformed_signature_of_an_older_card_fails() -> None:
    wrong = {**OLDER, "signatures": [{"protected": "x", "signature": "y"}]}
    assert verdict(wrong, key_of(), kid="k").state == "failed"
