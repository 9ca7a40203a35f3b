"""Pulling the agents of a peer: one task, one cursor and one backoff per peer, so that none costs the others anything.

Errors and empty answers remove nothing. A record goes when the peer says so, or when two complete snapshots lack it; many at
once stop the pull until an admin looks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidKey, WaypostError
from waypost.federation.feed import ServiceName, SetDigest, signed_bytes
from waypost.federation.peers import Peer, PeerState, PeerStore
from waypost.federation.sources import PeerProblem, PeerSource
from waypost.model.federation import Federation, peer_subject
from waypost.model.times import find_instant, rfc3339_or_none
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.registry import mirror_rules
from waypost.registry.mirror_rules import PEER_VIA, MirroredRecord, peer_principal
from waypost.registry.ports import Command
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.responses.federation import FeedBookmark, FeedEntry, PeerView
from waypost.trust.keys.public_key import parse_base64_der

log = logging.getLogger("waypost.peers")

_GONE = ("withdrawn", "expired")


def verify_bookmark(bookmark: FeedBookmark, pinned: str) -> None:
    """Raises PeerProblem unless the pinned key signed the bookmark."""
    if pinned and bookmark.key != pinned:
        raise PeerProblem(
            "Its key has changed: remove the peer and add it again, if the new key is right "
            f"({key_fingerprint(bookmark.key) or 'unreadable'})."
        )
    try:
        key = parse_base64_der(bookmark.key)
        signature = base64.b64decode(bookmark.signature, validate=True)
    except (InvalidKey, binascii.Error, ValueError):
        raise PeerProblem("Its bookmark has no readable key or signature.") from None
    if not key.verify(signature, signed_bytes(bookmark)):
        raise PeerProblem("The signature of its bookmark is wrong.")


def key_fingerprint(key: str) -> str:
    try:
        return parse_base64_der(key).key_id
    except (InvalidKey, ValueError):
        return ""


class Puller:
    """Follows one peer."""

    def __init__(self, registry: Registry, peers: PeerStore, source: PeerSource, own: ServiceName, name: str) -> None:
        self._registry = registry
        self._peers = peers
        self._source = source
        self._own = own
        self.name = name
        self.state = peers.state(name)
        self.error: str | None = None
        self.is_complete = False
        self._known = SetDigest()  # everything that the peer has told, taken or not
        self._parked: dict[str, tuple[str, str]] = dict(self.state.parked)
        self._seen: set[str] | None = None  # ids of the snapshot that is being read
        self._missing: set[str] = set()  # ids that the last complete snapshot lacked
        self._mismatches = 0
        self._failures = 0
        self._wake = asyncio.Event()
        self._is_loaded = False

    @property
    def peer(self) -> Peer:
        return self._peers.get(self.name)

    def wake(self) -> None:
        """Pull now, whatever the backoff or the pause is."""
        self._wake.set()

    async def run(self) -> None:
        await self._load()
        while True:
            peer = self._peers.find(self.name)
            if peer is None:
                return
            if peer.paused:
                await self._pause(limits.PEER_PAUSED_SECONDS)
                continue
            try:
                is_more = await self.pull_once(wait_seconds=self._wait_seconds)
                self._failures = 0
            except PeerProblem as problem:
                self._fail(str(problem))
            except WaypostError as error:  # of this service, such as a full disk
                self._fail(f"Its records cannot be stored: {error.message}")
            else:
                if not is_more:
                    await self._pause(self._pause_seconds(peer))
                continue
            await self._pause(backoff_seconds(self._failures))

    @property
    def _wait_seconds(self) -> float:
        """A mirror that differs looks again soon: it may only have seen a lease end a moment too early."""
        return limits.PEER_WAIT_SECONDS if self.is_complete else limits.PEER_DOUBT_SECONDS

    def _pause_seconds(self, peer: Peer) -> float:
        """Between two readings. A feed waits for changes itself."""
        return limits.PEER_PAGE_PAUSE_SECONDS if peer.has_feed else peer.every_seconds or limits.PEER_EVERY_SECONDS

    def _fail(self, reason: str) -> None:
        self._failures += 1
        if reason != self.error:
            log.warning("peer %s: %s", self.name, reason)
        self.error = reason

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _load(self) -> None:
        """The records of the peer that are stored here, for the digest."""
        if self._is_loaded:
            return
        owner = peer_subject(self.name)
        ids = [entry.id for entry in self._registry.entries if entry.owner == owner]
        for start in range(0, len(ids), limits.PEER_PAGE):
            part = ids[start : start + limits.PEER_PAGE]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                if registration.federation is not None:
                    self._known.put(registration.id, registration.federation.etag)
        for agent_id, (etag, _) in self._parked.items():
            self._known.put(agent_id, etag)
        self._is_loaded = True

    # --- One page --------------------------------------------------------------------------------

    async def pull_once(self, *, wait_seconds: float) -> bool:
        """Read and store one page. Returns whether more is waiting."""
        await self._load()
        peer, state = self.peer, self.state
        page = await self._source.read(peer, state.cursor, wait_seconds=wait_seconds, limit=limits.PEER_PAGE)
        if page is None:
            self._restart_snapshot()
            return True
        if page.bookmark is not None:
            verify_bookmark(page.bookmark, peer.key)
        if page.service_id == self._own.id:
            raise PeerProblem("It is this registry itself.")
        if state.service_id and page.service_id != state.service_id:
            raise PeerProblem("Another registry answers at its address: remove the peer and add it again.")
        if page.starts_over:
            self._seen = set()
        if peer.has_feed and state.cursor == page.cursor and page.entries:
            raise PeerProblem("Its cursor does not move.")
        for start in range(0, len(page.entries), limits.PEER_CONCURRENCY):
            await self._apply(peer, page.entries[start : start + limits.PEER_CONCURRENCY])
        now = self._registry.clock.now()
        if self._seen is not None and page.ends_snapshot:
            await self._finish_snapshot(peer)
            self.is_complete = page.bookmark is None  # without a digest, everything was read once
        if page.bookmark is not None and page.is_last:
            self._compare(page.bookmark)
        is_doubtful = self._mismatches >= limits.PEER_MISMATCHES
        is_due = page.entries or now - (state.last_contact or 0) > limits.PEER_SAVE_SECONDS
        self.state = PeerState(
            cursor=None if is_doubtful else page.cursor,
            last_contact=now,
            current_at=now if page.is_last else state.current_at,
            service_id=page.service_id,
            parked=dict(self._parked),
        )
        if is_due:
            await self._peers.save_state(self.name, self.state)
        self.error = f"{page.bad} of its entries could not be read." if page.bad else None
        if is_doubtful:
            self._restart_snapshot()
        return is_doubtful or not page.is_last

    def _restart_snapshot(self) -> None:
        """Read everything again. Nothing is removed meanwhile."""
        self.state = msgspec.structs.replace(self.state, cursor=None)
        self._mismatches = 0
        self.is_complete = False

    def _compare(self, bookmark: FeedBookmark) -> None:
        """Prove that nothing is missing. One difference may be a lease that ends while the page is read."""
        self.is_complete = (self._known.count, self._known.digest) == (bookmark.count, bookmark.digest)
        self._mismatches = 0 if self.is_complete else self._mismatches + 1

    async def _finish_snapshot(self, peer: Peer) -> None:
        """Remove what two complete snapshots lack, unless it is suspiciously much."""
        seen, self._seen = self._seen or set(), None
        lacking = {agent_id for agent_id in self._known.ids() if agent_id not in seen}
        gone, self._missing = lacking & self._missing, lacking
        if not gone:
            if lacking:
                self._mismatches = limits.PEER_MISMATCHES  # read it once more
            return
        if len(gone) > limits.PEER_BRAKE_RECORDS and len(gone) > limits.PEER_BRAKE_SHARE * self._known.count:
            await self._peers.change(
                peer_principal(self.name), msgspec.structs.replace(peer, paused=True), "peer-pause"
            )
            raise PeerProblem(
                f"{len(gone)} of {self._known.count} records are missing from it at once: it is paused. "
                "Look at it, then `waypost peers resume`."
            )
        for agent_id in gone:
            await self._remove(agent_id, 0, "missing from two snapshots")
        self._missing = set()

    # --- Records ---------------------------------------------------------------------------------

    async def _apply(self, peer: Peer, entries: Sequence[FeedEntry]) -> None:
        results = await asyncio.gather(*(self._apply_one(peer, entry) for entry in entries), return_exceptions=True)
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, _Parked):
                self._park(entry, result.reason)
            elif isinstance(result, WaypostError):
                if result.code in _OUR_OWN:
                    raise result
                self._park(entry, str(result.details.get("reason") or result.code))
            elif isinstance(result, BaseException):
                raise result

    async def _apply_one(self, peer: Peer, entry: FeedEntry) -> None:
        if self._seen is not None:
            self._seen.add(entry.id)
        if entry.type in _GONE:
            origin = entry.origin
            await self._remove(entry.id, 0 if origin is None else origin.revision, entry.type)
            return
        if entry.type == "renewed" and not entry.documents:
            await self._renew(entry)
            return
        if not peer.has_feed and self._known.get(entry.id) == entry.etag:
            return  # read again, and unchanged
        if self._known.get(entry.id) is None and self._known.count >= peer.max_records:
            raise PeerProblem(f"It has more than {peer.max_records} records.")
        await self._registry.mirror(self._decode(peer, entry))
        self._parked.pop(entry.id, None)
        self._known.put(entry.id, entry.etag)

    def _decode(self, peer: Peer, entry: FeedEntry) -> MirroredRecord:
        origin, now = entry.origin, self._registry.clock.now()
        if origin is None or origin.id != entry.id:
            raise _Parked("no_origin")
        if origin.service_id == self._own.id or self._own.id in origin.path:
            raise _Parked("own_record")
        if len(origin.path) >= limits.PEER_HOPS:
            raise _Parked("too_many_hops")
        if not peer.takes(entry.id):
            raise _Parked("namespace")
        if not entry.documents:
            raise _Parked("no_documents")
        federation = Federation(
            peer=peer.name,
            origin_service=origin.service,
            origin_id=origin.id,
            origin_updated_at=origin.updated_at,
            received_at=now,
            via=origin.via,
            service_id=origin.service_id,
            path=origin.path,
            etag=entry.etag,
            revision=origin.revision,
        )
        principal, latest = peer_principal(peer.name), self._registry.clock.latest()
        publications = []
        for each in entry.documents:
            document = each.document.encode()
            if hashlib.sha256(document).hexdigest() != each.digest:
                raise _Parked("digest")
            context = DecodeContext(now=latest, source_url=each.url)
            dialect, _, decoded = decode_document(document, each.dialect, context)
            publications.append(
                Publication(
                    dialect=dialect,
                    document=document,
                    decoded=decoded,
                    principal=principal,
                    via=PEER_VIA,
                    source_url=each.url,
                )
            )
        names = {entry.id, *entry.aliases}
        if not any(names & {each.decoded.record.id, each.decoded.source_id} for each in publications):
            raise _Parked("other_id")  # the documents are of another agent
        return MirroredRecord(
            publications=tuple(publications),
            federation=federation,
            visibility=peer.visibility,
            expires_at=find_instant(entry.expires_at),
        )

    async def _renew(self, entry: FeedEntry) -> None:
        if entry.id in self._parked:
            self._park(entry, self._parked[entry.id][1])
            return
        rule = mirror_rules.renew_mirrored(
            entry.id, self.name, entry.etag, find_instant(entry.expires_at), now=self._registry.clock.now()
        )
        result = await self._registry.execute(Command(keys=(entry.id,), decide=rule))
        if result.outcome == "unknown":
            self._mismatches = limits.PEER_MISMATCHES  # an earlier change was missed

    async def _remove(self, agent_id: str, revision: int, reason: str) -> None:
        rule = mirror_rules.withdraw_mirrored(agent_id, self.name, revision, reason, now=self._registry.clock.now())
        await self._registry.execute(Command(keys=(agent_id,), decide=rule))
        self._known.remove(agent_id)
        self._parked.pop(agent_id, None)

    def _park(self, entry: FeedEntry, reason: str) -> None:
        """Remember a record that is not taken, for the digest and for operators. It holds up no other."""
        self._known.put(entry.id, entry.etag)
        if entry.id in self._parked or len(self._parked) < limits.PEER_PARKED:
            self._parked[entry.id] = (entry.etag, reason[:80])

    async def remove_all(self) -> int:
        """Take all records of the peer out of the registry."""
        owner = peer_subject(self.name)
        ids = [entry.id for entry in self._registry.entries if entry.owner == owner]
        for start in range(0, len(ids), limits.PEER_CONCURRENCY):
            part = ids[start : start + limits.PEER_CONCURRENCY]
            await asyncio.gather(*(self._remove(agent_id, 0, "peer removed") for agent_id in part))
        return len(ids)

    # --- For operators ---------------------------------------------------------------------------

    def view(self) -> PeerView:
        peer, state, now = self.peer, self.state, self._registry.clock.now()
        lag = None if state.current_at is None else max(0.0, round(now - state.current_at, 1))
        return PeerView(
            name=peer.name,
            url=peer.url,
            kind=peer.kind,
            state=self._state_name(peer),
            last_contact=rfc3339_or_none(state.last_contact),
            lag_seconds=lag,
            records=self._registry.entries.count_owned(peer_subject(peer.name)),
            error=self.error,
            pull=peer.pull,
            reexport=peer.reexport,
            visibility=peer.visibility,
            namespaces=peer.namespaces,
            every_seconds=peer.every_seconds,
            key=key_fingerprint(peer.key),
            parked=len(self._parked),
            parked_reasons=dict(Counter(reason for _, reason in self._parked.values())),
            complete=self.is_complete,
            added_at=rfc3339_or_none(peer.added_at),
        )

    def _state_name(self, peer: Peer) -> str:
        if peer.paused:
            return "paused"
        if self.error is not None:
            return "failing"
        if self.state.last_contact is None:
            return "new"
        return "current" if self.is_complete else "syncing"


class _Parked(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_OUR_OWN = frozenset(("storage_full", "unavailable", "store_unavailable"))


def backoff_seconds(failures: int) -> float:
    """Doubled with each failure, with jitter, so that many readers do not return at once."""
    seconds = min(limits.PEER_BACKOFF_MAX_SECONDS, limits.PEER_BACKOFF_SECONDS * 2 ** min(failures - 1, 16))
    return float(seconds * random.uniform(0.5, 1.0))
