"""The audit trail: entries of writes, pages of entries, signed checkpoints, and proofs over the hash tree.

An entry has names and outcomes, never a document. The trail names hidden agents, so callers must allow admins only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, StoreUnavailable
from waypost.model.events import AuditRecord, leaf_bytes
from waypost.model.json import dump_json
from waypost.model.principal import Principal
from waypost.model.times import to_rfc3339, to_rfc3339_millis
from waypost.registry.ports import (
    AuditEntry,
    AuditLogPage,
    AuditQuery,
    Clock,
    Command,
    Decision,
    KeyValueStore,
    KeyValueWrite,
    Store,
    StoreState,
)
from waypost.registry.publication import Publication
from waypost.trust.transparency_log import (
    Checkpoint,
    Span,
    VerifierKey,
    add_signature,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    log_origin,
    merkle_root,
    node_hash,
    sign_checkpoint,
)

_ORIGIN = "audit-origin"  # a secret of the store by its place alone: it is public
_PUBLISHED = "audit-published"
SERVICE_KEYS_NOTE = "service-keys"  # a note: the ids of the service's own keys that the trail knows

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


def audit_service_keys(key_ids: Mapping[str, str], *, now: float, rotation: AuditEntry | None = None) -> Command:
    """Write an entry for each key of the service that was replaced since the last time: a user who can write to the data
    folder can rotate keys without the API. `rotation` is the entry of a rotation whose author is known."""

    def decide(state: StoreState) -> Decision:
        data = state.notes.get(SERVICE_KEYS_NOTE)
        known = {} if data is None else msgspec.json.decode(data, type=dict[str, str])
        entries = [] if rotation is None else [rotation]
        for name, key_id in key_ids.items():
            before, replaced = known.get(name, key_id), f"service-key:{name}"
            if before != key_id and (rotation is None or rotation.object != replaced):
                entries.append(
                    AuditEntry(
                        at=now,
                        action="rotate",
                        subject="",
                        object=replaced,
                        outcome="rotated",
                        via="data-folder",
                        detail=f"{key_id} replaces {before}",
                    )
                )
        after = {**known, **key_ids}
        notes: dict[str, bytes | None] = {} if after == known else {SERVICE_KEYS_NOTE: msgspec.json.encode(after)}
        return Decision(outcome="recorded" if entries else "unchanged", notes=notes, audit=tuple(entries))

    return Command(keys=(), notes=(SERVICE_KEYS_NOTE,), decide=decide)


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


NoteSigner = tuple[
    bytes, Callable[[bytes], bytes]
]  # a public Ed25519 key (32 bytes), and a function that signs with it


class AuditTrail:
    """`signers` returns the identity key of the service and those that it replaced recently: while both sign, a client that
    knows the old key can learn the new one. The name of the log is that of its first key, and stays."""

    def __init__(self, store: Store, signers: Callable[[], Sequence[NoteSigner]]) -> None:
        self._store = store
        self._signers = signers
        self._origin = ""

    async def page(self, query: AuditQuery) -> AuditLogPage:
        return await self._store.audit(query)

    async def checkpoint(self) -> SignedCheckpoint:
        size = await self._store.audit_size()
        (root,) = await self._store.audit_hashes([(0, size)])
        return self.sign(Checkpoint(await self.origin(), size, root))

    async def origin(self) -> str:
        if not self._origin:
            first = log_origin(self._signers()[-1][0])
            try:
                self._origin = (await self._store.secret(_ORIGIN, first.encode)).decode()
            except StoreUnavailable:  # a follower that started before the leader has stored it
                return first
        return self._origin

    def sign(self, checkpoint: Checkpoint) -> SignedCheckpoint:
        (raw, sign), *others = self._signers()
        key = VerifierKey(checkpoint.origin, raw)
        note = sign_checkpoint(checkpoint, key, sign)
        for raw, sign in others:
            note = add_signature(note, VerifierKey(checkpoint.origin, raw), sign)
        return SignedCheckpoint(checkpoint=checkpoint, key=key.text(), note=note)

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


# --- The published log ----------------------------------------------------------------------------


class PublishedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of the trail, and the random number that hides it in a leaf of the published log."""

    number: int  # of the leaf, from 1
    at: str
    size: int
    root: bytes
    nonce: bytes

    def leaf(self, origin: str) -> bytes:
        """The bytes of the leaf: a time, and a hash that reveals neither the size nor the root."""
        text = Checkpoint(origin, self.size, self.root).text().encode()
        return published_leaf(self.at, text, self.nonce)


def published_leaf(at: str, checkpoint: bytes, nonce: bytes) -> bytes:
    return dump_json({"at": at, "commitment": hashlib.sha256(nonce + checkpoint).hexdigest()})


class PublishedLog:
    """A second log, for everybody: one leaf each hour, whatever happened, with a commitment to the checkpoint of the trail.

    The size of the trail is not public: compared with the visible changes it would tell of hidden agents. The published log grows
    with time alone, and its leaves are hashes with a random number. So anyone may witness its checkpoints and proofs; an admin
    opens a leaf to show that the trail is the one that was committed to.
    """

    def __init__(self, trail: AuditTrail, store: KeyValueStore, clock: Clock) -> None:
        self._trail = trail
        self._store = store
        self._clock = clock
        self._leaves: list[bytes] = []  # hashes
        self._subtrees: dict[Span, bytes] = {}  # hashes of full subtrees, fewer than leaves
        self._last: PublishedCheckpoint | None = None

    async def publish_if_due(self) -> bool:
        """Append a leaf, unless this hour has one. Called by the process that writes."""
        await self._load()
        now, last = self._clock.now(), self._last
        at = to_rfc3339(now // limits.PUBLISH_SECONDS * limits.PUBLISH_SECONDS)
        if last is not None and last.at == at:
            return False
        signed = (await self._trail.checkpoint()).checkpoint
        leaf = PublishedCheckpoint(
            number=len(self._leaves) + 1, at=at, size=signed.size, root=signed.root, nonce=secrets.token_bytes(32)
        )
        write = KeyValueWrite(
            kind=_PUBLISHED, key=f"{leaf.number:012d}", value=msgspec.json.encode(leaf), expected=None
        )
        return await self._store.commit([write], now)

    async def checkpoint(self) -> SignedCheckpoint:
        await self._load()
        origin = f"{await self._trail.origin()}/published"
        size = len(self._leaves)
        return self._trail.sign(Checkpoint(origin, size, self._hash((0, size))))

    async def page(self, after: int, limit: int) -> list[PublishedCheckpoint]:
        items = await self._store.scan(_PUBLISHED, self._clock.now(), after=f"{after:012d}", limit=limit)
        return [msgspec.json.decode(item.value, type=PublishedCheckpoint) for item in items]

    async def inclusion(self, entry: int, size: int | None) -> InclusionProof:
        size = await self._within(size, "size")
        if not 1 <= entry <= size:
            raise InvalidParameter(f"There is no leaf {entry} among {size} leaves.", path="entry")
        hashes = [self._hash(span) for span in inclusion_spans(entry - 1, size)]
        return InclusionProof(
            entry=entry, size=size, leaf=self._leaves[entry - 1], root=self._hash((0, size)), hashes=hashes
        )

    async def consistency(self, first: int, second: int | None) -> ConsistencyProof:
        second = await self._within(second, "to")
        if not 0 <= first <= second:
            raise InvalidParameter(f"A log of {second} leaves cannot extend one of {first}.", path="from")
        return ConsistencyProof(
            first=first,
            second=second,
            first_root=self._hash((0, first)),
            second_root=self._hash((0, second)),
            hashes=[self._hash(span) for span in consistency_spans(first, second)],
        )

    async def _within(self, size: int | None, name: str) -> int:
        await self._load()
        if size is not None and size > len(self._leaves):
            raise InvalidParameter(
                f"The log has {len(self._leaves)} leaves.", path=name, hint="Name at most that many."
            )
        return len(self._leaves) if size is None else size

    def _hash(self, span: Span) -> bytes:
        """The hash of a subtree. Full ones never change and are kept, so that a proof takes no longer as the log grows."""
        start, end = span
        if end - start < 2:
            return merkle_root(self._leaves[start:end])
        known = self._subtrees.get(span)
        if known is not None:
            return known
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        found = node_hash(self._hash((start, middle)), self._hash((middle, end)))
        if end - middle == middle - start:
            self._subtrees[span] = found
        return found

    async def _load(self) -> None:
        """Read the leaves that were appended since the last time."""
        origin = await self._trail.origin()
        while page := await self.page(len(self._leaves), limits.AUDIT_PAGE_MAX):
            for leaf in page:
                if leaf.number != len(self._leaves) + 1:
                    return  # another call has read it meanwhile
                self._leaves.append(leaf_hash(leaf.leaf(origin)))
                self._last = leaf
