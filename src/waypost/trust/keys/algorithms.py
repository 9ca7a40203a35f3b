"""Signature verification, one function per algorithm, over keys of `cryptography`; Ed25519 is in `ed25519.py`.

JOSE_ALGORITHMS lists the accepted algorithms of RFC 7518 and RFC 8037, each with its kind of key.
`announcement_algorithms` lists those of announcements, in the order in which they are tried (announce.md P-9). SHA-1,
MD5 and shared secrets are not included, so no caller can use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from waypost.trust.keys import ed25519

NativeKey: TypeAlias = Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey
SignatureVerifier: TypeAlias = Callable[[NativeKey, bytes, bytes], bool]
COORDINATE_BYTES = {"p-256": 32, "p-384": 48, "p-521": 66}


def verify_ed25519(key: NativeKey, signature: bytes, data: bytes) -> bool:
    assert isinstance(key, Ed25519PublicKey)  # noqa: S101 — the tables below pair algorithms with kinds
    return ed25519.verify(key.public_bytes_raw(), signature, data)


def ecdsa_der(digest: HashAlgorithm) -> SignatureVerifier:
    """Strict DER: the library compares the signature with its own encoding of r and s."""

    def check(key: NativeKey, signature: bytes, data: bytes) -> bool:
        assert isinstance(key, ec.EllipticCurvePublicKey)  # noqa: S101
        return _is_valid(lambda: key.verify(signature, data, ec.ECDSA(digest)))

    return check


def ecdsa_raw(digest: HashAlgorithm, coordinate_bytes: int) -> SignatureVerifier:
    """Verify r‖s, exactly two coordinates (IEEE P1363, RFC 7518 §3.4)."""
    verify_der = ecdsa_der(digest)

    def check(key: NativeKey, signature: bytes, data: bytes) -> bool:
        if len(signature) != 2 * coordinate_bytes:
            return False
        r = int.from_bytes(signature[:coordinate_bytes], "big")
        s = int.from_bytes(signature[coordinate_bytes:], "big")
        return verify_der(key, encode_dss_signature(r, s), data)

    return check


def rsa_pkcs1(digest: HashAlgorithm) -> SignatureVerifier:
    def check(key: NativeKey, signature: bytes, data: bytes) -> bool:
        assert isinstance(key, rsa.RSAPublicKey)  # noqa: S101
        return _is_valid(lambda: key.verify(signature, data, padding.PKCS1v15(), digest))

    return check


def rsa_pss(digest: HashAlgorithm, salt_bytes: int | None) -> SignatureVerifier:
    """Verify PSS with MGF1 over the same hash. `None` accepts a salt of any length, as announcements need."""
    form = padding.PSS(padding.MGF1(digest), padding.PSS.AUTO if salt_bytes is None else salt_bytes)

    def check(key: NativeKey, signature: bytes, data: bytes) -> bool:
        assert isinstance(key, rsa.RSAPublicKey)  # noqa: S101
        return _is_valid(lambda: key.verify(signature, data, form, digest))

    return check


def _is_valid(verify: Callable[[], None]) -> bool:
    try:
        verify()
    except (InvalidSignature, ValueError):
        return False
    return True


JOSE_ALGORITHMS: dict[str, tuple[str, SignatureVerifier]] = {
    "EdDSA": ("ed25519", verify_ed25519),
    "Ed25519": ("ed25519", verify_ed25519),  # RFC 9864: the name that includes the curve
    "ES256": ("p-256", ecdsa_raw(SHA256(), 32)),
    "ES384": ("p-384", ecdsa_raw(SHA384(), 48)),
    "ES512": ("p-521", ecdsa_raw(SHA512(), 66)),
    "RS256": ("rsa", rsa_pkcs1(SHA256())),
    "RS384": ("rsa", rsa_pkcs1(SHA384())),
    "RS512": ("rsa", rsa_pkcs1(SHA512())),
    "PS256": ("rsa", rsa_pss(SHA256(), 32)),
    "PS384": ("rsa", rsa_pss(SHA384(), 48)),
    "PS512": ("rsa", rsa_pss(SHA512(), 64)),
}

_EC_DIGESTS: dict[str, tuple[tuple[str, HashAlgorithm], ...]] = {
    "p-256": (("sha256", SHA256()),),
    "p-384": (("sha384", SHA384()), ("sha256", SHA256())),
    "p-521": (("sha512", SHA512()), ("sha256", SHA256())),
}
_RSA: tuple[tuple[str, SignatureVerifier], ...] = (
    ("rsa-pss-sha256", rsa_pss(SHA256(), None)),
    ("rsa-pkcs1-sha256", rsa_pkcs1(SHA256())),
)
_ED25519: tuple[tuple[str, SignatureVerifier], ...] = (("ed25519", verify_ed25519),)
_EC_DER: dict[str, tuple[tuple[str, SignatureVerifier], ...]] = {
    kind: tuple((f"ecdsa-{name}", ecdsa_der(digest)) for name, digest in digests)
    for kind, digests in _EC_DIGESTS.items()
}
_EC_RAW: dict[str, tuple[tuple[str, SignatureVerifier], ...]] = {
    kind: tuple((f"ecdsa-{name}-raw", ecdsa_raw(digest, COORDINATE_BYTES[kind])) for name, digest in digests)
    for kind, digests in _EC_DIGESTS.items()
}


def announcement_algorithms(kind: str, signature_bytes: int) -> tuple[tuple[str, SignatureVerifier], ...]:
    """Return the algorithms to try for a signature of this length and kind of key: four at most."""
    if kind == "ed25519":
        return _ED25519
    if kind == "rsa":
        return _RSA
    if signature_bytes == 2 * COORDINATE_BYTES[kind]:
        return _EC_RAW[kind] + _EC_DER[kind]
    return _EC_DER[kind]
