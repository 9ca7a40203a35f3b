"""Puts together, from the settings, what tells callers apart: tokens, outside issuers, client certificates, rates."""

from __future__ import annotations

from collections.abc import Callable

from waypost.registry.ports import Clock
from waypost.server.auth import Authenticator
from waypost.server.client_certificates import ClientCertificates
from waypost.server.issuers import FetchKeys, Issuers
from waypost.server.origin import Origin
from waypost.server.rates import Rates
from waypost.server.tls import Tls
from waypost.settings import Settings
from waypost.trust.tokens import Verifier


def make_tls(settings: Settings) -> Tls | None:
    return None if settings.tls_cert is None else Tls(settings.tls_cert, settings.tls_key, settings.client_ca)


def make_issuers(settings: Settings, fetch: FetchKeys, clock: Clock) -> Issuers | None:
    named = settings.outside_issuers
    return Issuers(named, fetch, clock.now) if named else None


def make_certificates(settings: Settings, clock: Clock, is_revoked: Callable[[str], bool]) -> ClientCertificates | None:
    if settings.client_ca is None:
        return None
    return ClientCertificates(
        settings.client_ca, settings.crl, settings.client_subjects, clock.now, is_revoked=is_revoked
    )


def make_rates(settings: Settings, clock: Clock) -> Rates:
    return Rates(clock.now, settings.rate_limit_reads, settings.rate_limit_writes)


def make_authenticator(
    settings: Settings,
    verifier: Verifier,
    admin_token: str,
    clock: Clock,
    *,
    issuers: Issuers | None,
    is_revoked: Callable[[str, str], bool],
) -> Authenticator:
    """`is_revoked` is asked for a kind, `serial` or `token`, and a name."""
    return Authenticator(
        verifier,
        admin_token,
        clock,
        open_access=settings.open,
        issuers=issuers,
        certificates=make_certificates(settings, clock, lambda serial: is_revoked("serial", serial)),
        origin=Origin(settings.trusted_proxies),
        is_revoked=lambda token_id: is_revoked("token", token_id),
    )
