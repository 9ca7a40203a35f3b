"""Every case of the Wycheproof vectors for the algorithms that we verify (C7, C8, J1, J2, J10 of the threat list)."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key

from support.wycheproof import cases, groups
from waypost.errors import InvalidKey
from waypost.model.json import dump_json
from waypost.trust.jose import InvalidJws, parse_compact, parse_jose_key, parse_jwks, verify_jws
from waypost.trust.keys import algorithms
from waypost.trust.keys.algorithms import NativeKey, SignatureVerifier
from waypost.trust.keys.public_key import parse_der

PRIMITIVES: dict[str, tuple[int, SignatureVerifier]] = {
    "ed25519": (151, algorithms.verify_ed25519),
    "ecdsa_secp256r1_sha256": (484, algorithms.ecdsa_der(SHA256())),
    "ecdsa_secp256r1_sha256_p1363": (262, algorithms.ecdsa_raw(SHA256(), 32)),
    "ecdsa_secp384r1_sha384_p1363": (280, algorithms.ecdsa_raw(SHA384(), 48)),
    "rsa_signature_2048_sha256": (259, algorithms.rsa_pkcs1(SHA256())),
    "rsa_pss_2048_sha256_mgf1_32": (108, algorithms.rsa_pss(SHA256(), 32)),
}

# The vectors call these valid; RFC 7515 and RFC 7517 do not, and neither do we.
STRICTER = {
    346: "the key is for PS256, the header says PS384",
    350: "the key is for PS256, the header says PS384",
    347: "ES521 is no algorithm",
    351: "ES521 is no algorithm",
    372: "a character that is not base64url",
    373: "a character that is not base64url",
}


OTHER_FORMS = {"RSASSA-PSS signature", "PKCS #1 v1.5 signature with SHA-256"}
LOST_PADDING = (367, 370)  # called invalid for padding that is not there: the text is that of case 357, which is valid


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_agrees_with_every_case(name: str) -> None:
    count, check = PRIMITIVES[name]
    differ, seen = [], 0
    for group, case in cases(name):
        key = load_der_public_key(bytes.fromhex(group["publicKeyDer"]))
        assert isinstance(key, NativeKey)
        holds = check(key, bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"]))
        seen += 1
        if case["result"] != "acceptable" and holds != (case["result"] == "valid"):
            differ.append((case["tcId"], case["comment"], holds))
    assert seen == count
    assert differ == []


@pytest.mark.parametrize("name", PRIMITIVES)
def test_verifying_by_key_type_accepts_nothing_that_the_named_algorithm_rejects(name: str) -> None:
    """C8. An RSA key may sign by PSS with any salt or by PKCS #1, so those two cases of "another form" do hold."""
    for group, case in cases(name):
        if group["publicKey"].get("publicExponent") == "03":
            with pytest.raises(InvalidKey, match="exponent"):
                parse_der(bytes.fromhex(group["publicKeyDer"]))
            continue
        holds = parse_der(bytes.fromhex(group["publicKeyDer"])).verify(
            bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"])
        )
        of_another_form = case["comment"].startswith("s_len changed") or case["comment"] in OTHER_FORMS
        assert holds == (case["result"] == "valid") or (of_another_form and holds), case


def accepts(group: dict[str, Any], text: Any) -> bool:
    """Whether a compact JWS is accepted by the keys of a group, read as a key or as a key set."""
    told = group.get("public") or group["private"]
    try:
        keys = parse_jwks(dump_json(told)) if "keys" in told else (parse_jose_key(told),)
        verify_jws(parse_compact(text), keys)
    except (InvalidKey, InvalidJws):
        return False
    return True


def is_shared_secret(group: dict[str, Any]) -> bool:
    told = group.get("public") or group["private"]
    return all(key["kty"] == "oct" for key in told.get("keys", [told]))


@pytest.mark.parametrize(
    ("name", "count"), [("json_web_signature", 401), ("json_web_key", 26), ("json_web_crypto", 83)]
)
def test_a_jws_agrees_with_every_case_of_a_public_key(name: str, count: int) -> None:
    """J1…J5, J10. Shared secrets are not spoken: nothing that one signed is accepted, good or not."""
    differ, seen = [], 0
    for group, case in cases(name):
        seen += 1
        is_jws = isinstance(case.get("jws"), str)
        expected = is_jws and case["result"] == "valid" and not is_shared_secret(group)
        expected = expected and not (name == "json_web_signature" and case["tcId"] in STRICTER)
        if accepts(group, case["jws"] if is_jws else str(case.get("jwe") or case["jws"])) != expected:
            differ.append((case["tcId"], case["comment"], case["result"]))
    assert seen == count
    assert differ == []


def test_ambiguous_encodings_are_refused_before_a_key_is_used() -> None:
    """J10: the cases about encodings are all of a shared secret, so they are held against the reader itself."""
    [group] = [group for group in groups("json_web_signature") if group["comment"] == "base64"]
    texts = {case["tcId"]: case["jws"] for case in group["tests"]}
    for case in group["tests"]:
        if case["tcId"] in LOST_PADDING:
            assert case["jws"] == texts[357]
            continue
        if case["result"] == "valid" and case["tcId"] not in STRICTER:
            assert parse_compact(case["jws"]).header["alg"] == "HS256"
        else:
            with pytest.raises(InvalidJws):
                parse_compact(case["jws"])


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("padding", ["=", "==", "====", "\n", " ", "A"])
def test_a_part_with_padding_or_more_is_refused(part: int, padding: str) -> None:
    """J10: cases 367 and 370 as they were meant."""
    [group] = [group for group in groups("json_web_signature") if group["comment"] == "SpecialCaseEs256"]
    text = group["tests"][0]["jws"]
    assert accepts(group, text)
    parts = text.split(".")
    parts[part] += padding
    assert not accepts(group, ".".join(parts))
