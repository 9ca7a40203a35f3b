"""Authentication of requests: a token of the service or of an external issuer, an API key, else a client certificate.

Verified tokens are cached; their times are compared with the wall clock at each request (E13). An address with too many
failures is refused before anything is verified.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import InvalidRequest, RateLimited, Unauthorized, WaypostError
from waypost.model.principal import ANONYMOUS, SCOPES, Principal
from waypost.registry.credentials.api_keys import API_KEY_PREFIX
from waypost.registry.ports import Clock
from waypost.server.auth.callers import CallerRateLimiter, RateLimits, TrustedProxies, is_loopback, rate_limit_key
from waypost.server.auth.certificates import ClientCertificates
from waypost.server.auth.issuers import FetchKeys, IssuerKeys, Issuers
from waypost.server.http.asgi import Request
from waypost.server.http.tls import TlsContext
from waypost.settings import Settings
from waypost.trust.jose import InvalidJws, Jws, parse_compact
from waypost.trust.jwt import SERVICE_KEY_ID, TokenVerifier, VerifiedToken, decode_claims

log = logging.getLogger("waypost.server")

ADMIN = Principal(subject="admin", scopes=frozenset(SCOPES), via="admin-token", credential="admin")

OPEN_ACCESS = Principal(subject="anonymous", scopes=frozenset(SCOPES), via="open", credential="open")

_ADMIN_VERIFIED = VerifiedToken(principal=ADMIN, not_before=-math.inf, expires_at=math.inf, token_id="")


Authenticate = Callable[[Request], Awaitable[Principal]]


class CredentialSource(Protocol):
    """The API keys and revocations of the registry (`waypost.registry.credentials`)."""

    @property
    def is_stale(self) -> bool:
        """Whether another process has changed them since they were read here."""
        ...

    async def refresh(self) -> None: ...

    def find_api_key(self, key: str) -> Principal:
        """Return the principal of an API key. Raises Unauthorized."""
        ...

    def is_revoked(self, kind: str, name: str) -> bool:
        """`kind` is `serial` (of a certificate) or `token`."""
        ...


class Authenticator:
    """`open_access` gives every caller all rights, with any credential or none; for loopback only."""

    def __init__(
        self,
        verifier: TokenVerifier,
        admin_token: str,
        clock: Clock,
        *,
        open_access: bool,
        issuers: Issuers | None = None,
        certificates: ClientCertificates | None = None,
        origin: TrustedProxies | None = None,
        credentials: CredentialSource | None = None,
        nodes: Callable[[], int] = lambda: 1,
        keys_version: Callable[[], object] = lambda: None,
    ) -> None:
        """`nodes`: how many nodes of a cluster share the limit of failures. `keys_version` differs as soon as the keys of the
        verifier do."""
        self._verifier = verifier
        self._admin_digest = hashlib.sha256(admin_token.encode()).digest()
        self._clock = clock
        self._open_access = open_access
        self._issuers = issuers
        self._certificates = certificates
        self._origin = origin or TrustedProxies()
        self._credentials = credentials
        self._keys_version = keys_version
        # Verified tokens, when to verify them again, and the version of the service's own keys, if one of them signed it.
        self._verified: LruCache[str, tuple[VerifiedToken, float, object]] = LruCache(limits.TOKEN_CACHE)
        self._failures = CallerRateLimiter(
            clock.now,
            limits.AUTH_FAILURES_PER_MINUTE,
            what="failed credentials",
            hint="Get a valid token.",
            nodes=nodes,
        )

    async def authenticate(self, request: Request) -> Principal:
        principal = await self._find_principal(request)
        request.set_subject(principal.subject)
        return principal

    async def _find_principal(self, request: Request) -> Principal:
        if self._credentials is not None and self._credentials.is_stale:
            await self._credentials.refresh()
        header = request.header(b"authorization")
        if header is None:
            return self._authenticate_certificate(request)
        try:
            return self._find_cached(header) or await self._authenticate_token(header, request)
        except Unauthorized:
            if self._open_access:  # authentication is off: a token of another service is ignored
                return OPEN_ACCESS
            raise

    def _authenticate_certificate(self, request: Request) -> Principal:
        if self._open_access:
            return OPEN_ACCESS
        if self._certificates is None:
            return ANONYMOUS
        return self._certificates.find_principal(request.scope) or ANONYMOUS

    def _find_cached(self, header: str) -> Principal | None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        cached = self._verified.get(token.strip())
        if cached is None or not cached[0].not_before <= self._clock.wall() < cached[1]:
            return None
        if cached[2] is not None and cached[2] != self._keys_version():  # perhaps its key was stolen, and ended
            return None
        return self._require_unrevoked(cached[0]).principal

    async def _authenticate_token(self, header: str, request: Request) -> Principal:
        scheme, _, token = header.partition(" ")
        token = token.strip()
        _check_header(scheme, token, request)
        # Both sides are hashed, so that the time reveals neither the length nor the content of the secret.
        if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._admin_digest):
            self._verified.put(token, (_ADMIN_VERIFIED, math.inf, None))
            return ADMIN
        return await self._verify_limited(token, request)

    async def _verify_limited(self, token: str, request: Request) -> Principal:
        """Verify the token, with a limit on the failures of an address."""
        address = self._origin.client_address(request.scope)
        if not is_loopback(address):
            self._failures.check(rate_limit_key(address))
        try:
            if token.startswith(API_KEY_PREFIX) and self._credentials is not None:
                # Not cached: it costs one hash, and a revoked key must be refused at once.
                return self._credentials.find_api_key(token)
            return self._require_unrevoked(await self._verify(token)).principal
        except Unauthorized:
            if not is_loopback(address):
                self._failures.take(rate_limit_key(address))
            raise

    async def _verify(self, token: str) -> VerifiedToken:
        if self._issuers is None:
            return self._verify_own(token)
        try:
            signed = parse_compact(token)
            keys = self._find_issuer_keys(signed)
            if keys is None:
                return self._verify_own(token)
            verified = await keys.verify_or_refresh(token, signed)
        except InvalidJws as error:
            raise Unauthorized(
                f"Invalid token: {error}.", path="Authorization", hint="Get a new one from its issuer."
            ) from None
        verify_again_at = min(verified.expires_at, self._clock.wall() + limits.TOKEN_RECHECK_SECONDS)
        self._verified.put(token, (verified, verify_again_at, None))
        return verified

    def _verify_own(self, token: str) -> VerifiedToken:
        version = self._keys_version()  # before the keys are read: a rotation in between is noticed at the next use
        verified = self._verifier.verify(token, self._clock.wall())
        verify_again_at = min(verified.expires_at, self._clock.wall() + limits.TOKEN_RECHECK_SECONDS)
        self._verified.put(token, (verified, verify_again_at, version))
        return verified

    def _find_issuer_keys(self, signed: Jws) -> IssuerKeys | None:
        """None for a token of this service: one that names its key, even if an external issuer has the same name."""
        if self._issuers is None or signed.header.get("kid") == SERVICE_KEY_ID:
            return None
        return self._issuers.find(decode_claims(signed).get("iss"))

    def _require_unrevoked(self, verified: VerifiedToken) -> VerifiedToken:
        if (
            verified.token_id
            and self._credentials is not None
            and self._credentials.is_revoked("token", verified.token_id)
        ):
            raise Unauthorized("Invalid token: it was revoked.", path="Authorization", hint="Ask for a new one.")
        return verified


async def still_holds(authenticate: Authenticate, request: Request, principal: Principal) -> bool:
    """Whether the credential of a request that is still being answered gives the same rights as at its start (W9)."""
    try:
        found = await authenticate(request)
    except (Unauthorized, RateLimited):  # an address with too many failures cannot keep a revoked credential alive
        return False
    except WaypostError as error:  # e.g. the issuer cannot be reached: check again later
        log.debug("could not check the credential of an open request: %s", error)
        return True
    return found.subject == principal.subject and found.scopes >= principal.scopes


def _check_header(scheme: str, token: str, request: Request) -> None:
    if sum(name == b"authorization" for name, _ in request.scope["headers"]) > 1:
        raise InvalidRequest(
            "The request has several Authorization headers.", path="Authorization", hint="Send one credential."
        )
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized(
            "Only bearer tokens are accepted.", path="Authorization", hint="Send Authorization: Bearer <token>."
        )


# --- From the settings ----------------------------------------------------------------------------


def make_tls(settings: Settings) -> TlsContext | None:
    return None if settings.tls_cert is None else TlsContext(settings.tls_cert, settings.tls_key, settings.client_ca)


def make_issuers(settings: Settings, fetch: FetchKeys, clock: Clock) -> Issuers | None:
    issuers = settings.external_issuers
    return Issuers(issuers, fetch, clock) if issuers else None


def make_certificates(settings: Settings, clock: Clock, is_revoked: Callable[[str], bool]) -> ClientCertificates | None:
    if settings.client_ca is None:
        return None
    return ClientCertificates(
        settings.client_ca, settings.crl, settings.client_subjects, clock.wall, is_revoked=is_revoked
    )


def make_rates(settings: Settings, clock: Clock, nodes: Callable[[], int] = lambda: 1) -> RateLimits:
    """`nodes`: how many nodes of a cluster share the rates."""
    return RateLimits(
        clock.now,
        settings.rate_limit_reads,
        settings.rate_limit_writes,
        exempts_loopback=not settings.is_public,
        nodes=nodes,
    )


def make_authenticator(
    settings: Settings,
    verifier: TokenVerifier,
    admin_token: str,
    clock: Clock,
    *,
    issuers: Issuers | None,
    credentials: CredentialSource,
    nodes: Callable[[], int] = lambda: 1,
    keys_version: Callable[[], object] = lambda: None,
) -> Authenticator:
    return Authenticator(
        verifier,
        admin_token,
        clock,
        open_access=settings.open,
        issuers=issuers,
        certificates=make_certificates(settings, clock, lambda serial: credentials.is_revoked("serial", serial)),
        origin=TrustedProxies(settings.trusted_proxies),
        credentials=credentials,
        nodes=nodes,
        keys_version=keys_version,
    )
