"""Public keys: every accepted encoding becomes one `PublicKey`; weak and malformed keys are rejected.

A key is identified by the hash of its DER form (`key_id`), whatever its encoding. The algorithm follows from the key,
never from the signed text. Certificates are parsed in `certificates.py`; keys have no dates.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from waypost import limits
from waypost.errors import InvalidKey
from waypost.model.json import JsonObject, dump_json
from waypost.trust.encodings import decode_base64, decode_base64url, encode_base64, encode_base64url
from waypost.trust.keys import algorithms, ed25519

KEY_ID: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_ACCEPTED: Final = "Use Ed25519, ECDSA on P-256, P-384 or P-521, or RSA of 2048 to 8192 bits with the exponent 65537."
_PRIVATE_PEM: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PEM: Final = re.compile(r"\s*-----BEGIN ([A-Z0-9 ]{1,40})-----\s([A-Za-z0-9+/=\s]*)-----END \1-----\s*\Z")
_CURVES: Final = {"secp256r1": "p-256", "secp384r1": "p-384", "secp521r1": "p-521"}
_JWK_CURVES: Final[dict[str, tuple[str, ec.EllipticCurve]]] = {
    "P-256": ("p-256", ec.SECP256R1()),
    "P-384": ("p-384", ec.SECP384R1()),
    "P-521": ("p-521", ec.SECP521R1()),
}


@dataclass(frozen=True)
class PublicKey:
    """An accepted key. `certificate` is the DER it came in, for checks of dates and chains."""

    kind: str
    spki: bytes
    native: algorithms.NativeKey = field(repr=False, compare=False)
    certificate: bytes | None = field(default=None, repr=False, compare=False)

    @cached_property
    def key_id(self) -> str:
        return "sha256:" + hashlib.sha256(self.spki).hexdigest()

    @property
    def raw(self) -> bytes | None:
        """Return the 32 bytes of an Ed25519 key; None for other kinds."""
        return self.native.public_bytes_raw() if isinstance(self.native, Ed25519PublicKey) else None

    def fingerprint(self) -> str | None:
        """Return ADP's name of the key (adp.md §0); None unless it is Ed25519."""
        raw = self.raw
        return None if raw is None else "ed25519:" + encode_base64url(hashlib.sha256(raw).digest())

    def verify(self, signature: bytes, data: bytes) -> bool:
        if self.kind == "ed25519":  # fast path for AGP messages; the DER ends with the key (RFC 8410)
            return ed25519.verify(self.spki[-ed25519.KEY_BYTES :], signature, data)
        return self.find_algorithm(signature, data) is not None

    def find_algorithm(self, signature: bytes, data: bytes) -> str | None:
        """Return the announcement algorithm by which this key signed `data`; None if it did not."""
        for name, check in algorithms.announcement_algorithms(self.kind, len(signature)):
            if check(self.native, signature, data):
                return name
        return None

    def verify_as(self, jose_algorithm: str, signature: bytes, data: bytes) -> bool:
        """Verify with one JOSE algorithm. An algorithm of another kind of key is never valid."""
        kind, check = algorithms.JOSE_ALGORITHMS[jose_algorithm]
        return kind == self.kind and check(self.native, signature, data)

    def jwk(self) -> dict[str, str]:
        """Return the members that RFC 7638 hashes, in its order."""
        match self.native:
            case Ed25519PublicKey():
                return {"crv": "Ed25519", "kty": "OKP", "x": encode_base64url(self.native.public_bytes_raw())}
            case rsa.RSAPublicKey():
                numbers = self.native.public_numbers()
                return {"e": _number(numbers.e), "kty": "RSA", "n": _number(numbers.n)}
            case _:
                point, size = self.native.public_numbers(), algorithms.COORDINATE_BYTES[self.kind]
                x, y = (encode_base64url(value.to_bytes(size, "big")) for value in (point.x, point.y))
                return {"crv": self.kind.upper(), "kty": "EC", "x": x, "y": y}

    @cached_property
    def names(self) -> frozenset[str]:
        """All names of the key: key id, thumbprint and fingerprint."""
        return frozenset((self.key_id, self.thumbprint(), self.fingerprint() or self.key_id))

    def thumbprint(self) -> str:
        """Return the JWK thumbprint (RFC 7638) with SHA-256."""
        return encode_base64url(hashlib.sha256(dump_json(self.jwk())).digest())

    def pem(self) -> str:
        body = encode_base64(self.spki)
        lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
        return f"-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n"


def parse_pem(text: str, path: str = "public_key") -> PublicKey:
    """Parse one PEM block `PUBLIC KEY`."""
    label, der = read_pem(text, path)
    if label != "PUBLIC KEY":
        raise _rejected(f"This PEM block is a {label}, not a PUBLIC KEY.", path)
    return require_point(parse_der(der, path), path)


def read_pem(text: str, path: str = "public_key") -> tuple[str, bytes]:
    """Return the label and the bytes of exactly one PEM block."""
    if len(text) > limits.KEY_BYTES:
        raise _rejected(f"The key has {len(text)} characters; at most {limits.KEY_BYTES} are allowed.", path)
    if _PRIVATE_PEM.search(text):  # also behind explanatory text, as `waypost keys new` writes it
        raise _rejected(
            "This is a private key.", path, "Keep it, and send the public key; make a new pair if it leaked."
        )
    found = _PEM.match(text)
    if not found:
        raise _rejected("This is not one PEM block.", path, "Send -----BEGIN PUBLIC KEY----- … with nothing around it.")
    return found[1], _decoded("".join(found[2].split()), path)


def parse_base64_der(text: str, path: str = "public_key") -> PublicKey:
    """Parse the base64 of a SubjectPublicKeyInfo without PEM lines, which announcements may use."""
    if len(text) > limits.KEY_BYTES:
        raise _rejected(f"The key has {len(text)} characters; at most {limits.KEY_BYTES} are allowed.", path)
    return parse_der(_decoded(text, path), path)


def parse_der(der: bytes, path: str = "public_key") -> PublicKey:
    """Parse a SubjectPublicKeyInfo. `require_point`, or its first signature, checks that an Ed25519 key is a point."""
    if len(der) > limits.KEY_BYTES:
        raise _rejected(f"The key has {len(der)} bytes; at most {limits.KEY_BYTES} are allowed.", path)
    try:
        native = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise _rejected("The key cannot be read.", path) from None
    return from_native(native, path)


def parse_ed25519_raw(raw: bytes, path: str = "public_key") -> PublicKey:
    if len(raw) != 32:
        raise _rejected(f"An Ed25519 key has 32 bytes, not {len(raw)}.", path)
    return require_point(from_native(Ed25519PublicKey.from_public_bytes(raw), path), path)


def parse_jwk(value: Any, path: str = "jwk") -> PublicKey:
    """Parse a public JWK (RFC 7517). `jose.py` reads its permitted uses."""
    if not isinstance(value, dict):
        raise _rejected("A JWK must be an object.", path)
    if "d" in value:
        raise _rejected(
            "This JWK contains a private key.", path, "Publish it without its private members, and replace it."
        )
    match value.get("kty"), value.get("crv"):
        case "OKP", "Ed25519":
            return parse_ed25519_raw(_member(value, "x", path), path)
        case "EC", ("P-256" | "P-384" | "P-521") as curve:
            return from_native(_ec_key(value, curve, path), path)
        case "RSA", None:
            return from_native(_rsa_key(value, path), path)
    raise _rejected(f"A JWK of the type {str(value.get('kty'))[:20]!r} with this curve is not accepted.", path)


def from_native(native: object, path: str = "public_key") -> PublicKey:
    """Wrap a key of `cryptography` if it is of an accepted kind and not weak."""
    match native:
        case Ed25519PublicKey():
            _check_ed25519(native.public_bytes_raw(), path)
            kind = "ed25519"
        case ec.EllipticCurvePublicKey() if native.curve.name in _CURVES:
            kind = _CURVES[native.curve.name]
        case rsa.RSAPublicKey():
            _check_rsa(native.public_numbers(), path)
            kind = "rsa"
        case _:
            raise _rejected("Keys of this kind are not accepted.", path)
    return PublicKey(kind, native.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), native)


def require_point(key: PublicKey, path: str = "public_key") -> PublicKey:
    """Reject an Ed25519 key that is not a point of the curve; keys on other curves are checked when they are loaded.

    The check costs a quarter of a verification, and such a key verifies nothing anyway. So it runs only where a key is
    accepted without a signature.
    """
    if key.raw is not None and not ed25519.is_point(key.raw):
        raise _rejected("This Ed25519 key does not encode a point on its curve.", path)
    return key


def _check_ed25519(raw: bytes, path: str) -> None:
    if ed25519.is_small_order(raw):
        raise _rejected("This Ed25519 key is of small order: anyone could sign for it.", path)
    if not ed25519.is_canonical(raw):
        raise _rejected("This Ed25519 key is not canonically encoded.", path)


def _check_rsa(numbers: rsa.RSAPublicNumbers, path: str) -> None:
    bits = numbers.n.bit_length()
    if not limits.RSA_BITS_MIN <= bits <= limits.RSA_BITS_MAX:
        raise _rejected(f"This RSA key has {bits} bits.", path)
    if numbers.e < limits.RSA_EXPONENT_MIN or numbers.e % 2 == 0:
        raise _rejected("The public exponent of this RSA key is too small or even.", path)
    if numbers.n % 2 == 0:
        raise _rejected("The modulus of this RSA key is even.", path)
    if is_roca_weak(numbers.n):
        raise _rejected("This RSA key comes from a predictable generator (ROCA, CVE-2017-15361).", path)


def _ec_key(value: JsonObject, curve_name: str, path: str) -> ec.EllipticCurvePublicKey:
    kind, curve = _JWK_CURVES[curve_name]
    size = algorithms.COORDINATE_BYTES[kind]
    x, y = _member(value, "x", path), _member(value, "y", path)
    if len(x) != size or len(y) != size:
        raise _rejected(f"The coordinates of a {curve_name} key have {size} bytes.", path)
    numbers = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), curve)
    try:
        return numbers.public_key()
    except ValueError:
        raise _rejected(f"The point is not on {curve_name}.", path) from None


def _rsa_key(value: JsonObject, path: str) -> rsa.RSAPublicKey:
    n, e = _member(value, "n", path), _member(value, "e", path)
    if n[:1] == b"\0" or e[:1] == b"\0":
        raise _rejected("The numbers of an RSA key must have no leading zeros.", path)
    if len(n) * 8 > limits.RSA_BITS_MAX or len(e) > 8:
        raise _rejected("This RSA key is too large.", path)
    numbers = rsa.RSAPublicNumbers(int.from_bytes(e, "big"), int.from_bytes(n, "big"))
    try:
        return numbers.public_key()
    except ValueError:
        raise _rejected("This is not an RSA key.", path) from None


def _member(value: JsonObject, name: str, path: str) -> bytes:
    text = value.get(name)
    if not isinstance(text, str) or not text or len(text) > limits.KEY_BYTES:
        raise _rejected(f"The JWK lacks the member {name!r}.", path)
    try:
        return decode_base64url(text)
    except ValueError:
        raise _rejected(f"The member {name!r} is not base64url without padding.", path) from None


def _decoded(text: str, path: str) -> bytes:
    try:
        return decode_base64(text)
    except ValueError:
        raise _rejected("The key is not base64.", path) from None


def _number(value: int) -> str:
    return encode_base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _rejected(message: str, path: str, hint: str = _ACCEPTED) -> InvalidKey:
    return InvalidKey(message, path=path, hint=hint)


# --- ROCA -----------------------------------------------------------------------------------------

_PRIMES = (
    *(3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97),
    *(101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167),
)


def _powers(prime: int) -> frozenset[int]:
    found, power = {1}, 65_537 % prime
    while power not in found:
        found.add(power)
        power = power * 65_537 % prime
    return frozenset(found)


_FINGERPRINTS = tuple((prime, powers) for prime in _PRIMES if len(powers := _powers(prime)) < prime - 1)


def is_roca_weak(modulus: int) -> bool:
    """Return whether an RSA modulus comes from the generator of CVE-2017-15361, whose primes can be guessed.

    Its primes are powers of 65537 modulo a product of small primes, and so is the modulus. Another modulus has this
    property for all of them once in 2^27 keys.
    """
    return all(modulus % prime in powers for prime, powers in _FINGERPRINTS)
