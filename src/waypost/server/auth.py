"""From a request's credential to a principal: a token of ours or of an outside issuer, else a client certificate.

Tokens that hold are remembered for a while. An address that fails again and again is refused before anything is verified.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable

from waypost import limits
from waypost.errors import InvalidRequest, Unauthorized
from waypost.model.principal import ANONYMOUS, SCOPES, Principal
from waypost.registry.lru import Lru
from waypost.registry.ports import Clock
from waypost.server.asgi import Request
from waypost.server.client_certificates import ClientCertificates
from waypost.server.issuers import IssuerKeys, Issuers
from waypost.server.origin import Origin
from waypost.server.rates import Buckets, is_local, network_of
from waypost.trust.jose import NotSigned, Signed, read_compact
from waypost.trust.outside import read_claims
from waypost.trust.tokens import OWN_KEY_ID, Verified, Verifier

ADMIN = Principal(subject="admin", scopes=frozenset(SCOPES), via="admin-token", credential="admin")
EVERYBODY = Principal(subject="anonymous", scopes=frozenset(SCOPES), via="open", credential="open")


_ADMIN_FOR_GOOD = Verified(ADMIN, math.inf, "")


class Authenticator:
    """`open_access` lets every caller do everything, also with a credential that holds elsewhere: for loopback only.

    `is_revoked` is asked for the ids of tokens that hold otherwise.
    """

    def __init__(
        self,
        verifier: Verifier,
        admin_token: str,
        clock: Clock,
        *,
        open_access: bool,
        issuers: Issuers | None = None,
        certificates: ClientCertificates | None = None,
        origin: Origin | None = None,
        is_revoked: Callable[[str], bool] = lambda token_id: False,
    ) -> None:
        self._verifier = verifier
        self._admin_digest = hashlib.sha256(admin_token.encode()).digest()
        self._clock = clock
        self._open_access = open_access
        self._issuers = issuers
        self._certificates = certificates
        self._origin = origin or Origin()
        self._is_revoked = is_revoked
        self._checked: Lru[str, tuple[Verified, float]] = Lru(limits.TOKEN_CACHE)  # with the time to check again
        self._failures = Buckets(
            clock.now, limits.AUTH_FAILURES_PER_MINUTE, what="failed credentials", hint="Get a token that holds."
        )

    @property
    def may_ask_others(self) -> bool:
        """Whether somebody outside may be asked for keys before it is known who asks."""
        return self._issuers is not None

    async def principal(self, request: Request) -> Principal:
        header = request.header(b"authorization")
        if header is None:
            return self._without_token(request)
        try:
            return self._recalled(header) or await self._bearer(header, request)
        except Unauthorized:
            if self._open_access:  # authentication is off: a token left over from another service refuses nobody
                return EVERYBODY
            raise

    def _without_token(self, request: Request) -> Principal:
        if self._open_access:
            return EVERYBODY
        if self._certificates is None:
            return ANONYMOUS
        return self._certificates.find_principal(request.scope) or ANONYMOUS

    def _recalled(self, header: str) -> Principal | None:
        """Whose token it is, where that was found out a while ago: nearly always."""
        known = self._checked.get(header.partition(" ")[2].strip())
        if known is None or self._clock.now() >= known[1]:
            return None
        return self._unrevoked(known[0]).principal

    async def _bearer(self, header: str, request: Request) -> Principal:
        scheme, _, token = header.partition(" ")
        token = token.strip()
        _check_form(scheme, token, request)
        # Both sides are hashed, so that neither length nor content of the secret shows in the time it takes.
        if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._admin_digest):
            self._checked.put(token, (_ADMIN_FOR_GOOD, math.inf))
            return ADMIN
        return (await self._counted(token, request)).principal

    async def _counted(self, token: str, request: Request) -> Verified:
        address = self._origin.address(request.scope)
        if not is_local(address):
            self._failures.check(network_of(address))
        try:
            return self._unrevoked(await self._verified(token))
        except Unauthorized:
            if not is_local(address):
                self._failures.take(network_of(address))
            raise

    async def _verified(self, token: str) -> Verified:
        if self._issuers is None:
            return self._own(token)
        try:
            signed = read_compact(token)
            keys = self._outside_keys(signed)
            if keys is None:
                return self._own(token)
            verified = await keys.verify_or_ask(token, signed)
        except NotSigned as error:
            raise Unauthorized(
                f"The token does not hold: {error}.", path="Authorization", hint="Get a new one from its issuer."
            ) from None
        again_at = min(verified.expires_at, self._clock.now() + limits.TOKEN_RECHECK_SECONDS)
        self._checked.put(token, (verified, again_at))
        return verified

    def _own(self, token: str) -> Verified:
        verified = self._verifier.verify(token, self._clock.now())
        self._checked.put(token, (verified, verified.expires_at))
        return verified

    def _outside_keys(self, signed: Signed) -> IssuerKeys | None:
        """Whose keys to ask. A token that names our key is ours, also where an outside issuer goes by the same name."""
        if self._issuers is None or signed.header.get("kid") == OWN_KEY_ID:
            return None
        return self._issuers.find(read_claims(signed).get("iss"))

    def _unrevoked(self, verified: Verified) -> Verified:
        if verified.token_id and self._is_revoked(verified.token_id):
            raise Unauthorized(
                "The token does not hold: it was revoked.", path="Authorization", hint="Ask for a new one."
            )
        return verified


def _check_form(scheme: str, token: str, request: Request) -> None:
    if sum(name == b"authorization" for name, _ in request.scope["headers"]) > 1:
        raise InvalidRequest(
            "The request has several Authorization headers.", path="Authorization", hint="Send one credential."
        )
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(
            "Only bearer tokens are read here.", path="Authorization", hint="Send Authorization: Bearer <token>."
        )
