"""Tokens: JWTs that we mint and verify. Our key decides the algorithm, never the token (J1…J10 of the threat list)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from waypost import limits
from waypost.errors import InvalidParameter, Unauthorized
from waypost.model.principal import SCOPES, Principal
from waypost.trust import jws

_REQUIRED = ("exp", "iat", "sub", "aud", "iss")
_TTL = re.compile(r"(\d{1,7})(s|m|h|d)?\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}


def new_key_pem(seed: bytes) -> bytes:
    """A PKCS #8 PEM of an Ed25519 key from 32 random bytes."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_key(pem: bytes) -> Ed25519PrivateKey:
    key = load_pem_private_key(pem, None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the token key must be Ed25519")
    return key


def parse_duration(text: str, path: str = "ttl") -> int:
    """`90`, `90s`, `15m`, `1h`, `1d` in seconds."""
    found = _TTL.match(text.strip())
    if not found or int(found[1]) == 0:
        raise InvalidParameter(f"{text[:20]!r} is not a duration.", path=path, hint="Write it like 15m, 1h or 1d.")
    return int(found[1]) * _UNITS[found[2]]


def check_scopes(scopes: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidParameter(f"{scope[:40]!r} is not a scope.", path="scopes", hint=f"Use {', '.join(SCOPES)}.")
    if not scopes:
        raise InvalidParameter("A token needs at least one scope.", path="scopes", hint=f"Use {', '.join(SCOPES)}.")
    return tuple(dict.fromkeys(scopes))


def mint(
    key: Ed25519PrivateKey,
    *,
    issuer: str,
    audience: str,
    subject: str,
    scopes: tuple[str, ...],
    ttl_seconds: int,
    now: float,
    token_id: str,
) -> str:
    """A signed token. Its lifetime is bounded: a lost token must not be good for ever."""
    if not 0 < ttl_seconds <= limits.TOKEN_TTL_MAX_SECONDS:
        raise InvalidParameter(
            f"A token lives between 1 s and {limits.TOKEN_TTL_MAX_SECONDS} s.", path="ttl_seconds", hint="Use e.g. 1h."
        )
    if not subject or len(subject) > 256 or not subject.isprintable():
        raise InvalidParameter("A subject is a printable text of 1 to 256 characters.", path="sub")
    claims = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "scope": " ".join(check_scopes(scopes)),
        "iat": int(now),
        "exp": int(now) + ttl_seconds,
        "jti": token_id,
    }
    return jws.sign(key, claims, key_id="waypost")


class Verified(msgspec.Struct, frozen=True):
    principal: Principal
    expires_at: float
    token_id: str


class Verifier:
    """Checks tokens of our own issuer."""

    def __init__(self, key: Ed25519PublicKey, *, issuer: str, audience: str) -> None:
        self._key = jws.own_key(key)
        self._issuer = issuer
        self._audience = audience

    def verify(self, token: str, now: float) -> Verified:
        """The principal of a token that holds, or Unauthorized with the reason."""
        try:
            claims = jws.verify(self._key, token)
        except jws.NotSigned as error:
            raise _refused(str(error)) from None
        self._check_parties(claims)
        return self._principal(claims, now)

    def _check_parties(self, claims: dict[str, Any]) -> None:
        for name in _REQUIRED:
            if claims.get(name) is None:
                raise _refused(f"it lacks the claim {name!r}")
        if claims["iss"] != self._issuer:
            raise _refused("it is of another issuer")
        meant_for = claims["aud"]
        if self._audience not in (meant_for if isinstance(meant_for, list) else [meant_for]):
            raise _refused("it is for another audience")

    def _principal(self, claims: dict[str, Any], now: float) -> Verified:
        expires_at, issued_at = claims["exp"], claims["iat"]
        if not _is_whole(expires_at) or not _is_whole(issued_at):
            raise _refused("its times are not whole numbers")
        if now >= expires_at:  # minted by the clock that it is checked by: no leeway, it ends when it was said to end
            raise _refused("it has expired")
        if issued_at > now + limits.TOKEN_LEEWAY_SECONDS:
            raise _refused("it is from the future")
        if expires_at - issued_at > limits.TOKEN_TTL_MAX_SECONDS:
            raise _refused("its lifetime is too long")
        subject = claims["sub"]
        if not isinstance(subject, str) or not subject:
            raise _refused("it names no subject")
        scope = claims.get("scope", "")
        scopes = scope.split(" ") if isinstance(scope, str) else claims.get("scp", [])
        known = frozenset(item for item in scopes if item in SCOPES)
        return Verified(
            Principal(subject=subject, scopes=known, via="jwt"), float(expires_at), str(claims.get("jti", ""))
        )


def peek_claims(token: str) -> dict[str, Any]:
    """The claims of a token without checking anything, to show them to the one who holds it."""
    return jws.peek(token)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(reason: str) -> Unauthorized:
    return Unauthorized(
        f"The token does not hold: {reason}.", path="Authorization", hint="Mint a new one with `waypost token mint`."
    )
