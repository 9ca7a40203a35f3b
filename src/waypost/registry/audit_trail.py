"""Audit entries of writes: who did what to what. Names and outcomes, never a document."""

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
    """What a registration or an update tells: by whom, and which content it made."""
    by = publication.confirmed_by or publication.principal
    return audit_entry_by(
        by,
        action,
        now=now,
        object=agent_id,
        outcome=_OUTCOMES[action],
        via=publication.via,
        etag=etag,
        detail=publication.dialect,
    )


def audit_expiry(agent_id: str, etag: str, now: float) -> AuditEntry:
    """Nobody did it: a lease ran out. The service itself has no subject."""
    return AuditEntry(at=now, action="expire", subject="", object=agent_id, outcome="expired", via="lease", etag=etag)


def audit_reverification(agent_id: str, etag: str, level: str, now: float) -> AuditEntry:
    """What followed from a key that was bound: the service judged what it holds."""
    return AuditEntry(at=now, action="judge", subject="", object=agent_id, outcome=level, via="trust", etag=etag)


_OUTCOMES = {"register": "created", "update": "updated", "confirm": "updated", "hold": "held"}


# ---- The audit trail for those who read it: pages of entries, signed checkpoints, and proofs over the hash tree.
#
# Who may read it is decided before: it names hidden agents, so it is for admins.


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
    """An entry is in the tree of so many entries."""

    entry: int
    size: int
    leaf: bytes
    root: bytes
    hashes: list[bytes]


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True):
    """The tree of `second` entries begins with that of `first`."""

    first: int
    second: int
    first_root: bytes
    second_root: bytes
    hashes: list[bytes]


class AuditTrail:
    """`key` are the 32 bytes of the service's Ed25519 key, `sign` its private half."""

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
            raise InvalidParameter(f"A trail of {size} entries has no entry {entry}.", path="entry")
        spans: list[Span] = [(entry - 1, entry), (0, size), *inclusion_spans(entry - 1, size)]
        leaf, root, *hashes = await self._store.audit_hashes(spans)
        return InclusionProof(entry=entry, size=size, leaf=leaf, root=root, hashes=hashes)

    async def consistency(self, first: int, second: int | None) -> ConsistencyProof:
        second = await self._within(second, "to")
        if not 0 <= first <= second:
            raise InvalidParameter(f"A trail of {second} entries does not begin with one of {first}.", path="from")
        spans: list[Span] = [(0, first), (0, second), *consistency_spans(first, second)]
        first_root, second_root, *hashes = await self._store.audit_hashes(spans)
        return ConsistencyProof(
            first=first, second=second, first_root=first_root, second_root=second_root, hashes=hashes
        )

    async def _within(self, size: int | None, name: str) -> int:
        """A size that the trail has, or had; without one, what it has now."""
        now = await self._store.audit_size()
        if size is not None and size > now:
            raise InvalidParameter(
                f"The trail has {now} entries.", path=name, hint="Ask for no more than that, or leave it out."
            )
        return now if size is None else size
