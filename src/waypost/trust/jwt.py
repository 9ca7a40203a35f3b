"""Tokens (RFC 7519): claim checks, tokens that this service mints, and tokens of external issuers (J1…J10 of the threat
list).

The verifier's key decides the algorithm, never the token. Tokens of this service are signed with its one Ed25519 key.
External issuers are verified with their configured keys; HS256 is accepted only from an issuer with a configured
secret.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
)

from waypost import limits
from waypost.errors import InvalidParameter, Unauthorized, WaypostError
from waypost.model.credentials import RESERVED_SUBJECTS, Issuer
from waypost.model.federation import peer_of
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import SCOPE_ADMIN, SCOPES, Principal
from waypost.model.times import to_rfc3339
from waypost.trust.encodings import encode_base64url
from waypost.trust.jose import InvalidJws, JoseKey, Jws, jose_key, verify_compact, verify_jws
from waypost.trust.keys import ed25519
from waypost.trust.keys.private_key import FINGERPRINT_LABEL, new_private_key
from waypost.trust.keys.public_key import from_native

TOKEN_ALGORITHM: Final = "EdDSA"
SERVICE_KEY_ID: Final = "waypost"  # `kid` of the tokens that this service mints

_REQUIRED_CLAIMS: Final = ("exp", "sub", "aud", "iss")
_TOKEN_TYPES: Final = frozenset(("jwt", "at+jwt"))
_ID_TOKEN_CLAIMS: Final = (
    "nonce",
    "at_hash",
    "c_hash",
)  # an ID token identifies a user to a client; it grants no access
_RIGHTS_CLAIMS: Final = ("scope", "scp", "permissions", "roles", "groups")
_SPACED_CLAIMS: Final = ("scope", "scp")  # whose values are separated by spaces, if the claim is a text (RFC 8693 §4.2)
_JTI_CHARS: Final = 64
_SHARED_SECRET_ALGORITHM: Final = "HS256"
_TTL: Final = re.compile(r"(\d{1,7})(s|m|h|d)?\Z")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}

# --- Claims ---------------------------------------------------------------------------------------


def check_token_type(header: JsonObject) -> None:
    """Reject other signed texts, such as logout tokens and proofs of possession."""
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TOKEN_TYPES:
        raise InvalidJws("it is not an access token")


def check_issuer_and_audience(claims: JsonObject, *, issuer: str, audience: str) -> None:
    for name in _REQUIRED_CLAIMS:
        if claims.get(name) is None:
            raise InvalidJws(f"the claim {name!r} is missing")
    for name in _ID_TOKEN_CLAIMS:
        if name in claims:
            raise InvalidJws("it is an ID token, not an access token")
    if claims["iss"] != issuer:
        raise InvalidJws("it was issued by another issuer")
    audiences = claims["aud"]
    if audience not in (audiences if isinstance(audiences, list) else [audiences]):
        raise InvalidJws("it is for another audience")


def check_token_times(claims: JsonObject, now: float, *, leeway: float) -> tuple[float, float]:
    """Return from when and until when the token is valid. Without `iat` the lifetime is measured from now."""
    issued_at = _numeric_date(claims.get("iat", now))
    not_before = max(issued_at - limits.TOKEN_LEEWAY_SECONDS, _numeric_date(claims.get("nbf", now)) - leeway)
    expires_at = _numeric_date(claims["exp"])
    if now >= expires_at + leeway:
        raise InvalidJws(
            f"it has expired: it was valid until {_told(expires_at)}, and the clock here says {_told(now)}"
        )
    if now < not_before:
        raise InvalidJws(f"it is not valid yet: it is from {_told(issued_at)}, and the clock here says {_told(now)}")
    if expires_at - issued_at > limits.TOKEN_TTL_MAX_SECONDS:
        raise InvalidJws("its lifetime is too long")
    return not_before, expires_at + leeway


def _told(at: float) -> str:
    try:
        return to_rfc3339(at)
    except (OverflowError, ValueError):  # beyond the calendar
        return f"{at:g}"


def _numeric_date(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidJws("its times are not numbers")
    return float(value)


def token_subject(claims: JsonObject) -> str:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= limits.SUBJECT_CHARS or not subject.isprintable():
        raise InvalidJws("it has no valid subject")
    return subject


def token_scopes(claims: JsonObject) -> frozenset[str]:
    """Return the known scopes: `scope` is a space-separated string, `scp` an array; other forms are ignored."""
    scope = claims.get("scope")
    if isinstance(scope, str):
        named = scope.split(" ")
    else:
        listed = claims.get("scp") if scope is None else None
        named = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    return frozenset(item for item in named if item in SCOPES)


def mapped_scopes(claims: JsonObject, issuer: Issuer) -> frozenset[str]:
    """Return the scopes that the issuer's scope map gives for the values of the five claims with rights."""
    if not issuer.scope_map:
        return frozenset()
    names: set[str] = set()
    for claim in _RIGHTS_CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str):
            names.update(value.split(" ") if claim in _SPACED_CLAIMS else (value,))
        elif isinstance(value, list):
            names.update(item for item in value if isinstance(item, str))
    return frozenset(scope for name in names for scope in issuer.mapped_scopes(name))


def _subject_pattern(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """`*` stands for any text; None if every subject is accepted."""
    if not patterns:
        return None
    texts = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return re.compile(f"(?:{'|'.join(texts)})\\Z", re.DOTALL)


def credential_name(claims: JsonObject, token: str) -> str:
    """Return the token's name for the audit trail: its `jti`, else a prefix of its hash. Never the token."""
    given = claims.get("jti")
    if isinstance(given, str) and 0 < len(given) <= _JTI_CHARS and given.isascii() and given.isprintable():
        return f"jwt:{given}"
    return f"jwt:#{hashlib.sha256(token.encode()).hexdigest()[:12]}"


# --- Tokens of this service -----------------------------------------------------------------------


def sign_jwt(key: Ed25519PrivateKey, payload: JsonObject, *, key_id: str) -> str:
    header = {"alg": TOKEN_ALGORITHM, "kid": key_id, "typ": "JWT"}
    signed = f"{encode_base64url(dump_json(header))}.{encode_base64url(dump_json(payload))}"
    return f"{signed}.{encode_base64url(ed25519.sign(key, signed.encode()))}"


def service_key(key: Ed25519PublicKey) -> JoseKey:
    return jose_key(from_native(key), algorithm=TOKEN_ALGORITHM)


def verify_jwt(key: JoseKey, text: str) -> JsonObject:
    """Return the payload of a JWT that `key` signed; raises InvalidJws."""
    return _parse_claims(verify_compact(text, (key,)).payload)


def _parse_claims(payload: bytes) -> JsonObject:
    try:
        return parse_object(payload, max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise InvalidJws("its payload is not a JSON object") from None


def new_token_key_pem(seed: bytes) -> bytes:
    """Make an Ed25519 key from 32 random bytes, as a PEM with its fingerprint."""
    return new_private_key("ed25519", seed).key_file()


def load_token_key(pem: bytes) -> Ed25519PrivateKey:
    """Raises ValueError."""
    try:
        key = load_pem_private_key(pem, None)
    except (UnsupportedAlgorithm, TypeError) as error:  # of a damaged file
        raise ValueError(str(error)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the token key must be Ed25519")
    text = pem.decode("ascii")
    if not text.startswith("-----") and not text.startswith(
        f"{FINGERPRINT_LABEL}{from_native(key.public_key()).key_id}\n"
    ):
        raise ValueError("the key does not match the fingerprint in front of it")
    return key


def parse_duration(text: str, path: str = "ttl") -> int:
    """Parse `90`, `90s`, `15m`, `1h` or `1d` into seconds."""
    found = _TTL.match(text.strip())
    if not found or int(found[1]) == 0:
        raise InvalidParameter(f"{text[:20]!r} is not a duration.", path=path, hint="Write it like 15m, 1h or 1d.")
    return int(found[1]) * _UNITS[found[2]]


def check_scopes(scopes: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    for scope in scopes:
        if scope not in SCOPES:
            raise InvalidParameter(f"{scope[:40]!r} is not a scope.", path="scopes", hint=f"Use {', '.join(SCOPES)}.")
    if not scopes:
        raise InvalidParameter(
            "A credential needs at least one scope.", path="scopes", hint=f"Use {', '.join(SCOPES)}."
        )
    return tuple(dict.fromkeys(scopes))


def check_subject(subject: str) -> None:
    if not subject or len(subject) > limits.SUBJECT_CHARS or not subject.isprintable():
        raise InvalidParameter(
            f"A subject must be a printable string of 1 to {limits.SUBJECT_CHARS} characters.", path="sub"
        )
    if peer_of(subject) is not None:
        raise InvalidParameter("This subject owns the records of a peer: no credential can have it.", path="sub")


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
    """Sign a token. Its lifetime is bounded, so that a lost token expires."""
    if not 0 < ttl_seconds <= limits.TOKEN_TTL_MAX_SECONDS:
        raise InvalidParameter(
            f"The lifetime of a token is 1 s to {limits.TOKEN_TTL_MAX_SECONDS} s.",
            path="ttl_seconds",
            hint="Use e.g. 1h.",
        )
    check_subject(subject)
    claims = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "scope": " ".join(check_scopes(scopes)),
        "iat": int(now),
        "exp": int(now) + ttl_seconds,
        "jti": token_id,
    }
    return sign_jwt(key, claims, key_id=SERVICE_KEY_ID)


class VerifiedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token and the time for which it is valid, with the leeway of its issuer."""

    principal: Principal
    not_before: float
    expires_at: float
    token_id: str


class TokenVerifier:
    """Verifies tokens that this service minted. `keys` returns the current key and those that it replaced recently."""

    def __init__(self, keys: Callable[[], Sequence[Ed25519PublicKey]], *, issuer: str, audience: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience

    def verify(self, token: str, now: float) -> VerifiedToken:
        """Return the principal of a valid token; raises Unauthorized with the reason."""
        try:
            return self._verified(token, now)
        except InvalidJws as error:
            raise _unauthorized(str(error)) from None

    def _verify_signature(self, token: str) -> JsonObject:
        """All keys have one name, so the token does not tell which: the current one first."""
        current, *replaced = self._keys()
        try:
            return verify_jwt(service_key(current), token)
        except InvalidJws:
            for key in replaced:
                with suppress(InvalidJws):
                    return verify_jwt(service_key(key), token)
            raise

    def _verified(self, token: str, now: float) -> VerifiedToken:
        claims = self._verify_signature(token)
        check_issuer_and_audience(claims, issuer=self._issuer, audience=self._audience)
        if not _is_integer(claims["exp"]) or not _is_integer(claims.get("iat")):
            raise InvalidJws("its times are not integers")
        # No leeway: the clock that minted the token also checks it.
        not_before, expires_at = check_token_times(claims, now, leeway=0)
        principal = Principal(
            subject=token_subject(claims),
            scopes=token_scopes(claims),
            via="jwt",
            credential=credential_name(claims, token),
        )
        return VerifiedToken(
            principal=principal, not_before=not_before, expires_at=expires_at, token_id=str(claims.get("jti", ""))
        )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unauthorized(reason: str) -> Unauthorized:
    return Unauthorized(
        f"Invalid token: {reason}.", path="Authorization", hint="Mint a new one with `waypost token mint`."
    )


# --- Tokens of external issuers -------------------------------------------------------------------


def decode_claims(signed: Jws) -> JsonObject:
    """Return the claims before verification: they name the issuer whose keys are needed."""
    return _parse_claims(signed.payload)


class ExternalIssuerVerifier:
    """Verifies tokens of one issuer. `others` are the prefixes of other issuers, whose subjects it must not use."""

    def __init__(self, issuer: Issuer, others: Sequence[str] = ()) -> None:
        self.issuer = issuer
        self._subjects = _subject_pattern(issuer.subjects)
        self._foreign = tuple(prefix for prefix in others if prefix and len(prefix) > len(issuer.prefix))

    def verify(
        self, token: str, signed: Jws, keys: Sequence[JoseKey], secret: bytes | None, now: float
    ) -> VerifiedToken:
        """Return the verified token; raises InvalidJws with the reason, UnknownKey if newer keys might verify it."""
        check_token_type(signed.header)
        if signed.header["alg"] == _SHARED_SECRET_ALGORITHM and secret is not None:
            _check_shared_secret(signed, secret)
        else:
            verify_jws(signed, keys)
        claims = decode_claims(signed)
        check_issuer_and_audience(claims, issuer=self.issuer.issuer, audience=self.issuer.audience)
        not_before, expires_at = check_token_times(claims, now, leeway=limits.TOKEN_LEEWAY_SECONDS)
        principal = Principal(
            subject=self._subject(claims),
            scopes=self._scopes(claims),
            via="jwt",
            credential=credential_name(claims, token),
        )
        return VerifiedToken(
            principal=principal, not_before=not_before, expires_at=expires_at, token_id=str(claims.get("jti", ""))
        )

    def _subject(self, claims: JsonObject) -> str:
        named = token_subject(claims)
        if self._subjects is not None and not self._subjects.match(named):
            raise InvalidJws("its subject is not among those that are accepted from this issuer")
        subject = self.issuer.prefix + named
        is_reserved = subject in RESERVED_SUBJECTS or peer_of(subject) is not None
        if is_reserved or subject.startswith(self._foreign) or len(subject) > limits.SUBJECT_CHARS:
            raise InvalidJws("its subject is not allowed for this issuer")
        return subject

    def _scopes(self, claims: JsonObject) -> frozenset[str]:
        scopes = token_scopes(claims) | mapped_scopes(claims, self.issuer) | frozenset(self.issuer.scopes)
        return scopes if self.issuer.admin else scopes - {SCOPE_ADMIN}


def _check_shared_secret(signed: Jws, secret: bytes) -> None:
    expected = hmac.new(secret, signed.signing_input, hashlib.sha256).digest()
    if not hmac.compare_digest(expected, signed.signature):
        raise InvalidJws("its signature is invalid")
