"""Signed texts (RFC 7515): compact, detached, and the parts of the JSON form; keys as JWK and JWKS (RFC 7517).

The key that the caller trusts decides the algorithm; the header may only agree. `kid` chooses among the keys that were
given and fetches none. A header that brings a key along, points to one, or marks something as critical is refused, and so
is base64url that has a second reading. It knows no claim, no clock and no network.
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
REFUSED_HEADERS = ("jwk", "jku", "x5u", "x5c", "crit", "b64")
_KID_CHARS = 1024
_HEADER_CHARS = 512  # of one that is remembered


class InvalidJws(Exception):
    """Why a text does not hold, in words that follow a colon."""


class UnknownKey(InvalidJws):
    """It names a key that is not among the given ones: nothing was verified, so nothing is known to be wrong."""


@dataclass(frozen=True, slots=True)
class JoseKey:
    """A key, the name it goes by, and the algorithms that it may be used with."""

    key: PublicKey
    kid: str | None
    algorithms: frozenset[str]


@dataclass(frozen=True, slots=True)
class Jws:
    """A text taken apart, with nothing verified."""

    header: JsonObject
    payload: bytes
    signing_input: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class VerifiedJws:
    """What a given key signed."""

    header: JsonObject
    payload: bytes
    key: JoseKey
    algorithm: str


# --- Keys -----------------------------------------------------------------------------------------


def jose_key(key: PublicKey, *, kid: str | None = None, algorithm: str | None = None) -> JoseKey:
    """A key for use here; with every algorithm of its kind unless one is named."""
    fitting = frozenset(name for name, (kind, _) in JOSE_ALGORITHMS.items() if kind == key.kind)
    if algorithm is None:
        return JoseKey(key, kid, fitting)
    if algorithm not in fitting:
        raise InvalidKey(f"{algorithm[:20]!r} is not an algorithm of this key.", path="alg", hint="Leave `alg` out.")
    return JoseKey(key, kid, frozenset({algorithm}))


def parse_jose_key(value: Any, path: str = "jwk") -> JoseKey:
    """A public JWK that may be used to verify signatures: `use`, `key_ops` and `alg` are obeyed."""
    key = parse_jwk(value, path)
    if value.get("use", "sig") != "sig":
        raise InvalidKey("This JWK is not for signatures.", path=f"{path}.use", hint='Give one with "use": "sig".')
    operations = value.get("key_ops")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        raise InvalidKey("This JWK may not verify.", path=f"{path}.key_ops", hint='Give one with "verify" in it.')
    kid, algorithm = value.get("kid"), value.get("alg")
    if not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
        raise InvalidKey("`kid` and `alg` are texts.", path=path, hint="Write them as strings, or leave them out.")
    if kid is not None and len(kid) > _KID_CHARS:
        raise InvalidKey("The name of this key is too long.", path=f"{path}.kid", hint="Use its thumbprint.")
    return jose_key(key, kid=kid, algorithm=algorithm)


def parse_jwks(data: bytes, path: str = "jwks") -> tuple[JoseKey, ...]:
    """The keys of a JWK set that can be used here. Others are passed over, as RFC 7517 §5 asks; none at all is an error."""
    keys = parse_object(data, max_bytes=limits.JWKS_BYTES).get("keys")
    if not isinstance(keys, list):
        raise InvalidKey("A JWK set has an array `keys`.", path=f"{path}.keys", hint='Write {"keys": […]}.')
    if len(keys) > limits.JWKS_KEYS:
        raise InvalidKey(
            f"The JWK set has {len(keys)} keys; at most {limits.JWKS_KEYS} are read.",
            path=f"{path}.keys",
            hint="Leave out keys that are no longer in use.",
        )
    usable = []
    refusal: InvalidKey | None = None
    for index, value in enumerate(keys):
        try:
            usable.append(parse_jose_key(value, f"{path}.keys[{index}]"))
        except InvalidKey as error:
            refusal = refusal or error
    if not usable:
        raise refusal or InvalidKey("The JWK set is empty.", path=f"{path}.keys", hint="Add a public key.")
    return tuple(usable)


# --- Reading --------------------------------------------------------------------------------------


def parse_compact(text: str) -> Jws:
    """header.payload.signature, taken apart. Its header has been checked, its signature has not."""
    found = _COMPACT.match(text) if len(text) <= limits.JWS_BYTES else None
    if not found:
        raise InvalidJws("it is not a compact JWS")
    header, payload, signature = found.groups()
    return Jws(
        parse_header(header),
        _decoded(payload, "it cannot be read"),
        f"{header}.{payload}".encode(),
        _signature(signature),
    )


def parse_parts(protected: str, signature: str, payload: bytes, *, ignoring: tuple[str, ...] = ()) -> Jws:
    """A signature whose payload is known otherwise: detached, or one of a JSON form."""
    if len(protected) + len(signature) > limits.JWS_BYTES:
        raise InvalidJws("its header and signature are too long")
    signing_input = b".".join((protected.encode("utf-8", "replace"), encode_base64url(payload).encode()))
    return Jws(parse_header(protected, ignoring), payload, signing_input, _signature(signature))


def parse_header(part: str, ignoring: tuple[str, ...] = ()) -> JsonObject:
    """A protected header that asks for nothing that is refused. `ignoring` names members that may stand there unheeded.

    Who signs often writes the same header each time, so it is read once; nobody changes what is given here.
    """
    return _cached_header(part, ignoring) if len(part) <= _HEADER_CHARS else _parse_header(part, ignoring)


def _parse_header(part: str, ignoring: tuple[str, ...]) -> JsonObject:
    try:
        header = parse_object(_decoded(part, "its header cannot be read"), max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise InvalidJws("its header cannot be read") from None
    for name in REFUSED_HEADERS:
        if name in header and name not in ignoring:
            raise InvalidJws(f"its header names {name!r}")
    if not isinstance(header.get("alg"), str) or not isinstance(header.get("kid"), str | None):
        raise InvalidJws("its header names no algorithm, or no text as its key")
    return header


_cached_header = lru_cache(limits.HEADER_CACHE)(_parse_header)


def verify_jws(signed: Jws, keys: Sequence[JoseKey]) -> VerifiedJws:
    """What one of `keys` signed, or NotSigned with the reason."""
    algorithm = signed.header["alg"]
    chosen = choose_key(signed.header, keys)
    if not chosen.key.verify_as(algorithm, signed.signature, signed.signing_input):
        raise InvalidJws("its signature does not hold")
    return VerifiedJws(signed.header, signed.payload, chosen, algorithm)


def choose_key(header: JsonObject, keys: Sequence[JoseKey]) -> JoseKey:
    """The one key that the header can mean. A name that two keys share, or no name among several, means none."""
    kid, algorithm = header.get("kid"), header["alg"]
    if algorithm not in JOSE_ALGORITHMS:
        raise InvalidJws("its algorithm is not one that is accepted")
    named = [key for key in keys if kid is not None and key.kid == kid]
    candidates = named or [key for key in keys if key.kid is None or kid is None]
    if not candidates:
        raise UnknownKey("its key is not known")
    fitting = [key for key in candidates if algorithm in key.algorithms]
    if not fitting:
        raise InvalidJws("its algorithm is not the one of our key")
    if len(fitting) > 1:
        raise UnknownKey("its header does not say which key is meant")
    return fitting[0]


def verify_compact(text: str, keys: Sequence[JoseKey]) -> VerifiedJws:
    return verify_jws(parse_compact(text), keys)


def parse_detached(text: str, payload: bytes) -> Jws:
    """`header..signature` over a payload that travels elsewhere (RFC 7515 appendix F)."""
    header, separator, signature = text.partition("..")
    if not separator:
        raise InvalidJws("it is not a detached JWS")
    return parse_parts(header, signature, payload)


def parse_json_signature(value: Any, payload: bytes, *, ignoring: tuple[str, ...] = ()) -> Jws:
    """One signature of a JSON form: `protected` and `signature`. An unprotected header decides nothing."""
    if not isinstance(value, dict):
        raise InvalidJws("it is not an object")
    protected, signature, unprotected = value.get("protected"), value.get("signature"), value.get("header")
    if not isinstance(protected, str) or not isinstance(signature, str):
        raise InvalidJws("it lacks `protected` or `signature`")
    signed = parse_parts(protected, signature, payload, ignoring=ignoring)
    if isinstance(unprotected, dict) and not signed.header.keys().isdisjoint(unprotected):
        raise InvalidJws("its two headers name the same member")
    return signed


def verify_detached(text: str, payload: bytes, keys: Sequence[JoseKey]) -> VerifiedJws:
    return verify_jws(parse_detached(text, payload), keys)


def _signature(part: str) -> bytes:
    return _decoded(part, "its signature cannot be read")


def _decoded(part: str, otherwise: str) -> bytes:
    try:
        return decode_base64url(part)
    except ValueError:
        raise InvalidJws(otherwise) from None
