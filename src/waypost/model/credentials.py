"""Who is believed besides ourselves: issuers of tokens, and whom client certificates stand for. Values of the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, SCOPES

RESERVED_SUBJECTS = frozenset(("admin", "anonymous"))  # of the admin token and of an open service
_FINGERPRINT = re.compile(r"[0-9a-f]{64}\Z")
_NAME_KINDS = ("dns:", "uri:", "email:")
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An outside issuer of tokens."""

    issuer: str  # the `iss` that its tokens carry
    audience: str = "waypost"  # the `aud` that they must carry
    jwks: tuple[str, ...] = ()  # files or https addresses of its public keys
    secret: str | None = None  # a file with the secret of HS256; at least 32 bytes
    prefix: str = ""  # put before each `sub`, so that two issuers cannot speak of one subject
    admin: bool = False  # whether its tokens may carry the scope `admin`

    def located(self, folder: Path) -> Issuer:
        """With its files below a folder, where they are not named in full."""
        secret = None if self.secret is None else str(folder / self.secret)
        return msgspec.structs.replace(self, jwks=tuple(located(source, folder) for source in self.jwks), secret=secret)


class ClientSubject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom a client certificate stands for: known by a name in it, or by its SHA-256 fingerprint."""

    subject: str
    san: str | None = None  # `dns:…`, `uri:…` or `email:…`
    fingerprint: str | None = None  # 64 hex digits
    scopes: tuple[str, ...] = (SCOPE_READ, SCOPE_WRITE)


def is_address(source: str) -> bool:
    """True for the address of a key set, False for a file."""
    return source.startswith(("https://", "http://"))


def located(source: str, folder: Path) -> str:
    return source if is_address(source) else str(folder / source)


def check_issuers(issuers: Sequence[Issuer]) -> None:
    """Refuse issuers that could speak of the same subjects, or whose tokens nobody could check."""
    for number, issuer in enumerate(issuers):
        _check_issuer(issuer)
        for other in issuers[:number]:
            if other.prefix == issuer.prefix:
                raise ConfigurationError(
                    f"The issuers {other.issuer!r} and {issuer.issuer!r} would name the same subjects.",
                    path="issuers",
                    hint="Give each its own `prefix`.",
                )
            if other.issuer == issuer.issuer:
                raise ConfigurationError(f"{issuer.issuer!r} is named twice.", path="issuers", hint="Name it once.")


def _check_issuer(issuer: Issuer) -> None:
    if not issuer.issuer or not issuer.audience:
        raise ConfigurationError("An issuer needs `issuer` and `audience`.", path="issuers")
    if not issuer.jwks and issuer.secret is None:
        raise ConfigurationError(
            f"Nothing says how to check tokens of {issuer.issuer!r}.", path="issuers", hint="Name its `jwks`."
        )
    for source in issuer.jwks:
        if source.startswith("http://") and urlsplit(source).hostname not in _LOOPBACK:
            raise ConfigurationError(
                f"Keys from {source!r} could be exchanged on their way.", path="jwks", hint="Use an https address."
            )


def check_client_subjects(subjects: Sequence[ClientSubject]) -> None:
    for row in subjects:
        if not row.subject or len(row.subject) > limits.SUBJECT_CHARS or not row.subject.isprintable():
            raise _unfit(row, "a subject is a printable text of 1 to 256 characters")
        if (row.san is None) == (row.fingerprint is None):
            raise _unfit(row, "it has either `san` or `fingerprint`")
        if row.san is not None and not row.san.lower().startswith(_NAME_KINDS):
            raise _unfit(row, f"a `san` begins with one of {', '.join(_NAME_KINDS)}")
        if row.fingerprint is not None and not _FINGERPRINT.match(normalize_fingerprint(row.fingerprint)):
            raise _unfit(row, "a `fingerprint` is the SHA-256 of the certificate, 64 hex digits")
        if unknown := [scope for scope in row.scopes if scope not in SCOPES]:
            raise _unfit(row, f"{unknown[0]!r} is not a scope; use {', '.join(SCOPES)}")


def normalize_fingerprint(text: str) -> str:
    return text.lower().removeprefix("sha256:").replace(":", "")


def _unfit(row: ClientSubject, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"client_subjects: the row of {row.subject[:64]!r} does not fit.", path="client_subjects", hint=f"{why}."
    )
