"""Settings of external credentials: token issuers, and the subjects of client certificates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, SCOPES

RESERVED_SUBJECTS = frozenset(("admin", "anonymous"))  # of the admin token, and of a service without authentication
_FINGERPRINT = re.compile(r"[0-9a-f]{64}\Z")
_NAME_KINDS = ("dns:", "uri:", "email:")
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An external issuer of tokens."""

    issuer: str  # `iss` of its tokens
    audience: str = "waypost"  # required `aud` of its tokens
    jwks: tuple[str, ...] = ()  # files or https addresses of its public keys
    secret: str | None = None  # a file with the HS256 secret of at least 32 bytes
    prefix: str = ""  # added to each `sub`, so that two issuers cannot name the same subject
    admin: bool = False  # whether its tokens may have the scope `admin`

    def resolve_paths(self, folder: Path) -> Issuer:
        """Return the issuer with relative file names resolved against a folder."""
        secret = None if self.secret is None else str(folder / self.secret)
        return msgspec.structs.replace(
            self, jwks=tuple(resolve_source(source, folder) for source in self.jwks), secret=secret
        )


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
    if not issuer.jwks and issuer.secret is None:
        raise ConfigurationError(f"The issuer {issuer.issuer!r} has no keys.", path="issuers", hint="Set its `jwks`.")
    for source in issuer.jwks:
        if source.startswith("http://") and urlsplit(source).hostname not in _LOOPBACK:
            raise ConfigurationError(
                f"Keys from {source!r} could be replaced in transit.", path="jwks", hint="Use an https URL."
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
