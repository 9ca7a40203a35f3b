"""Responses about trust: verification, the allow-list, the trust store, domain claims and the audit trail."""

from __future__ import annotations

from typing import Annotated

import msgspec

from waypost.model.events import AuditRecord
from waypost.model.verdict import CheckResult, ShownTrust, TrustSummary
from waypost.responses.base import Answer, Count, Part, Timestamp, described, one_of


class VerifiedDocument(Part, frozen=True, kw_only=True):
    """The checks of one document of an agent."""

    dialect: str
    level: ShownTrust
    checks: tuple[CheckResult, ...]
    received_at: Timestamp | None = None
    via: str | None = None


class VerificationResult(Answer, frozen=True, kw_only=True):
    """The checks of an agent or a document, made for this request."""

    id: str
    trust: TrustSummary
    shown: Annotated[ShownTrust, described("the level that other answers show")] | None = None
    documents: tuple[VerifiedDocument, ...]
    checked_at: Timestamp

    @property
    def level(self) -> str:
        """The level of trust: verified, self_asserted or failed. Do not call an agent that failed."""
        return self.trust.level

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """The checks behind the level."""
        return self.trust.checks or ()


class AllowEntry(Answer, frozen=True, kw_only=True):
    """A rule of the allow-list: which agents may announce."""

    rule: str
    added_at: Timestamp
    added_by: str
    outcome: Annotated[str, one_of("added", "unchanged"), described("in the answer to a write")] | None = None


class AllowListResponse(Answer, frozen=True, kw_only=True):
    """The allow-list."""

    rules: tuple[AllowEntry, ...]


class TrustedKey(Answer, frozen=True, kw_only=True):
    """A key that is or was bound to an agent."""

    agent_id: str
    key_id: str
    kind: str
    state: Annotated[str, one_of("active", "retiring", "retired", "revoked")]
    via: str
    first_seen: Timestamp
    until: Timestamp | None = None
    outcome: Annotated[str, one_of("trusted", "unchanged"), described("in the answer to a write")] | None = None


class RevokedItem(Answer, frozen=True, kw_only=True):
    """A revocation. Exactly one of key_id, agent_id, serial and token_id is present."""

    key_id: str | None = None
    agent_id: str | None = None
    serial: str | None = None
    token_id: str | None = None
    revoked_at: Timestamp
    reason: str | None = None
    outcome: Annotated[str, one_of("revoked", "already"), described("in the answer to a write")] | None = None
    withdrawn: Annotated[tuple[str, ...], described("agents that were withdrawn with it")] | None = None

    @property
    def what(self) -> str:
        """The revoked key, agent, certificate or token as one name."""
        if self.token_id is not None:
            return f"token:{self.token_id}"
        return self.key_id or self.agent_id or f"serial:{self.serial}"


class RevocationList(Answer, frozen=True, kw_only=True):
    """The revocations of keys and agents (announce.md P-14), or one page of them if they are too many for one answer."""

    revoked: tuple[RevokedItem, ...]
    next_cursor: Annotated[str, described("the cursor of the next page; absent on the last one")] | None = None


class TrustStorePage(Answer, frozen=True, kw_only=True):
    """One page of the trust store: keys by agent, then revocations."""

    keys: tuple[TrustedKey, ...]
    revoked: tuple[RevokedItem, ...]
    next_cursor: Annotated[str, described("the cursor of the next page; absent on the last one")] | None = None


class CreatedApiKey(Answer, frozen=True, kw_only=True):
    """A new API key. The key is shown here and nowhere else."""

    id: str
    key: str
    sub: str
    scopes: tuple[str, ...]
    expires_at: Annotated[Timestamp | None, described("null: valid until it is revoked")]


class ApiKeyRow(Part, frozen=True, kw_only=True):
    """An API key without its secret."""

    id: str
    sub: str
    scopes: tuple[str, ...]
    created_at: Timestamp
    created_by: str
    expires_at: Annotated[Timestamp | None, described("null: valid until it is revoked")]
    note: str = ""


class ApiKeyList(Answer, frozen=True, kw_only=True):
    """The API keys of the service."""

    apikeys: tuple[ApiKeyRow, ...]


class DomainClaim(Answer, frozen=True, kw_only=True):
    """A subject's claim to own a domain."""

    domain: str
    subject: str
    method: Annotated[str, one_of("dns", "http")]
    state: Annotated[str, one_of("pending", "proven", "lapsed")]
    subdomains: Annotated[bool, described("whether the proof covers the names below the domain")]
    place: Annotated[str, described("where to publish the line: the name of a TXT record, or a URL")]
    line: Annotated[str, described("the line to publish")]
    failures: Count
    expires_at: Timestamp | None = None
    proven_at: Timestamp | None = None
    checked_at: Timestamp | None = None
    next_check_at: Timestamp | None = None


class DomainClaimList(Answer, frozen=True, kw_only=True):
    """The domain claims of the caller; for an admin, all of them."""

    domains: tuple[DomainClaim, ...]


# The audit trail, and what a client can verify of it without trusting the service.


class AuditTrailPage(Answer, frozen=True, kw_only=True):
    """Entries of the audit trail by number."""

    entries: tuple[AuditRecord, ...]
    size: Count
    oldest: Annotated[int, msgspec.Meta(ge=1, description="the first entry whose content is kept")]
    next_after: Annotated[int, msgspec.Meta(ge=0, description="`after` of the next page")] | None = None


class LogCheckpoint(Answer, frozen=True, kw_only=True):
    """Size and root of the audit trail. Only `note` is signed."""

    origin: str
    size: Count
    root: bytes
    key: Annotated[str, described("verifier key of the note")]
    note: Annotated[str, described("the signed checkpoint")]


class PublishedLeaf(Answer, frozen=True, kw_only=True):
    """What a leaf of the published log commits to: the checkpoint of the audit trail at that time."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    at: Timestamp
    size: Count
    root: bytes
    nonce: Annotated[bytes, described("hashed before the text of the checkpoint")]


class PublishedLeaves(Answer, frozen=True, kw_only=True):
    """Leaves of the published log, opened."""

    origin: Annotated[str, described("the origin of the committed checkpoints")]
    leaves: tuple[PublishedLeaf, ...]


class LogProof(Answer, frozen=True, kw_only=True):
    """The hashes of an inclusion proof (`entry`, `size`, `leaf`, `root`) or a consistency proof (the others)."""

    hashes: tuple[bytes, ...]
    entry: Count | None = None
    size: Count | None = None
    leaf: bytes | None = None
    root: bytes | None = None
    from_: Count | None = msgspec.field(name="from", default=None)
    to: Count | None = None
    from_root: bytes | None = None
    to_root: bytes | None = None
