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
from waypost.trust import claims as claims_rules
from waypost.trust import jws
from waypost.trust.jose import NotSigned

OWN_KEY_ID = "waypost"  # the `kid` of the tokens that we mint
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
    return jws.sign(key, claims, key_id=OWN_KEY_ID)


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
            return self._verified(token, now)
        except NotSigned as error:
            raise _refused(str(error)) from None

    def _verified(self, token: str, now: float) -> Verified:
        claims = jws.verify(self._key, token)
        claims_rules.check_parties(claims, issuer=self._issuer, audience=self._audience)
        if not _is_whole(claims["exp"]) or not _is_whole(claims.get("iat")):
            raise NotSigned("its times are not whole numbers")
        # Minted by the clock that it is checked by: no leeway, it ends when it was said to end.
        expires_at = claims_rules.check_times(claims, now, leeway=0)
        principal = Principal(
            subject=claims_rules.subject_of(claims),
            scopes=claims_rules.scopes_of(claims),
            via="jwt",
            credential=claims_rules.credential_of(claims, token),
        )
        return Verified(principal, expires_at, str(claims.get("jti", "")))


def peek_claims(token: str) -> dict[str, Any]:
    """The claims of a token without checking anything, to show them to the one who holds it."""
    return jws.peek(token)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(reason: str) -> Unauthorized:
    return Unauthorized(
        f"The token does not hold: {reason}.", path="Authorization", hint="Mint a new one with `waypost token mint`."
    )
