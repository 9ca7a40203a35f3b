"""What the claims of a token must say (RFC 7519), whoever issued it. It verifies no signature."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from waypost import limits
from waypost.model.json import JsonObject
from waypost.model.principal import SCOPES
from waypost.trust.jose import NotSigned

REQUIRED = ("exp", "sub", "aud", "iss")
_TYPES = frozenset(("jwt", "at+jwt"))
_OF_AN_ID_TOKEN = (
    "nonce",
    "at_hash",
    "c_hash",
)  # it tells a client who logged in; it is no right to ask us for anything
_JTI_CHARS = 64


def check_type(header: JsonObject) -> None:
    """A signed text of another kind, a logout or a proof of possession, is no token."""
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
        raise NotSigned("it is not an access token")


def check_parties(claims: JsonObject, *, issuer: str, audience: str) -> None:
    for name in REQUIRED:
        if claims.get(name) is None:
            raise NotSigned(f"it lacks the claim {name!r}")
    for name in _OF_AN_ID_TOKEN:
        if name in claims:
            raise NotSigned("it is an ID token")
    if claims["iss"] != issuer:
        raise NotSigned("it is of another issuer")
    meant_for = claims["aud"]
    if audience not in (meant_for if isinstance(meant_for, list) else [meant_for]):
        raise NotSigned("it is for another audience")


def check_times(claims: JsonObject, now: float, *, leeway: float) -> float:
    """When it ends. Without `iat` its lifetime is counted from now."""
    expires_at = _instant(claims["exp"])
    issued_at = _instant(claims.get("iat", now))
    if now >= expires_at + leeway:
        raise NotSigned("it has expired")
    if issued_at > now + limits.TOKEN_LEEWAY_SECONDS or _instant(claims.get("nbf", now)) > now + leeway:
        raise NotSigned("it is from the future")
    if expires_at - issued_at > limits.TOKEN_TTL_MAX_SECONDS:
        raise NotSigned("its lifetime is too long")
    return expires_at


def _instant(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise NotSigned("its times are not numbers")
    return float(value)


def subject_of(claims: JsonObject) -> str:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= limits.SUBJECT_CHARS or not subject.isprintable():
        raise NotSigned("it names no subject")
    return subject


def scopes_of(claims: JsonObject) -> frozenset[str]:
    """`scope` is a text with spaces, `scp` an array. A scope in another shape or place is none."""
    scope = claims.get("scope")
    if isinstance(scope, str):
        named = scope.split(" ")
    else:
        listed = claims.get("scp") if scope is None else None
        named = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    return frozenset(item for item in named if item in SCOPES)


def credential_of(claims: JsonObject, token: str) -> str:
    """The name of a token for the audit trail: its `jti`, else a piece of its hash. Never the token."""
    given = claims.get("jti")
    if isinstance(given, str) and 0 < len(given) <= _JTI_CHARS and given.isascii() and given.isprintable():
        return f"jwt:{given}"
    return f"jwt:#{hashlib.sha256(token.encode()).hexdigest()[:12]}"
