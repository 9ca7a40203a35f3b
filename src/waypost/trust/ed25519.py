"""Ed25519 by libsodium: the one place where such signatures are made and verified (docs/decisions/0020).

RFC 8032 without its leeway: s is reduced, neither the key nor R is of small order, the key is the one encoding of its
point, and the equation is the one without the cofactor. Keys are raw bytes or keys of cryptography, which reads and
writes their files. The library does not look at lengths, so everything that it is handed is measured here.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# The module under nacl.bindings: of its hundred functions four are needed, and loading the others takes 30 ms.
from nacl._sodium import ffi, lib

from waypost.trust.edwards import SMALL_ORDER

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_NULL, _BYTES = ffi.NULL, ffi.typeof("unsigned char[]")
_open, _sign, _add = lib.crypto_sign_open, lib.crypto_sign, lib.crypto_core_ed25519_add

if lib.sodium_init() < 0:  # it draws from the system's randomness once
    raise ImportError("libsodium cannot be used on this machine: it finds no source of randomness.")


def verify(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the key of these 32 bytes signed `data`."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES or signature[:32] in SMALL_ORDER:
        return False
    signed = signature + data
    return bool(_open(_NULL, _NULL, signed, len(signed), key) == 0)


def sign(key: Ed25519PrivateKey, data: bytes, public: bytes = b"") -> bytes:
    """Deterministic, so the same bytes as any other library makes.

    Who has the public half at hand spares its computation; two signatures with a wrong one would tell the secret.
    """
    public = public or key.public_key().public_bytes_raw()
    return _sign_short(key.private_bytes_raw() + public, data)


def sign_each(key: Ed25519PrivateKey, texts: Sequence[bytes], public: bytes = b"") -> list[bytes]:
    """The same of several texts. libsodium alone hashes what is signed: a hash that was wrong once could give two texts one
    nonce, and these two signatures would tell the secret."""
    secret = key.private_bytes_raw() + (public or key.public_key().public_bytes_raw())
    return [_sign_short(secret, text) for text in texts]


def _sign_short(secret: bytes, data: bytes) -> bytes:
    signed = ffi.new(_BYTES, SIGNATURE_BYTES + len(data))
    if _sign(signed, _NULL, data, len(data), secret) != 0:
        raise ValueError("libsodium refused to sign")
    return bytes(ffi.buffer(signed, SIGNATURE_BYTES))


def is_point(key: bytes) -> bool:
    """Whether the curve has a point with this y, of whatever order: only points can be added."""
    return len(key) == KEY_BYTES and _add(ffi.new("unsigned char[32]"), key, key) == 0
