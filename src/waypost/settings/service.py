"""The settings of one service as a value: each row of the table is a field, and what must go together is checked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.credentials import ClientSubject, Issuer, check_client_subjects, check_issuers
from waypost.model.principal import PUBLIC
from waypost.settings.locations import ADMIN_TOKEN_FILE, check_cidr, check_url, is_loopback


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How one service runs. Made by `load_settings`, or by hand in a test; checked either way."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8440
    base_url: str | None = None
    store: str = "sqlite"
    workers: int = 1
    embedder: str = "auto"
    open: bool = False
    anonymous_read: bool = False
    default_visibility: str = PUBLIC
    watch_keep_seconds: int = limits.WATCH_KEEP_SECONDS
    watch_keep_changes: int = limits.WATCH_KEEP_CHANGES
    audit_keep: int = limits.AUDIT_KEEP
    issuer: str = "waypost"
    audience: str = "waypost"
    jwks: tuple[str, ...] = ()
    jwt_secret: Path | None = None
    jwks_prefix: str | None = None
    jwks_admin: bool = False
    issuers: tuple[Issuer, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    crl: Path | None = None
    client_subjects: tuple[ClientSubject, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    rate_limit_reads: int | None = None
    rate_limit_writes: int | None = None
    agents_per_owner: int = limits.AGENTS_PER_OWNER
    allow_cidrs: tuple[str, ...] = ()
    resolver: str = "system"
    trust_anchors: Path | None = None
    insecure_domains: tuple[str, ...] = ()
    trust_ad: bool = False
    health_checks: bool = False
    health_check_seconds: int = limits.HEALTH_SECONDS
    health_evict_seconds: int = limits.HEALTH_EVICT_SECONDS
    fetch_ca: Path | None = None
    legacy_names: bool = False
    foreign_index: bool = False
    agent_recheck_seconds: int = limits.RECHECK_SECONDS
    domain_recheck_seconds: int = limits.PROOF_RECHECK_SECONDS
    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False
    mdns: bool = False
    mdns_interfaces: tuple[str, ...] = ()
    mdns_publish: bool = False
    udp: bool = False
    udp_interface: str | None = None
    udp_port: int = limits.UDP_PORT
    udp_ipv6: bool = False
    bus: str | None = None
    bus_topic: str = "/topic/discovery"
    bus_group: str | None = None
    bus_creds: Path | None = None
    bus_nkey: Path | None = None
    bus_token: Path | None = None
    bus_ca: Path | None = None
    bus_cert: Path | None = None
    bus_cert_key: Path | None = None
    confusable_names: str = "mark"
    samples: bool = False
    log_level: str = "info"
    log_format: str = "text"

    def __post_init__(self) -> None:
        if self.open and not is_loopback(self.host):
            raise ConfigurationError(
                f"Authentication can be turned off on a loopback address only, not on {self.host!r}.",
                path="open",
                hint="Listen on 127.0.0.1, or leave `open` out and hand out tokens.",
            )
        if self.workers > 1 and self.store == "memory":
            raise ConfigurationError(
                f"{self.workers} processes cannot share a store in memory.",
                path="workers",
                hint="Leave `workers` at 1, or choose the store `sqlite`.",
            )
        if self.trust_mode == "ca" and self.client_ca is None:
            raise ConfigurationError(
                "The trust mode `ca` needs authorities.", path="client_ca", hint="Name their file with --client-ca."
            )
        if self.base_url is not None:
            check_url(self.base_url, "base_url")
        for text in self.allow_cidrs:
            check_cidr(text, "allow_cidrs")
        for text in self.trusted_proxies:
            check_cidr(text, "trusted_proxies")
        self._check_needs()
        check_issuers(self.outside_issuers)
        check_client_subjects(self.client_subjects)

    def _check_needs(self) -> None:
        needs: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("mdns_publish", ("mdns",)),
            ("bus_group", ("bus",)),
            ("bus_cert_key", ("bus_cert",)),
            ("tls_key", ("tls_cert",)),
            ("client_ca", ("tls_cert",)),
            ("crl", ("client_ca",)),
            ("client_subjects", ("client_ca",)),
            ("jwks_prefix", ("jwks", "jwt_secret")),
            ("jwks_admin", ("jwks", "jwt_secret")),
        )
        for name, others in needs:
            if getattr(self, name) and not any(getattr(self, other) for other in others):
                raise ConfigurationError(
                    f"{name} means nothing without {' or '.join(others)}.",
                    path=name,
                    hint=f"Set {others[0]} too, or leave {name} out.",
                )

    @property
    def outside_issuers(self) -> tuple[Issuer, ...]:
        """Those of the table, and the one that `jwks` and `jwt_secret` tell of."""
        if not self.jwks and self.jwt_secret is None:
            return self.issuers
        named = Issuer(
            issuer=self.issuer,
            audience=self.audience,
            jwks=self.jwks,
            secret=None if self.jwt_secret is None else str(self.jwt_secret),
            prefix=self.jwks_prefix or "",
            admin=self.jwks_admin,
        )
        return (named, *self.issuers)

    def public_url(self, port: int | None = None) -> str:
        """The service's own address without a final slash; `port` is the one that was bound."""
        if self.base_url is not None:
            return self.base_url.rstrip("/")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        scheme = "http" if self.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"


# ---- How a client reaches a service, as a value; and the admin token, which never leaves this machine.


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client goes, and as whom."""

    base_url: str
    token: str | None
    timeout: float
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    named: bool = False  # by a flag or a variable, rather than found on this machine


def find_admin_token(data: Path, base_url: str) -> str | None:
    """The admin token of the service on this machine. It is never offered to another host."""
    if not is_loopback(urlsplit(base_url).hostname or ""):
        return None
    try:
        return (data / ADMIN_TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None
