"""Public keys: which are accepted, which are refused, and their ids (C7, C8 of the threat list)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.signing import KINDS, key_of, seed_key
from support.vectors import load_own_vectors, load_shared_vectors
from support.wycheproof import groups
from waypost import limits
from waypost.errors import InvalidKey
from waypost.trust.announce.signed_announcement import parse_announced_key
from waypost.trust.encodings import encode_base64, encode_base64url
from waypost.trust.keys.public_key import (
    KEY_ID,
    PublicKey,
    parse_base64_der,
    parse_der,
    parse_ed25519_raw,
    parse_jwk,
    parse_pem,
)

SMALL_ORDER = load_own_vectors("ed25519_small_order_keys")
RFC7638 = {
    "kty": "RSA",
    "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjh"
    "Mstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n9"
    "1CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
    "e": "AQAB",
}


def der_of(native: Any) -> bytes:
    encoded: bytes = native.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_the_same_key_in_every_encoding(kind: str) -> None:
    key = key_of(kind).public
    forms = [
        parse_pem(key.pem()),
        parse_pem(key.pem().replace("\n", "\r\n")),
        parse_der(key.spki),
        parse_base64_der(encode_base64(key.spki)),
        parse_base64_der(encode_base64url(key.spki)),
        parse_jwk(key.jwk()),
    ]
    assert {form.key_id for form in forms} == {key.key_id}
    assert {form.kind for form in forms} == {kind}
    assert all(form == key for form in forms)
    assert KEY_ID.match(key.key_id)


def test_a_compressed_point_is_the_same_key() -> None:
    key = key_of("p-256").public
    assert isinstance(key.native, ec.EllipticCurvePublicKey)
    point = key.native.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    der = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + point
    assert parse_der(der).key_id == key.key_id


def test_names_of_keys_are_those_of_the_specifications() -> None:
    key = seed_key().public
    assert key.key_id == "sha256:a050837d85070582ccf7394b0988847cc312cb88259b894899f6f239cf1791a5"
    assert key.fingerprint() == "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
    assert parse_jwk(RFC7638).thumbprint() == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    assert key_of("p-256").public.fingerprint() is None


@pytest.mark.parametrize("encoded", SMALL_ORDER["keys"])
def test_no_key_of_small_order_is_read(encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    signature = bytes.fromhex(SMALL_ORDER["signature_for_any_message"])
    assert signature[:32] == bytes.fromhex(SMALL_ORDER["keys"][0])  # anyone can produce this signature
    readers = (
        lambda: parse_ed25519_raw(raw),
        lambda: parse_der(der_of(Ed25519PublicKey.from_public_bytes(raw))),
        lambda: parse_jwk({"kty": "OKP", "crv": "Ed25519", "x": encode_base64url(raw)}),
    )
    for read in readers:
        with pytest.raises(InvalidKey, match="small order"):
            read()


@pytest.mark.parametrize(
    "encoded",
    [
        "02" + "00" * 31,  # no point has this y
        "f0" + "ff" * 30 + "7f",  # y is p + 3
        "ff" * 31 + "7f",
        "ff" * 32,
    ],
)
def test_no_key_that_is_not_the_encoding_of_a_point_is_read(encoded: str) -> None:
    with pytest.raises(InvalidKey, match=r"canonically encoded|encode a point"):
        parse_ed25519_raw(bytes.fromhex(encoded))


def test_an_off_curve_ed25519_key_is_refused_in_announcements_and_verifies_nothing() -> None:
    der = bytes.fromhex("302a300506032b6570032100") + b"\2" + bytes(31)
    body = encode_base64(der)
    for text in (f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n", body):
        with pytest.raises(InvalidKey, match=r"canonically encoded|encode a point"):
            parse_announced_key(text)
    assert not parse_der(der).verify(key_of().sign(b""), b"")


def rsa_key(bits: int, exponent: int = 65_537) -> bytes:
    """A modulus of the right size is all that is looked at."""
    modulus = (1 << (bits - 1)) | 0x1234567 | 1
    return der_of(rsa.RSAPublicNumbers(exponent, modulus).public_key())


# Makers, not keys: each process that collects the tests would make others, and DSA's parameters take seconds.
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "rsa-short": (lambda: rsa_key(limits.RSA_BITS_MIN - 1), "bits"),
    "rsa-long": (lambda: rsa_key(limits.RSA_BITS_MAX + 1), "bits"),
    "rsa-3": (lambda: rsa_key(2048, 3), "exponent"),
    "rsa-65535": (lambda: rsa_key(2048, 65_535), "exponent"),
    "p-224": (lambda: der_of(ec.generate_private_key(ec.SECP224R1()).public_key()), "kind"),
    "secp256k1": (lambda: der_of(ec.generate_private_key(ec.SECP256K1()).public_key()), "kind"),
    "ed448": (lambda: der_of(ed448.Ed448PrivateKey.generate().public_key()), "kind"),
    "x25519": (lambda: der_of(x25519.X25519PrivateKey.generate().public_key()), "kind"),
    "dsa": (lambda: der_of(dsa.generate_parameters(2048).generate_private_key().public_key()), "kind"),
    "nothing": (lambda: b"", "cannot be read"),
    "zeros": (lambda: b"\0" * limits.KEY_BYTES, "cannot be read"),
    "too-many-zeros": (lambda: b"\0" * (limits.KEY_BYTES + 1), "at most"),
    "one-byte-more": (lambda: key_of().public.spki + b"\0", "cannot be read"),
    "one-byte-less": (lambda: key_of().public.spki[:-1], "cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_weak_and_foreign_keys_are_refused(case: str) -> None:
    make, reason = REFUSED[case]
    der = make()
    with pytest.raises(InvalidKey, match=reason) as refused:
        parse_der(der)
    assert refused.value.path == "public_key"
    assert refused.value.hint


@pytest.mark.parametrize("bits", [limits.RSA_BITS_MIN, limits.RSA_BITS_MAX])
def test_rsa_keys_of_the_smallest_and_largest_allowed_size_are_parsed(bits: int) -> None:
    assert parse_der(rsa_key(bits)).kind == "rsa"


def test_rsa_keys_that_can_be_predicted_are_refused() -> None:
    weak = [group["public"]["keys"][0] for group in groups("json_web_key") if group["comment"] == "jws_rsa_roca_key"]
    assert weak
    for jwk in weak:
        with pytest.raises(InvalidKey, match="ROCA"):
            parse_jwk(jwk)
    assert key_of("rsa").public.kind == "rsa"


def test_a_point_off_its_curve_is_refused() -> None:
    jwk = key_of("p-256").public.jwk()
    with pytest.raises(InvalidKey, match="not on P-256"):
        parse_jwk({**jwk, "y": jwk["x"]})


@pytest.mark.parametrize(
    ("jwk", "reason"),
    [
        ("text", "object"),
        ({}, "not accepted"),
        ({"kty": "oct", "k": "AAAA"}, "not accepted"),
        ({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}, "not accepted"),
        ({"kty": "OKP", "crv": "Ed448", "x": "AA"}, "not accepted"),
        ({"kty": "OKP", "crv": "Ed25519"}, "lacks"),
        ({"kty": "OKP", "crv": "Ed25519", "x": 7}, "lacks"),
        ({"kty": "OKP", "crv": "Ed25519", "x": "AA"}, "32 bytes"),
        ({"kty": "OKP", "crv": "Ed25519", "x": encode_base64(bytes(32))}, "base64url"),
        ({**key_of().public.jwk(), "d": "AA"}, "private"),
        ({**key_of("p-256").public.jwk(), "crv": "P-384"}, "48 bytes"),
        ({**RFC7638, "crv": "P-256"}, "not accepted"),
        ({**RFC7638, "n": "AAAA"}, "leading zeros"),
        ({**RFC7638, "e": "Ag"}, "not an RSA key|exponent"),
    ],
)
def test_a_jwk_that_is_not_exactly_a_public_key_is_refused(jwk: Any, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        parse_jwk(jwk)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "PEM"),
        ("MCowBQYDK2VwAyEA", "PEM"),
        (key_of().public.pem() * 2, "PEM"),
        ("x" + key_of().public.pem(), "PEM"),
        (key_of().public.pem() + "x", "PEM"),
        (key_of().public.pem().replace("END PUBLIC", "END PRIVATE"), "PEM"),
        (key_of().pem().decode(), "private key"),
        (key_of().public.pem().replace("PUBLIC KEY", "RSA PUBLIC KEY"), "not a PUBLIC KEY"),
        (key_of().public.pem().replace("=\n", "\n=\n="), "base64|PEM"),
        (" " * limits.KEY_BYTES + "x", "at most"),
    ],
)
def test_only_one_pem_block_of_a_public_key_is_read(text: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        parse_pem(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_verifies_what_it_signed_and_nothing_else(kind: str) -> None:
    key, other = key_of(kind), key_of("ed25519" if kind != "ed25519" else "p-256")
    signature = key.sign(b"data")
    assert key.public.verify(signature, b"data")
    assert not key.public.verify(signature, b"date")
    assert not key.public.verify(b"", b"data")
    assert not key.public.verify(signature + b"\0", b"data")
    assert not other.public.verify(signature, b"data")


@pytest.mark.parametrize(("kind", "raw_bytes"), [("p-256", 64), ("p-384", 96), ("p-521", 132)])
def test_ecdsa_is_read_as_der_and_as_raw_numbers(kind: str, raw_bytes: int) -> None:
    key = key_of(kind)
    assert len(key.sign_jose(b"data")) == raw_bytes
    assert str(key.public.find_algorithm(key.sign_jose(b"data"), b"data")).endswith("-raw")
    assert not str(key.public.find_algorithm(key.sign(b"data"), b"data")).endswith("-raw")


@pytest.mark.parametrize(("kind", "size"), [("p-256", 32), ("p-384", 48), ("p-521", 66)])
def test_a_raw_signature_has_exactly_two_coordinates(kind: str, size: int) -> None:
    """C8: the same numbers with a zero more are another signature."""
    key = key_of(kind)
    raw = key.sign_jose(b"data")
    algorithm = key.jose_algorithm
    assert key.public.verify_as(algorithm, raw, b"data")
    longer = raw[:size] + b"\0" + raw[size:]
    for wrong in (longer, b"\0" + raw, raw + b"\0", raw[:-1], b"\0" + raw[:size] + b"\0" + raw[size:]):
        assert not key.public.verify_as(algorithm, wrong, b"data")
        assert not key.public.verify(wrong, b"data")


@pytest.mark.parametrize("case", range(12))
def test_edge_cases_of_ed25519_are_refused_as_the_strictest_libraries_do(case: int) -> None:
    """Of the twelve, only the one where key and signature are of mixed order passes, as it does in all of them."""
    told = load_shared_vectors("ed25519-speccheck/cases")[case]
    signature, message = bytes.fromhex(told["signature"]), bytes.fromhex(told["message"])

    def find_key() -> PublicKey | None:
        try:
            return parse_ed25519_raw(bytes.fromhex(told["pub_key"]))
        except InvalidKey:
            return None

    key = find_key()
    assert (key is not None and key.verify(signature, message)) == (case == 3)
    assert (key is None) == (case in (0, 1, 10, 11))
