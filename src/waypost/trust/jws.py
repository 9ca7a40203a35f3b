"""Signed texts in their compact form (RFC 7515 §3.1), with one algorithm: EdDSA on Ed25519 (RFC 8037).

The key decides the algorithm. A header that names another one, brings a key along or marks something as critical is
refused, and so is base64url that has more than one reading. It knows no claim and no clock.
"""

from __future__ import annotations

import base64
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object

ALGORITHM = "EdDSA"
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")  # no padding, no spaces
_MOST_CHARS = 8 * limits.KIB
_REFUSED_HEADERS = ("jwk", "jku", "x5u", "x5c", "crit", "b64")


class NotSigned(Exception):
    """Why a text does not hold, in words that follow a colon."""


def sign(key: Ed25519PrivateKey, payload: JsonObject, *, key_id: str) -> str:
    header = {"alg": ALGORITHM, "kid": key_id, "typ": "JWT"}
    signed = f"{_encode(dump_json(header))}.{_encode(dump_json(payload))}"
    return f"{signed}.{_encode(key.sign(signed.encode()))}"


def verify(key: Ed25519PublicKey, text: str) -> JsonObject:
    """The payload of a text that `key` signed, or NotSigned."""
    if len(text) > _MOST_CHARS or not _COMPACT.match(text):
        raise NotSigned("it is not a compact JWT")
    signed, _, signature = text.rpartition(".")
    header, payload = signed.split(".")
    _check_header(_object(header, "its header cannot be read"))
    try:
        key.verify(_decode(signature), signed.encode())
    except (InvalidSignature, ValueError):
        raise NotSigned("its signature does not hold") from None
    return _object(payload, "it cannot be read")


def peek(text: str) -> JsonObject:
    """The payload without checking anything, to show it to the one who holds it."""
    return parse_object(_decode(text.split(".")[1]))


def _check_header(header: JsonObject) -> None:
    if header.get("alg") != ALGORITHM:
        raise NotSigned("its algorithm is not the one of our key")
    for name in _REFUSED_HEADERS:
        if name in header:
            raise NotSigned(f"its header names {name!r}")


def _object(part: str, otherwise: str) -> JsonObject:
    try:
        return parse_object(_decode(part), max_bytes=_MOST_CHARS)
    except (ValueError, WaypostError):
        raise NotSigned(otherwise) from None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(part: str) -> bytes:
    """Bytes of base64url without padding. The same bytes written otherwise are refused."""
    data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    if _encode(data) != part:
        raise ValueError("not canonical")
    return data
