"""What of a verified agent may not change unseen: where it is reached, its key, how callers authenticate.

Pure. `differences` compares two versions; `HeldChange` is the note of a change that waits for its owner (`held:<id>`). Text
is free to change: it steers nobody to another place. Who may confirm, and when, is decided by `decisions`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import parse_json
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import to_rfc3339
from waypost.model.verdict import TrustSummary, Verdict
from waypost.protocols.codec import Decoded, MappingLoss
from waypost.responses.agents import PendingChangeView, PendingDifference
from waypost.trust.encodings import decode_base64url


class PendingChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A document that waits, with all that was said about it, and what it would change."""

    etag: str  # of the content that it would make
    base: str  # the etag of the content that it was held against
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
    """The name of the note that keeps it."""
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
    """The guarded parts that differ. Keys are those of the documents of one dialect, before and after."""
    found: list[PendingDifference] = []
    was, is_now = _endpoints(before), _endpoints(after)
    if set(was) != set(is_now):
        found.append(PendingDifference(part="endpoint", before=was, after=is_now))
    if key_before != key_after:
        found.append(PendingDifference(part="key", before=key_before, after=key_after))
    if before.auth != after.auth:
        found.append(PendingDifference(part="auth", before=before.auth, after=after.auth))
    return tuple(found)


def _endpoints(record: AgentRecord) -> list[str]:
    return list(dict.fromkeys(f"{binding.protocol} {binding.endpoint}" for binding in record.bindings))


def signing_key_name(record: AgentRecord) -> str | None:
    """The name of the key that a document is signed with or brings along; never the signature, which is always another."""
    signature = record.signature
    if not isinstance(signature, dict):
        return None
    for name in ("key_id", "fingerprint", "kid", "keyId", "public_key", "publicKey", "jwk"):
        told = signature.get(name)
        if told is not None:
            return told if isinstance(told, str) else repr(told)[: limits.ID_CHARS]
    return _kid(signature.get("protected"), signature.get("header")) or "unnamed"


def _kid(protected: Any, header: Any) -> str | None:
    for part in (_decoded(protected), header):
        if isinstance(part, dict) and isinstance(part.get("kid"), str):
            return str(part["kid"])
    return None


def _decoded(protected: Any) -> Any:
    try:
        return parse_json(decode_base64url(protected)) if isinstance(protected, str) else None
    except (ValueError, WaypostError):
        return None


def pending_view(change: PendingChange) -> PendingChangeView:
    """A pending change as answers show it."""
    return PendingChangeView(
        etag=change.etag,
        base=change.base,
        changes=change.differences,
        dialect=change.dialect,
        subject=change.subject,
        at=to_rfc3339(change.at),
        expires_at=to_rfc3339(change.expires_at),
    )


# ---- What callers hand to the engine and get back.

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


class PublicationReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a write, the same on every face."""

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
    held: PendingChange | None = None  # what waits, where the outcome is `held`

    @property
    def created(self) -> bool:
        return self.outcome == "created"


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, in the order of (folded name, id)."""

    entries: list[CatalogEntry]
    total: int
    next_cursor: str | None = None


def representation_etag(
    etag: str, expires_at: float | None, representation: str = "", *, is_unhealthy: bool = False
) -> str:
    """The entity tag of a representation: the content's hash, then what else makes the bytes differ.

    If-Match compares only the part before the first dot, so that a tag read from any dialect guards a write.
    """
    lease = f".e{int(expires_at):x}" if expires_at is not None else ""
    health = ".unhealthy" if is_unhealthy else ""  # its status is another one, in whatever is written of it
    return f"{etag}{lease}{health}{'.' + representation if representation else ''}"


def content_etag_part(tag: str) -> str:
    return tag.split(".", 1)[0]
