"""JWS and JWK: the key decides (J1…J5, J10 of the threat list)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.signing import KINDS, key_of, sign_compact
from waypost import limits
from waypost.errors import InvalidKey, WaypostError
from waypost.model.json import dump_json
from waypost.trust.encodings import encode_base64url
from waypost.trust.jose import (
    REJECTED_HEADERS,
    InvalidJws,
    JoseKey,
    UnknownKey,
    jose_key,
    parse_detached,
    parse_header,
    parse_jose_key,
    parse_json_signature,
    parse_jwks,
    verify_compact,
    verify_jws,
)
from waypost.trust.keys.private_key import PrivateKey

PAYLOAD = b'{"sub":"a"}'


def trusted(kind: str = "ed25519", **more: Any) -> JoseKey:
    return jose_key(key_of(kind).public, **more)


def by_hand(header: Any, key: PrivateKey | None = None, payload: bytes = PAYLOAD) -> str:
    """A text with any header, signed by a good key."""
    signed = (
        f"{encode_base64url(header if isinstance(header, bytes) else dump_json(header))}.{encode_base64url(payload)}"
    )
    return f"{signed}.{encode_base64url((key or key_of()).sign_jose(signed.encode()))}"


def reason(text: str, *keys: JoseKey) -> str:
    with pytest.raises(InvalidJws) as refused:
        verify_compact(text, keys or (trusted(),))
    return str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_is_verified_here_and_by_another_library(kind: str) -> None:
    key = key_of(kind)
    text = sign_compact(key, PAYLOAD, kid="k1", typ="JWT")
    verified = verify_compact(text, (trusted(kind, kid="k1"),))
    assert (verified.payload, verified.algorithm, verified.header["typ"]) == (PAYLOAD, key.jose_algorithm, "JWT")
    assert jwt.decode(text, key.public.native, algorithms=[key.jose_algorithm]) == {"sub": "a"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("EdDSA", "ed25519"),
        ("ES256", "p-256"),
        ("ES384", "p-384"),
        ("ES512", "p-521"),
        *((f"{family}{bits}", "rsa") for family in ("RS", "PS") for bits in (256, 384, 512)),
    ],
)
def test_signatures_of_another_library_are_verified(algorithm: str, kind: str) -> None:
    text = jwt.encode({"sub": "a"}, key_of(kind).native, algorithm=algorithm, headers={"kid": "k"})
    assert verify_compact(text, (trusted(kind),)).algorithm == algorithm
    for other in KINDS:
        if other != kind:
            assert reason(text, trusted(other)) == "its algorithm is not the one of the key"


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "nOnE", "", "HS256", "HS384", "HS512", "ES256K", "eddsa", "RS1", "ES256"]
)
def test_an_algorithm_that_is_not_the_keys_is_refused(algorithm: str) -> None:
    """J1, J2."""
    assert "algorithm" in reason(by_hand({"alg": algorithm}))
    text = by_hand({"alg": algorithm}).rpartition(".")[0]
    reason(f"{text}.")


@pytest.mark.parametrize("alg", [None, 7, ["EdDSA"], {"alg": "EdDSA"}, True])
def test_an_algorithm_that_is_no_text_is_refused(alg: Any) -> None:
    reason(by_hand({"alg": alg}))
    reason(by_hand({}))


@pytest.mark.parametrize("kind", KINDS)
def test_no_public_key_is_ever_a_shared_secret(kind: str) -> None:
    """J2."""
    key = key_of(kind).public
    native: Any = key.native
    secrets = [
        key.pem().encode(),
        key.spki,
        native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        dump_json(key.jwk()),
        b"",
    ]
    for secret in secrets:
        signed = f"{encode_base64url(dump_json({'alg': 'HS256'}))}.{encode_base64url(PAYLOAD)}"
        mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        reason(f"{signed}.{encode_base64url(mac)}", trusted(kind))


@pytest.mark.parametrize("name", REJECTED_HEADERS)
@pytest.mark.parametrize("value", [None, False, [], "https://evil.example/keys", {"kty": "OKP"}])
def test_a_header_that_brings_or_points_to_a_key_is_refused(name: str, value: Any) -> None:
    """J3, J4."""
    assert reason(by_hand({"alg": "EdDSA", name: value})) == f"its header has the member {name!r}, which is not allowed"


@pytest.mark.parametrize("kid", ["../../dev/null", "' OR 1=1 --", "x" * 4000, "", "other", "\0"])
def test_a_key_id_that_matches_no_given_key_is_refused(kid: str) -> None:
    """J5."""
    text = by_hand({"alg": "EdDSA", "kid": kid})
    with pytest.raises(UnknownKey):
        verify_compact(text, (trusted(kid="k1"),))
    assert verify_compact(text, (trusted(),)).payload == PAYLOAD  # the one key that the caller trusts needs no name


def test_a_name_that_is_too_long_is_refused() -> None:
    """J5."""
    reason(by_hand({"alg": "EdDSA", "kid": "x" * 10_000}))
    reason(by_hand({"alg": "EdDSA", "kid": 7}))


def test_a_name_chooses_among_the_given_keys() -> None:
    first, second = key_of(number=1), key_of(number=2)
    keys = (jose_key(first.public, kid="one"), jose_key(second.public, kid="two"))
    assert verify_compact(sign_compact(second, PAYLOAD, kid="two"), keys).key.kid == "two"
    assert reason(sign_compact(second, PAYLOAD, kid="one"), *keys) == "its signature is invalid"
    same = (jose_key(first.public, kid="one"), jose_key(second.public, kid="one"))
    with pytest.raises(UnknownKey, match="identify one key"):
        verify_compact(sign_compact(first, PAYLOAD, kid="one"), same)
    with pytest.raises(UnknownKey, match="identify one key"):
        verify_compact(by_hand({"alg": "EdDSA"}, first), keys)
    assert verify_compact(by_hand({"alg": "EdDSA"}, first), keys[:1]).key.kid == "one"


def test_keys_of_two_kinds_under_one_name_are_distinguished_by_the_algorithm() -> None:
    keys = (trusted("ed25519", kid="k"), trusted("p-256", kid="k"))
    assert verify_compact(sign_compact(key_of("p-256"), PAYLOAD, kid="k"), keys).algorithm == "ES256"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "a.b.c.d.e",
        '{"protected":"","payload":"","signatures":[]}',
        sign_compact(key_of(), PAYLOAD)[:-1],
        sign_compact(key_of(), PAYLOAD) + "=",
        sign_compact(key_of(), PAYLOAD) + "\n",
        " " + sign_compact(key_of(), PAYLOAD),
        sign_compact(key_of(), b"x" * limits.JWS_BYTES),
        by_hand(b'{"alg":"EdDSA","alg":"EdDSA"}'),
        by_hand(b'{"alg":"EdDSA","a":NaN}'),
        by_hand(b"[1]"),
        by_hand(b"\xff"),
        by_hand(b"{"),
    ],
)
def test_a_malformed_compact_jws_is_refused(text: str) -> None:
    """J10."""
    reason(text)


def test_an_ecdsa_signature_is_raw_and_not_der() -> None:
    key = key_of("p-256")
    signed = f"{encode_base64url(dump_json({'alg': 'ES256'}))}.{encode_base64url(PAYLOAD)}"
    assert (
        reason(f"{signed}.{encode_base64url(key.sign(signed.encode()))}", trusted("p-256"))
        == "its signature is invalid"
    )
    assert reason(f"{signed}.{encode_base64url(bytes(64))}", trusted("p-256")) == "its signature is invalid"


def test_a_detached_signature_covers_the_payload_sent_elsewhere() -> None:
    header, _, signature = sign_compact(key_of(), PAYLOAD).split(".")
    assert verify_jws(parse_detached(f"{header}..{signature}", PAYLOAD), (trusted(),)).payload == PAYLOAD
    for text, payload in ((f"{header}..{signature}", b"{}"), (f"{header}.{signature}", PAYLOAD), ("..", PAYLOAD)):
        with pytest.raises(InvalidJws):
            verify_jws(parse_detached(text, payload), (trusted(),))


def test_one_signature_of_a_json_form_is_read_and_its_unprotected_header_decides_nothing() -> None:
    header, _, signature = sign_compact(key_of(), PAYLOAD, kid="k").split(".")
    parts = {"protected": header, "signature": signature}
    unheeded = {**parts, "header": {"jku": "https://evil.example", "x": 1}}
    assert verify_jws(parse_json_signature(unheeded, PAYLOAD), (trusted(kid="k"),)).key.kid == "k"
    for value in (
        None,
        [],
        {},
        {"protected": header},
        {"signature": signature},
        {"protected": 7, "signature": signature},
        {**parts, "header": {"kid": "other"}},
        {**parts, "protected": "é"},
    ):
        with pytest.raises(InvalidJws):
            verify_jws(parse_json_signature(value, PAYLOAD), (trusted(kid="k"),))


@pytest.mark.parametrize(
    "more",
    [
        {"use": "enc"},
        {"use": 7},
        {"key_ops": ["encrypt"]},
        {"key_ops": []},
        {"key_ops": "verify"},
        {"alg": "RS256"},
        {"alg": "none"},
        {"alg": 7},
        {"kid": 7},
        {"kid": "x" * 2000},
    ],
)
def test_a_jwk_that_may_not_verify_is_refused(more: dict[str, Any]) -> None:
    """J10."""
    with pytest.raises(InvalidKey):
        parse_jose_key({**key_of().public.jwk(), **more})


def test_a_jwk_that_names_its_algorithm_is_for_that_one() -> None:
    key = parse_jose_key(
        {**key_of("rsa").public.jwk(), "alg": "PS256", "use": "sig", "key_ops": ["verify"], "kid": "r"}
    )
    assert verify_compact(sign_compact(key_of("rsa"), PAYLOAD, kid="r"), (key,)).algorithm == "PS256"
    assert "algorithm" in reason(jwt.encode({}, key_of("rsa").native, "RS256", {"kid": "r"}), key)


def test_a_key_set_gives_the_keys_that_can_be_used() -> None:
    good = {**key_of().public.jwk(), "kid": "a"}
    others = [{"kty": "oct", "k": "AAAA"}, {"kty": "new"}, {**key_of("p-256").public.jwk(), "use": "enc"}, "text"]
    assert [key.kid for key in parse_jwks(dump_json({"keys": [*others, good]}))] == ["a"]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"keys": {}},
        {"keys": []},
        {"keys": [{"kty": "oct", "k": "AAAA"}]},
        {"keys": [key_of().public.jwk()] * (limits.JWKS_KEYS + 1)},
        [],
    ],
)
def test_a_key_set_without_a_usable_key_is_an_error(value: Any) -> None:
    with pytest.raises(WaypostError) as refused:
        parse_jwks(dump_json(value))
    assert refused.value.hint


def test_a_key_set_is_bounded() -> None:
    assert len(parse_jwks(dump_json({"keys": [key_of().public.jwk()] * limits.JWKS_KEYS}))) == limits.JWKS_KEYS
    with pytest.raises(WaypostError):
        parse_jwks(b" " * limits.JWKS_BYTES + b"{}")


def test_a_cached_header_is_checked_against_the_currently_allowed_parameters() -> None:
    part = encode_base64url(b'{"alg":"EdDSA","jku":"https://example.net/keys"}')
    assert parse_header(part, ("jku",)) == {"alg": "EdDSA", "jku": "https://example.net/keys"}
    for _ in range(2):
        with pytest.raises(InvalidJws, match="jku"):
            parse_header(part)
    assert parse_header(part, ("jku",))["alg"] == "EdDSA"
