"""Settings of external credentials: token issuers, and the subjects of client certificates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.principal import SCOPE_ADMIN, SCOPE_READ, SCOPE_WRITE, SCOPES

RESERVED_SUBJECTS = frozenset(("admin", "anonymous"))  # of the admin token, and of a service without authentication
_FINGERPRINT = re.compile(r"[0-9a-f]{64}\Z")
_NAME_KINDS = ("dns:", "uri:", "email:")
DISCOVERY_PATH = "/.well-known/openid-configuration"  # OpenID Connect Discovery 1.0 §4
# Everybody can get a token of these issuers, with any audience: only the subject says whose it is.
_SHARED_ISSUERS = frozenset(
    (
        "https://token.actions.githubusercontent.com",
        "https://gitlab.com",
        "https://accounts.google.com",
        "https://agent.buildkite.com",
        "https://app.terraform.io",
    )
)
_WILDCARDS = 8  # in one pattern
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An external issuer of tokens."""

    issuer: str  # `iss` of its tokens
    audience: str = "waypost"  # required `aud` of its tokens
    jwks: tuple[str, ...] = ()  # files or https addresses of its public keys
    secret: str | None = None  # a file with the HS256 secret of at least 32 bytes
    prefix: str = ""  # added to each `sub`, so that two issuers cannot name the same subject
    admin: bool = False  # whether its tokens may have the scope `admin`
    subjects: tuple[str, ...] = ()  # patterns of accepted `sub`s, with `*`; empty: all
    scopes: tuple[str, ...] = ()  # scopes of every accepted token, for issuers whose tokens have none
    scope_map: dict[str, str | tuple[str, ...]] = {}  # scopes by the values of claims

    def resolve_paths(self, folder: Path) -> Issuer:
        """Return the issuer with relative file names resolved against a folder."""
        secret = None if self.secret is None else str(folder / self.secret)
        return msgspec.structs.replace(
            self, jwks=tuple(resolve_source(source, folder) for source in self.jwks), secret=secret
        )

    def with_scope_map(self, scope_map: Mapping[str, tuple[str, ...]]) -> Issuer:
        """Return the issuer with further rows of its scope map; its own rows take precedence."""
        return msgspec.structs.replace(self, scope_map={**scope_map, **self.scope_map}) if scope_map else self

    def mapped_scopes(self, name: str) -> tuple[str, ...]:
        """The scopes that a value of a claim stands for."""
        scopes = self.scope_map.get(name, ())
        return (scopes,) if isinstance(scopes, str) else scopes

    @property
    def key_sources(self) -> tuple[str, ...]:
        """Where its keys are: the given places, else what OpenID Connect discovery finds."""
        if self.jwks or self.secret is not None:
            return self.jwks
        return (self.issuer.rstrip("/") + DISCOVERY_PATH,) if is_url(self.issuer) else ()


class ClientSubject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subject of a client certificate, identified by a name in it or by its SHA-256 fingerprint."""

    subject: str
    san: str | None = None  # `dns:…`, `uri:…` or `email:…`
    fingerprint: str | None = None  # 64 hex digits
    scopes: tuple[str, ...] = (SCOPE_READ, SCOPE_WRITE)


def is_url(source: str) -> bool:
    """Return whether a key set is at a URL, not in a file."""
    return source.startswith(("https://", "http://"))


def resolve_source(source: str, folder: Path) -> str:
    return source if is_url(source) else str(folder / source)


def check_issuers(issuers: Sequence[Issuer]) -> None:
    """Reject issuers that could name the same subjects, or that have no key."""
    for number, issuer in enumerate(issuers):
        _check_issuer(issuer)
        for other in issuers[:number]:
            if other.prefix == issuer.prefix:
                raise ConfigurationError(
                    f"The issuers {other.issuer!r} and {issuer.issuer!r} could name the same subjects.",
                    path="issuers",
                    hint="Give each its own `prefix`.",
                )
            if other.issuer == issuer.issuer:
                raise ConfigurationError(
                    f"The issuer {issuer.issuer!r} is listed twice.", path="issuers", hint="Keep one of them."
                )


def _check_issuer(issuer: Issuer) -> None:
    if not issuer.issuer or not issuer.audience:
        raise ConfigurationError("An issuer needs `issuer` and `audience`.", path="issuers")
    if not issuer.key_sources and issuer.secret is None:
        raise ConfigurationError(f"The issuer {issuer.issuer!r} has no keys.", path="issuers", hint="Set its `jwks`.")
    for source in issuer.key_sources:
        check_key_source(source)
    _check_grants(issuer)


def check_key_source(source: str) -> None:
    if source.startswith("http://") and urlsplit(source).hostname not in _LOOPBACK:
        raise ConfigurationError(
            f"Keys from {source!r} could be replaced in transit.", path="jwks", hint="Use an https URL."
        )


def _check_grants(issuer: Issuer) -> None:
    """Reject an issuer whose strangers would get rights."""
    if not issuer.subjects and (issuer.scopes or issuer.issuer.rstrip("/") in _SHARED_ISSUERS):
        reason = "gives every token its `scopes`" if issuer.scopes else "issues tokens to everybody"
        raise ConfigurationError(
            f"The issuer {issuer.issuer!r} {reason}: its `subjects` are needed.",
            path="issuers",
            hint='List patterns of accepted subjects, such as "repo:acme/*".',
        )
    if any(not pattern or pattern.count("*") > _WILDCARDS for pattern in issuer.subjects):
        raise ConfigurationError(
            f"A pattern of `subjects` must be a text with at most {_WILDCARDS} wildcards.", path="issuers"
        )
    check_scope_map({name: issuer.mapped_scopes(name) for name in issuer.scope_map})
    _check_scope_names(issuer.scopes, "issuers")
    if SCOPE_ADMIN in issuer.scopes and not issuer.admin:
        raise ConfigurationError(
            f"The issuer {issuer.issuer!r} may not give the scope `admin`.",
            path="issuers",
            hint="Set its `admin` to true, if every accepted subject is to be an admin.",
        )


def check_scope_map(scope_map: Mapping[str, Sequence[str]]) -> None:
    for scopes in scope_map.values():
        _check_scope_names(scopes, "scope_map")


def _check_scope_names(scopes: Sequence[str], path: str) -> None:
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ConfigurationError(
            f"{path}: {unknown[0][:64]!r} is not a scope of this service.", path=path, hint=f"Use {', '.join(SCOPES)}."
        )


def check_client_subjects(subjects: Sequence[ClientSubject]) -> None:
    for row in subjects:
        if not row.subject or len(row.subject) > limits.SUBJECT_CHARS or not row.subject.isprintable():
            raise _invalid_row(row, "a subject must be a printable string of 1 to 256 characters")
        if (row.san is None) == (row.fingerprint is None):
            raise _invalid_row(row, "set either `san` or `fingerprint`")
        if row.san is not None and not row.san.lower().startswith(_NAME_KINDS):
            raise _invalid_row(row, f"a `san` must start with one of {', '.join(_NAME_KINDS)}")
        if row.fingerprint is not None and not _FINGERPRINT.match(normalize_fingerprint(row.fingerprint)):
            raise _invalid_row(row, "a `fingerprint` must be the SHA-256 of the certificate, 64 hex digits")
        if unknown := [scope for scope in row.scopes if scope not in SCOPES]:
            raise _invalid_row(row, f"{unknown[0]!r} is not a scope; use {', '.join(SCOPES)}")


def normalize_fingerprint(text: str) -> str:
    return text.lower().removeprefix("sha256:").replace(":", "")


def _invalid_row(row: ClientSubject, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"client_subjects: the row of {row.subject[:64]!r} is invalid.", path="client_subjects", hint=f"{reason}."
    )
