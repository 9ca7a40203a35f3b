"""Ed25519 by libsodium: the only place where such signatures are made and verified (docs/decisions/0020).

Verification is RFC 8032 at its strictest: s is reduced, neither the key nor R is of small order, the key is canonically
encoded, and the equation is the one without the cofactor. libsodium checks all of this; R is checked here as well, so
that it does not depend on the version. The bindings check no lengths, so they are checked here. Keys are raw bytes, or
keys of `cryptography`, which reads and writes their files.

With a key of small order one constant signature verifies many messages, or all of them, so anyone could sign for its
agent. Such keys are rejected by their encoding (RFC 8032 §5.1.3); libsodium does all arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.bindings import crypto_core_ed25519_add, crypto_sign, crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.exceptions import RuntimeError as SodiumError

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_PRIME: Final = 2**255 - 19
_SIGN_BIT: Final = 1 << 255
_ORDER_8_Y: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER_Y: Final = (0, 1, _PRIME - 1, _ORDER_8_Y, _PRIME - _ORDER_8_Y, _PRIME, _PRIME + 1)  # last two: not reduced
SMALL_ORDER: Final = frozenset((y | sign).to_bytes(32, "little") for y in _SMALL_ORDER_Y for sign in (0, _SIGN_BIT))


def is_small_order(encoded: bytes) -> bool:
    """Return whether 32 bytes encode one of the eight points of small order, in any of their 14 encodings."""
    return encoded in SMALL_ORDER


def is_canonical(encoded: bytes) -> bool:
    """Return whether 32 bytes are the one encoding of their point. (A sign of x = 0 occurs in small orders only.)"""
    return int.from_bytes(encoded, "little") & ~_SIGN_BIT < _PRIME


def is_point(key: bytes) -> bool:
    """Return whether the bytes encode a point of the curve, of any order: libsodium adds only points."""
    if len(key) != KEY_BYTES:
        return False
    try:
        crypto_core_ed25519_add(key, key)
    except SodiumError:
        return False
    return True


def verify(key: bytes, signature: bytes, data: bytes) -> bool:
    """Return whether the key with these 32 bytes signed `data`."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES or signature[:32] in SMALL_ORDER:
        return False
    try:
        crypto_sign_open(signature + data, key)
    except BadSignatureError:
        return False
    return True


def sign(key: Ed25519PrivateKey, data: bytes, public: bytes = b"") -> bytes:
    """Sign `data`; deterministic, so every library makes the same bytes.

    `public` saves computing the public half. It must belong to `key`: two signatures with a wrong one reveal the
    secret.
    """
    return _sign(_secret(key, public), data)


def sign_many(key: Ed25519PrivateKey, texts: Sequence[bytes], public: bytes = b"") -> list[bytes]:
    """Sign several texts; the key is loaded once."""
    secret = _secret(key, public)
    return [_sign(secret, text) for text in texts]


def _secret(key: Ed25519PrivateKey, public: bytes) -> bytes:
    return key.private_bytes_raw() + (public or key.public_key().public_bytes_raw())


def _sign(secret: bytes, data: bytes) -> bytes:
    return crypto_sign(data, secret)[:SIGNATURE_BYTES]
