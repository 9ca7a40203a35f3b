"""Tokens of issuers other than ourselves: their keys, their claims, and the subjects that they may speak of.

The keys are ours to choose: a token says which of those it means, and nothing else about keys. HS256 is accepted only from
an issuer whose secret was configured, and then with that secret alone.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.credentials import RESERVED_SUBJECTS, Issuer
from waypost.model.json import JsonObject, parse_object
from waypost.model.principal import SCOPE_ADMIN, Principal
from waypost.trust import claims as rules
from waypost.trust import jose
from waypost.trust.jose import JoseKey, NotSigned, Signed
from waypost.trust.tokens import Verified

_SHARED = "HS256"


def read_claims(signed: Signed) -> JsonObject:
    """The claims as they stand there, before anything is verified: to find out whose keys to ask."""
    try:
        return parse_object(signed.payload, max_bytes=limits.JWS_BYTES)
    except WaypostError:
        raise NotSigned("it cannot be read") from None


class OutsideVerifier:
    """Checks tokens of one issuer. `others` are prefixes of other issuers, whose subjects it must not name."""

    def __init__(self, issuer: Issuer, others: Sequence[str] = ()) -> None:
        self.issuer = issuer
        self._foreign = tuple(prefix for prefix in others if prefix and len(prefix) > len(issuer.prefix))

    def verify(self, token: str, signed: Signed, keys: Sequence[JoseKey], secret: bytes | None, now: float) -> Verified:
        """Raises NotSigned with the reason; UnknownKey where other keys might do."""
        rules.check_type(signed.header)
        if signed.header["alg"] == _SHARED and secret is not None:
            _check_shared(signed, secret)
        else:
            jose.verify(signed, keys)
        claims = read_claims(signed)
        rules.check_parties(claims, issuer=self.issuer.issuer, audience=self.issuer.audience)
        expires_at = rules.check_times(claims, now, leeway=limits.TOKEN_LEEWAY_SECONDS)
        principal = Principal(
            subject=self._subject(claims),
            scopes=self._scopes(claims),
            via="jwt",
            credential=rules.credential_of(claims, token),
        )
        return Verified(principal, expires_at + limits.TOKEN_LEEWAY_SECONDS, str(claims.get("jti", "")))

    def _subject(self, claims: JsonObject) -> str:
        subject = self.issuer.prefix + rules.subject_of(claims)
        if subject in RESERVED_SUBJECTS or subject.startswith(self._foreign) or len(subject) > limits.SUBJECT_CHARS:
            raise NotSigned("its subject is not one that this issuer may speak of")
        return subject

    def _scopes(self, claims: JsonObject) -> frozenset[str]:
        scopes = rules.scopes_of(claims)
        return scopes if self.issuer.admin else scopes - {SCOPE_ADMIN}


def _check_shared(signed: Signed, secret: bytes) -> None:
    expected = hmac.new(secret, signed.signing_input, hashlib.sha256).digest()
    if not hmac.compare_digest(expected, signed.signature):
        raise NotSigned("its signature does not hold")
