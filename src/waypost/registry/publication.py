"""What callers hand to the engine and get back."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.dialects.codec import Decoded, Loss
from waypost.model.principal import Principal
from waypost.model.registration import Entry, Registration
from waypost.model.verdict import Verdict
from waypost.registry.drift import HeldChange

DOMAIN_VIA: Final = "domain"  # how a document came that a domain led to
IMPORT_VIA: Final = "import"  # how one came that was fetched from an address


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One document, decoded, with everything the caller said about it."""

    dialect: str
    document: bytes
    decoded: Decoded
    principal: Principal
    via: str = "http"
    visibility: str | None = None
    ttl_seconds: int | None = None
    if_match: tuple[str, ...] | None = None  # entity tags without quotes; ("*",) for any
    if_none_match_any: bool = False  # create only
    idempotency_key: str | None = None
    source_url: str | None = None
    verdicts: tuple[Verdict, ...] = ()  # what checks found of the document
    confirmed_by: Principal | None = None  # who let a change pass that had to wait
    gated: bool = False  # it came as an announcement: the allow-list applies, and its key is bound
    proven_host: str | None = None  # the domain of an ADP document, where its owner has proven it
    is_news: bool = False  # its freshness was proven already, by a signed sequence


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a write, the same on every face."""

    id: str
    dialect: str
    outcome: str  # created updated refreshed unchanged held rejected
    etag: str
    aliases: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: dict[str, Any] = msgspec.field(default_factory=dict)
    expires_at: float | None = None
    ttl_seconds: int | None = None
    registration: Registration | None = None
    held: HeldChange | None = None  # what waits, where the outcome is `held`

    @property
    def created(self) -> bool:
        return self.outcome == "created"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, in the order of (folded name, id)."""

    entries: list[Entry]
    total: int
    next_cursor: str | None = None


def shown_etag(etag: str, expires_at: float | None, representation: str = "", *, is_unhealthy: bool = False) -> str:
    """The entity tag of a representation: the content's hash, then what else makes the bytes differ.

    If-Match compares only the part before the first dot, so that a tag read from any dialect guards a write.
    """
    lease = f".e{int(expires_at):x}" if expires_at is not None else ""
    health = ".unhealthy" if is_unhealthy else ""  # its status is another one, in whatever is written of it
    return f"{etag}{lease}{health}{'.' + representation if representation else ''}"


def content_part(tag: str) -> str:
    return tag.split(".", 1)[0]
