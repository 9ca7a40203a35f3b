"""A publication and its receipt, pages of entries, entity tags, and pending changes.

A change of the guarded parts of a verified agent (endpoint, key, authentication) is pending until its owner confirms it; texts
are not guarded, because they redirect no caller. `write_rules` decides when a change is pending.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord, MappingLoss
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import to_rfc3339
from waypost.model.verdict import TrustSummary, Verdict
from waypost.protocols.codec import Decoded
from waypost.responses.agents import PendingChangeView, PendingDifference
from waypost.trust.encodings import decode_base64url

DOMAIN_VIA: Final = "domain"  # of documents that were found through a domain
IMPORT_VIA: Final = "import"  # of documents that were fetched from a URL


class PendingChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document that waits for confirmation, with the parameters of its write and its differences. Stored as a note."""

    etag: str  # of the content after the change
    base: str  # the etag of the content before it
    at: float
    expires_at: float
    subject: str
    dialect: str
    document: bytes
    via: str
    differences: tuple[PendingDifference, ...]
    visibility: str | None = None
    ttl_seconds: int | None = None
    source_url: str | None = None
    verdicts: tuple[Verdict, ...] = ()

    def is_over(self, now: float) -> bool:
        return now >= self.expires_at


def pending_note_name(agent_id: str) -> str:
    return f"held:{agent_id}"


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(PendingChange)


def dump_pending(change: PendingChange) -> bytes:
    return _encode(change)


def load_pending(data: bytes | None) -> PendingChange | None:
    return None if data is None else _decoder.decode(data)


def guarded_differences(
    before: AgentRecord, after: AgentRecord, *, key_before: str | None, key_after: str | None
) -> tuple[PendingDifference, ...]:
    """The guarded parts that differ. The keys are those of the documents of one dialect."""
    found: list[PendingDifference] = []
    endpoints_before, endpoints_after = _endpoints(before), _endpoints(after)
    if set(endpoints_before) != set(endpoints_after):
        found.append(PendingDifference(part="endpoint", before=endpoints_before, after=endpoints_after))
    if key_before != key_after:
        found.append(PendingDifference(part="key", before=key_before, after=key_after))
    if before.auth != after.auth:
        found.append(PendingDifference(part="auth", before=before.auth, after=after.auth))
    return tuple(found)


def _endpoints(record: AgentRecord) -> list[str]:
    return list(dict.fromkeys(f"{binding.protocol} {binding.endpoint}" for binding in record.bindings))


def signing_key_name(record: AgentRecord) -> str | None:
    """The name of the key that a document is signed with or contains."""
    signature = record.signature
    if not isinstance(signature, dict):
        return None
    for name in ("key_id", "fingerprint", "kid", "keyId", "public_key", "publicKey", "jwk"):
        value = signature.get(name)
        if value is not None:
            return value if isinstance(value, str) else repr(value)[: limits.ID_CHARS]
    return _kid(signature.get("protected"), signature.get("header")) or "unnamed"


def _kid(protected: Any, header: Any) -> str | None:
    for part in (_decode_header(protected), header):
        if isinstance(part, dict) and isinstance(part.get("kid"), str):
            return str(part["kid"])
    return None


def _decode_header(protected: Any) -> Any:
    try:
        return parse_json(decode_base64url(protected)) if isinstance(protected, str) else None
    except (ValueError, WaypostError):
        return None


def pending_view(change: PendingChange) -> PendingChangeView:
    """A pending change as responses show it."""
    return PendingChangeView(
        etag=change.etag,
        base=change.base,
        changes=change.differences,
        dialect=change.dialect,
        subject=change.subject,
        at=to_rfc3339(change.at),
        expires_at=to_rfc3339(change.expires_at),
    )


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded document, with the parameters of its write."""

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
    verdicts: tuple[Verdict, ...] = ()  # of checks so far
    confirmed_by: Principal | None = None  # who confirmed a pending change
    gated: bool = False  # an announcement: the allow-list applies, and its key is pinned
    proven_host: str | None = None  # the domain of an ADP document, if its owner has proven it
    is_news: bool = False  # a signed sequence number has proven that it is fresh
    relay_url: str | None = None  # where this service relays conversations; the writer sets it


class PublicationReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write, the same in every API."""

    id: str
    dialect: str
    outcome: str  # created updated refreshed unchanged held rejected
    etag: str
    aliases: tuple[str, ...] = ()
    losses: tuple[MappingLoss, ...] = ()
    warnings: tuple[str, ...] = ()
    trust: TrustSummary = TrustSummary(level="self_asserted")
    expires_at: float | None = None
    ttl_seconds: int | None = None
    registration: Registration | None = None
    held: PendingChange | None = None  # if the outcome is `held`

    @property
    def created(self) -> bool:
        return self.outcome == "created"


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, in the order of (folded name, id)."""

    entries: list[CatalogEntry]
    total: int
    next_cursor: str | None = None
    seal: Callable[[CatalogEntry], str] | None = None  # makes the cursor of the entries after this one

    def first(self, count: int) -> EntryPage:
        """A shorter page, whose cursor continues after it; the first entries of a page that is too large to send."""
        if count >= len(self.entries) or count < 1 or self.seal is None:
            return self
        entries = self.entries[:count]
        return msgspec.structs.replace(self, entries=entries, next_cursor=self.seal(entries[-1]))


def representation_etag(
    etag: str, expires_at: float | None, representation: str = "", *, is_unhealthy: bool = False
) -> str:
    """The entity tag of a representation: the content hash, then everything else that changes its bytes.

    If-Match compares only the part before the first dot, so that a tag of any dialect can guard a write.
    """
    lease = f".e{int(expires_at):x}" if expires_at is not None else ""
    health = ".unhealthy" if is_unhealthy else ""  # every representation shows another status
    return f"{etag}{lease}{health}{'.' + representation if representation else ''}"


def shown_etag(registration: Registration) -> str:
    """The entity tag of the agent as readers see it, in the profile."""
    return representation_etag(registration.etag, registration.expires_at, is_unhealthy=registration.is_unhealthy)


def content_etag_part(tag: str) -> str:
    return tag.split(".", 1)[0]
