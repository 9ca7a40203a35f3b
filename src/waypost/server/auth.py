"""From a request's credential to a principal. Checked tokens are remembered until they expire."""

from __future__ import annotations

import hashlib
import hmac
import math

from waypost import limits
from waypost.errors import Unauthorized
from waypost.model.principal import ANONYMOUS, SCOPES, Principal
from waypost.registry.lru import Lru
from waypost.registry.ports import Clock
from waypost.server.asgi import Request
from waypost.trust.tokens import Verified, Verifier

ADMIN = Principal(subject="admin", scopes=frozenset(SCOPES), via="admin-token")
EVERYBODY = Principal(subject="anonymous", scopes=frozenset(SCOPES), via="open")


_ADMIN_FOR_GOOD = Verified(ADMIN, math.inf, "")


class Authenticator:
    """`open_access` lets every caller do everything, also with a credential that holds elsewhere: for loopback only."""

    def __init__(self, verifier: Verifier, admin_token: str, clock: Clock, *, open_access: bool) -> None:
        self._verifier = verifier
        self._admin_digest = hashlib.sha256(admin_token.encode()).digest()
        self._clock = clock
        self._open_access = open_access
        self._checked: Lru[str, Verified] = Lru(limits.TOKEN_CACHE)

    def principal(self, request: Request) -> Principal:
        header = request.header(b"authorization")
        if header is None:
            return EVERYBODY if self._open_access else ANONYMOUS
        try:
            return self._bearer(header)
        except Unauthorized:
            if self._open_access:  # authentication is off: a token left over from another service refuses nobody
                return EVERYBODY
            raise

    def _bearer(self, header: str) -> Principal:
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "Only bearer tokens are read here.", path="Authorization", hint="Send Authorization: Bearer <token>."
            )
        known = self._checked.get(token)
        if known is not None and self._clock.now() < known.expires_at:
            return known.principal
        # Both sides are hashed, so that neither length nor content of the secret shows in the time it takes.
        if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._admin_digest):
            self._checked.put(token, _ADMIN_FOR_GOOD)
            return ADMIN
        verified = self._verifier.verify(token, self._clock.now())
        self._checked.put(token, verified)
        return verified.principal
