"""Private keys. A key of each kind signs with one algorithm.

Ed25519 and P-256 keys are derived from random bytes that the caller passes. RSA keys and the nonces of ECDSA and PSS
are drawn by the library itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from waypost import limits
from waypost.errors import InvalidKey
from waypost.trust.keys import ed25519
from waypost.trust.keys.algorithms import COORDINATE_BYTES
from waypost.trust.keys.public_key import PublicKey, from_native

NativePrivateKey: TypeAlias = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
NEW_KINDS: Final = ("ed25519", "p-256", "rsa")
SEED_BYTES: Final = {
    "ed25519": 32,
    "p-256": 48,
}  # P-256: 128 bits more than the order, so that all scalars are as likely
FINGERPRINT_LABEL: Final = "Public key: "  # in front of the PEM
_RSA_BITS: Final = 3072
_PSS: Final = padding.PSS(padding.MGF1(SHA256()), 32)
_PSS_LONGEST_SALT: Final = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_ORDERS: Final = {
    "p-256": _P256_ORDER,
    "p-384": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
    "p-521": (1 << 521) - 0x05AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
}
_DIGESTS: Final[dict[str, HashAlgorithm]] = {"p-256": SHA256(), "p-384": SHA384(), "p-521": SHA512()}
_ALGORITHMS: Final = {"ed25519": "EdDSA", "p-256": "ES256", "p-384": "ES384", "p-521": "ES512", "rsa": "PS256"}


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A signing key and its public half."""

    public: PublicKey
    native: NativePrivateKey = field(repr=False, compare=False)

    @property
    def jose_algorithm(self) -> str:
        return _ALGORITHMS[self.public.kind]

    def sign(self, data: bytes) -> bytes:
        """Sign as announcements are signed (announce.md P-9): Ed25519, ECDSA in DER with low S, RSA-PSS with a 32-byte
        salt."""
        if self.public.kind == "ed25519":  # every AGP message is signed: `kind` is cheaper than isinstance
            return ed25519.sign(cast(Ed25519PrivateKey, self.native), data, self.public.spki[-ed25519.KEY_BYTES :])
        if isinstance(self.native, ec.EllipticCurvePrivateKey):
            return encode_dss_signature(*self._sign_ecdsa(self.native, data))
        return cast(rsa.RSAPrivateKey, self.native).sign(data, _PSS, SHA256())

    def sign_each(self, texts: Sequence[bytes]) -> list[bytes]:
        """Sign several texts like `sign`; the key is loaded once."""
        if self.public.kind == "ed25519":
            native = cast(Ed25519PrivateKey, self.native)
            return ed25519.sign_many(native, texts, self.public.spki[-ed25519.KEY_BYTES :])
        return [self.sign(text) for text in texts]

    def sign_jose(self, data: bytes) -> bytes:
        """Sign with `jose_algorithm`: like `sign`, but ECDSA as r‖s."""
        if not isinstance(self.native, ec.EllipticCurvePrivateKey):
            return self.sign(data)
        size = COORDINATE_BYTES[self.public.kind]
        return b"".join(part.to_bytes(size, "big") for part in self._sign_ecdsa(self.native, data))

    def sign_for_older_readers(self, data: bytes) -> bytes:
        """Sign with the longest RSA-PSS salt, the only one that the first implementation of announce verifies."""
        if isinstance(self.native, rsa.RSAPrivateKey):
            return self.native.sign(data, _PSS_LONGEST_SALT, SHA256())
        return self.sign(data)

    def pem(self) -> bytes:
        """Return unencrypted PKCS #8: only its owner may read the file it is written to."""
        return self.native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def key_file(self) -> bytes:
        """Return the PEM with the fingerprint of its public key in front (explanatory text, RFC 7468). It detects damage: any
        32 bytes are a valid Ed25519 key."""
        return f"{FINGERPRINT_LABEL}{self.public.key_id}\n".encode() + self.pem()

    def _sign_ecdsa(self, native: ec.EllipticCurvePrivateKey, data: bytes) -> tuple[int, int]:
        order = _ORDERS[self.public.kind]
        r, s = decode_dss_signature(native.sign(data, ec.ECDSA(_DIGESTS[self.public.kind])))
        return r, min(s, order - s)  # both are valid; some verifiers accept the lower one only


def new_private_key(kind: str = "ed25519", random: bytes = b"") -> PrivateKey:
    """Make a key from SEED_BYTES random bytes of its kind; RSA takes none."""
    if kind not in NEW_KINDS:
        raise InvalidKey(f"{kind[:20]!r} is not a kind of key.", path="kind", hint=f"Use {', '.join(NEW_KINDS)}.")
    if len(random) != SEED_BYTES.get(kind, 0):
        raise ValueError(f"a key of the kind {kind} needs {SEED_BYTES.get(kind, 0)} random bytes")
    if kind == "ed25519":
        return from_native_private(Ed25519PrivateKey.from_private_bytes(random))
    if kind == "p-256":
        scalar = int.from_bytes(random, "big") % (_P256_ORDER - 1) + 1
        return from_native_private(ec.derive_private_key(scalar, ec.SECP256R1()))
    return from_native_private(rsa.generate_private_key(limits.RSA_EXPONENT_MIN, _RSA_BITS))


def load_private_key(pem: bytes, path: str = "key") -> PrivateKey:
    """Load a key from an unencrypted PEM. A fingerprint in front of it must be that of the key."""
    try:
        key = from_native_private(load_pem_private_key(pem, None), path)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidKey(
            "This is not a private key in PEM without a password.", path=path, hint="Make one with `waypost keys new`."
        ) from None
    label = FINGERPRINT_LABEL.encode()
    if pem.startswith(label) and not pem.startswith(label + f"{key.public.key_id}\n".encode()):
        raise InvalidKey(
            "The file is damaged: the key does not match the fingerprint in front of it.",
            path=path,
            hint="Restore it from a backup.",
        )
    return key


def from_native_private(native: object, path: str = "key") -> PrivateKey:
    if not isinstance(native, Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise InvalidKey("Keys of this kind are not accepted.", path=path, hint="Make one with `waypost keys new`.")
    return PrivateKey(from_native(native.public_key(), path), native)
