"""JWS (RFC 7515): compact, detached and JSON form; keys as JWK and JWKS (RFC 7517).

The caller's key decides the algorithm; the header may only agree. `kid` selects one of the given keys and never fetches
one. Headers that embed a key, point to one, or mark a member as critical are rejected, and so is base64url that is not
canonical. Claims are checked in `jwt.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from waypost import limits
from waypost.errors import InvalidKey, WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.trust.encodings import decode_base64url, encode_base64url
from waypost.trust.keys.algorithms import JOSE_ALGORITHMS
from waypost.trust.keys.public_key import PublicKey, parse_jwk

_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]+)\Z")  # no padding, no spaces
REJECTED_HEADERS = ("jwk", "jku", "x5u", "x5c", "crit", "b64")
_KID_CHARS = 1024
_BAD_SIGNATURE_TEXT = "its signature is not base64url"
_HEADER_CHARS = 512  # of a header that is cached


class InvalidJws(Exception):
    """The reason why a JWS is invalid, as a clause that can follow a colon."""


class UnknownKey(InvalidJws):
    """The JWS names a key that is not among the given ones: nothing was verified, so it is not known to be wrong."""


@dataclass(frozen=True, slots=True)
class JoseKey:
    """A key, its name, and the algorithms that it may be used with."""

    key: PublicKey
    kid: str | None
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Jws:
    """A parsed JWS; nothing is verified."""

    header: JsonObject
    payload: bytes
    signing_input: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class VerifiedJws:
    """A JWS that a given key signed."""

    header: JsonObject
    payload: bytes
    key: JoseKey
    algorithm: str


# --- Keys -----------------------------------------------------------------------------------------


def jose_key(key: PublicKey, *, kid: str | None = None, algorithm: str | None = None) -> JoseKey:
    """Make a key for all algorithms of its kind, or for one."""
    fitting = frozenset(name for name, (kind, _) in JOSE_ALGORITHMS.items() if kind == key.kind)
    if algorithm is None:
        return JoseKey(key, kid, fitting)
    if algorithm not in fitting:
        raise InvalidKey(f"{algorithm[:20]!r} is not an algorithm of this key.", path="alg", hint="Leave `alg` out.")
    return JoseKey(key, kid, frozenset({algorithm}))


def parse_jose_key(value: Any, path: str = "jwk") -> JoseKey:
    """Parse a public JWK that may verify signatures: `use`, `key_ops` and `alg` are respected."""
    key = parse_jwk(value, path)
    if value.get("use", "sig") != "sig":
        raise InvalidKey("This JWK is not for signatures.", path=f"{path}.use", hint='Give one with "use": "sig".')
    operations = value.get("key_ops")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        raise InvalidKey("This JWK may not verify.", path=f"{path}.key_ops", hint='Give one with "verify" in it.')
    kid, algorithm = value.get("kid"), value.get("alg")
    if not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
        raise InvalidKey(
            "`kid` and `alg` must be strings.", path=path, hint="Write them as strings, or leave them out."
        )
    if kid is not None and len(kid) > _KID_CHARS:
        raise InvalidKey("The name of this key is too long.", path=f"{path}.kid", hint="Use its thumbprint.")
    return jose_key(key, kid=kid, algorithm=algorithm)


def parse_jwks(data: bytes, path: str = "jwks") -> tuple[JoseKey, ...]:
    """Return the usable keys of a JWK set. Others are skipped, as RFC 7517 §5 asks; a set without a usable key is an
    error."""
    keys = parse_object(data, max_bytes=limits.JWKS_BYTES).get("keys")
    if not isinstance(keys, list):
        raise InvalidKey("A JWK set must have an array `keys`.", path=f"{path}.keys", hint='Write {"keys": […]}.')
    if len(keys) > limits.JWKS_KEYS:
        raise InvalidKey(
            f"The JWK set has {len(keys)} keys; at most {limits.JWKS_KEYS} are allowed.",
            path=f"{path}.keys",
            hint="Leave out keys that are no longer in use.",
        )
    usable = []
    first_error: InvalidKey | None = None
    for index, value in enumerate(keys):
        try:
            usable.append(parse_jose_key(value, f"{path}.keys[{index}]"))
        except InvalidKey as error:
            first_error = first_error or error
    if not usable:
        raise first_error or InvalidKey("The JWK set is empty.", path=f"{path}.keys", hint="Add a public key.")
    return tuple(usable)


# --- JWS ------------------------------------------------------------------------------------------


def parse_compact(text: str) -> Jws:
    """Parse header.payload.signature. The header is checked, the signature is not."""
    found = _COMPACT.match(text) if len(text) <= limits.JWS_BYTES else None
    if not found:
        raise InvalidJws("expected a JWT (three parts separated by dots)")
    header, payload, signature = found.groups()
    return Jws(
        parse_header(header),
        _decode(payload, "its payload is not base64url"),
        f"{header}.{payload}".encode(),
        _decode(signature, _BAD_SIGNATURE_TEXT),
    )


def parse_parts(protected: str, signature: str, payload: bytes, *, ignoring: tuple[str, ...] = ()) -> Jws:
    """Parse a signature whose payload is passed separately: detached, or of the JSON form."""
    if len(protected) + len(signature) > limits.JWS_BYTES:
        raise InvalidJws("its header and signature are too long")
    signing_input = b".".join((protected.encode("utf-8", "replace"), encode_base64url(payload).encode()))
    return Jws(parse_header(protected, ignoring), payload, signing_input, _decode(signature, _BAD_SIGNATURE_TEXT))


def parse_header(part: str, ignoring: tuple[str, ...] = ()) -> JsonObject:
    """Parse a protected header. `ignoring` lists otherwise rejected members that are ignored.

    Signers repeat their headers, so short ones are cached. The result is shared: do not change it.
    """
    return _cached_header(part, ignoring) if len(part) <= _HEADER_CHARS else _parse_header(part, ignoring)


def _parse_header(part: str, ignoring: tuple[str, ...]) -> JsonObject:
    try:
        header = parse_object(_decode(part, "its header is not base64url"), max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise InvalidJws("its header is not a JSON object") from None
    for name in REJECTED_HEADERS:
        if name in header and name not in ignoring:
            raise InvalidJws(f"its header has the member {name!r}, which is not allowed")
    if not isinstance(header.get("alg"), str) or not isinstance(header.get("kid"), str | None):
        raise InvalidJws("its header needs `alg`, and `kid` must be a string")
    return header


_cached_header = lru_cache(limits.HEADER_CACHE)(_parse_header)


def verify_jws(signed: Jws, keys: Sequence[JoseKey]) -> VerifiedJws:
    """Verify a JWS with one of `keys`; raises InvalidJws with the reason."""
    algorithm = signed.header["alg"]
    chosen = choose_key(signed.header, keys)
    if not chosen.key.verify_as(algorithm, signed.signature, signed.signing_input):
        raise InvalidJws("its signature is invalid")
    return VerifiedJws(signed.header, signed.payload, chosen, algorithm)


def choose_key(header: JsonObject, keys: Sequence[JoseKey]) -> JoseKey:
    """Return the one key that the header selects; an ambiguous `kid`, or none among several keys, is an error."""
    kid, algorithm = header.get("kid"), header["alg"]
    if algorithm not in JOSE_ALGORITHMS:
        raise InvalidJws("its algorithm is not accepted")
    named = [key for key in keys if kid is not None and key.kid == kid]
    candidates = named or [key for key in keys if key.kid is None or kid is None]
    if not candidates:
        raise UnknownKey("its key is unknown")
    fitting = [key for key in candidates if algorithm in key.algorithms]
    if not fitting:
        raise InvalidJws("its algorithm is not the one of the key")
    if len(fitting) > 1:
        raise UnknownKey("its header does not identify one key")
    return fitting[0]


def verify_compact(text: str, keys: Sequence[JoseKey]) -> VerifiedJws:
    return verify_jws(parse_compact(text), keys)


def parse_detached(text: str, payload: bytes) -> Jws:
    """Parse `header..signature` over a separate payload (RFC 7515 appendix F)."""
    header, separator, signature = text.partition("..")
    if not separator:
        raise InvalidJws("it is not a detached JWS")
    return parse_parts(header, signature, payload)


def parse_json_signature(value: Any, payload: bytes, *, ignoring: tuple[str, ...] = ()) -> Jws:
    """Parse one signature of the JSON form: `protected` and `signature`. The unprotected header is ignored."""
    if not isinstance(value, dict):
        raise InvalidJws("it is not an object")
    protected, signature, unprotected = value.get("protected"), value.get("signature"), value.get("header")
    if not isinstance(protected, str) or not isinstance(signature, str):
        raise InvalidJws("it lacks `protected` or `signature`")
    signed = parse_parts(protected, signature, payload, ignoring=ignoring)
    if isinstance(unprotected, dict) and not signed.header.keys().isdisjoint(unprotected):
        raise InvalidJws("its two headers have a member in common")
    return signed


def _decode(part: str, otherwise: str) -> bytes:
    try:
        return decode_base64url(part)
    except ValueError:
        raise InvalidJws(otherwise) from None
