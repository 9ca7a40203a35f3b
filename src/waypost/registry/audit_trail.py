"""The audit trail: entries of writes, pages of entries, signed checkpoints, and proofs over the hash tree.

An entry has names and outcomes, never a document. The trail names hidden agents, so callers must allow admins only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waypost.errors import InvalidParameter
from waypost.model.events import AuditRecord, leaf_bytes
from waypost.model.principal import Principal
from waypost.model.times import to_rfc3339_millis
from waypost.registry.ports import AuditEntry, AuditLogPage, AuditQuery, Store
from waypost.registry.publication import Publication
from waypost.trust.transparency_log import (
    Checkpoint,
    Span,
    VerifierKey,
    consistency_spans,
    inclusion_spans,
    log_origin,
    sign_checkpoint,
)

_OUTCOMES = {"register": "created", "update": "updated", "confirm": "updated", "hold": "held"}


def audit_entry_by(
    principal: Principal,
    action: str,
    *,
    now: float,
    object: str,  # noqa: A002 - the name of the member
    outcome: str = "",
    via: str = "http",
    etag: str = "",
    detail: str = "",
) -> AuditEntry:
    return AuditEntry(
        at=now,
        action=action,
        subject=principal.subject or "anonymous",
        object=object,
        outcome=outcome,
        via=via,
        credential=principal.credential,
        address=principal.address,
        etag=etag,
        detail=detail,
    )


def audit_publication(publication: Publication, action: str, agent_id: str, etag: str, now: float) -> AuditEntry:
    """The entry of a registration or an update, by the principal that confirmed it, if it was pending."""
    return audit_entry_by(
        publication.confirmed_by or publication.principal,
        action,
        now=now,
        object=agent_id,
        outcome=_OUTCOMES[action],
        via=publication.via,
        etag=etag,
        detail=publication.dialect,
    )


def audit_expiry(agent_id: str, etag: str, now: float) -> AuditEntry:
    """The end of a lease. The service has no subject."""
    return AuditEntry(at=now, action="expire", subject="", object=agent_id, outcome="expired", via="lease", etag=etag)


def audit_reverification(agent_id: str, etag: str, level: str, now: float) -> AuditEntry:
    """New verdicts after a key was bound."""
    return AuditEntry(at=now, action="judge", subject="", object=agent_id, outcome=level, via="trust", etag=etag)


def audit_leaf(entry: AuditEntry, number: int) -> bytes:
    return leaf_bytes(
        AuditRecord(
            number=number,
            at=to_rfc3339_millis(entry.at),
            action=entry.action,
            subject=entry.subject,
            object=entry.object,
            outcome=entry.outcome,
            via=entry.via,
            credential=entry.credential,
            address=entry.address,
            etag=entry.etag,
            detail=entry.detail,
        )
    )


class SignedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint: Checkpoint
    key: str  # as a verifier key
    note: str


class InclusionProof(msgspec.Struct, frozen=True, kw_only=True):
    """Proves that an entry is in the tree of the first `size` entries."""

    entry: int
    size: int
    leaf: bytes
    root: bytes
    hashes: list[bytes]


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True):
    """Proves that the tree of `second` entries extends that of `first`."""

    first: int
    second: int
    first_root: bytes
    second_root: bytes
    hashes: list[bytes]


class AuditTrail:
    """`key` is the public Ed25519 key of the service (32 bytes); `sign` signs with the private one."""

    def __init__(self, store: Store, key: bytes, sign: Callable[[bytes], bytes]) -> None:
        self._store = store
        self._key = VerifierKey(log_origin(key), key)
        self._sign = sign

    async def page(self, query: AuditQuery) -> AuditLogPage:
        return await self._store.audit(query)

    async def checkpoint(self) -> SignedCheckpoint:
        size = await self._store.audit_size()
        (root,) = await self._store.audit_hashes([(0, size)])
        checkpoint = Checkpoint(self._key.name, size, root)
        return SignedCheckpoint(
            checkpoint=checkpoint, key=self._key.text(), note=sign_checkpoint(checkpoint, self._key, self._sign)
        )

    async def inclusion(self, entry: int, size: int | None) -> InclusionProof:
        size = await self._within(size, "size")
        if not 1 <= entry <= size:
            raise InvalidParameter(f"There is no entry {entry} among {size} entries.", path="entry")
        spans: list[Span] = [(entry - 1, entry), (0, size), *inclusion_spans(entry - 1, size)]
        leaf, root, *hashes = await self._store.audit_hashes(spans)
        return InclusionProof(entry=entry, size=size, leaf=leaf, root=root, hashes=hashes)

    async def consistency(self, first: int, second: int | None) -> ConsistencyProof:
        second = await self._within(second, "to")
        if not 0 <= first <= second:
            raise InvalidParameter(f"A trail of {second} entries cannot extend one of {first}.", path="from")
        spans: list[Span] = [(0, first), (0, second), *consistency_spans(first, second)]
        first_root, second_root, *hashes = await self._store.audit_hashes(spans)
        return ConsistencyProof(
            first=first, second=second, first_root=first_root, second_root=second_root, hashes=hashes
        )

    async def _within(self, size: int | None, name: str) -> int:
        """The given size, if the trail has as many entries; by default its current size."""
        now = await self._store.audit_size()
        if size is not None and size > now:
            raise InvalidParameter(
                f"The trail has {now} entries.", path=name, hint="Name at most that many, or leave it out."
            )
        return now if size is None else size
