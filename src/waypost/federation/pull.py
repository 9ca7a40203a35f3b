"""Pulling the agents of a peer: one task, one cursor and one backoff per peer, so that none costs the others anything.

Errors and empty answers remove nothing. A record goes when the peer says so, or when two complete snapshots lack it; many at
once stop the pull until an admin looks.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import msgspec

from waypost import limits
from waypost.errors import InvalidKey, WaypostError
from waypost.federation.backoff import backoff_seconds
from waypost.federation.copies import ParkedRecord, decode_copy
from waypost.federation.feed import ServiceName, SetDigest, SetDigestChange, key_change_bytes, signed_bytes
from waypost.federation.kinds.port import PeerPage, PeerProblem, PeerSource
from waypost.federation.peers import OtherNode, ParkedItem, Peer, PeerState, PeerStore
from waypost.model.events import Event
from waypost.model.federation import peer_of, peer_subject
from waypost.model.registration import KEY_FACT, Registration, keys_of
from waypost.model.times import find_instant, rfc3339_or_none
from waypost.registry import mirror_rules
from waypost.registry.jobs.periodic import ChoreCheck, do_all_chores
from waypost.registry.mirror_rules import MirroredRecord, peer_principal
from waypost.registry.ports import Command, CommandResult, Decision, StoreState
from waypost.registry.registry import Registry
from waypost.responses.federation import FeedBookmark, FeedEntry, PeerView
from waypost.time_slice import TimeSlice
from waypost.trust.keys.public_key import parse_base64_der

log = logging.getLogger("waypost.peers")

GONE_TYPES = ("withdrawn", "expired")
# Why a record was not taken: another agent has its id. It is read again when that one is gone.
_ID_IS_HELD = ("local_owner", "other_copy", mirror_rules.ALIAS)
_OTHER_HISTORY = (
    "It signs another number or digest of agents than those it sends: some are missing, or its history has forked."
)


def verify_bookmark(bookmark: FeedBookmark, pinned: str) -> None:
    """Raises PeerProblem unless the pinned key signed the bookmark, or introduced the key that did."""
    if pinned and bookmark.key != pinned and not is_introduced(bookmark, pinned):
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


def is_introduced(bookmark: FeedBookmark, pinned: str) -> bool:
    """Whether the pinned key signed the present one, as a service does when it rotates its key."""
    for change in bookmark.replaced:
        if change.key == pinned:
            try:
                key, signature = parse_base64_der(change.key), base64.b64decode(change.signature, validate=True)
            except (InvalidKey, binascii.Error, ValueError):
                return False
            return bool(key.verify(signature, key_change_bytes(bookmark.key, bookmark.service_id)))
    return False


def check_identity(peers: PeerStore, name: str, page: PeerPage) -> None:
    """The id of a service is its own word. Raises PeerProblem if it is that of another peer and the key is not, because the
    agents of both would replace each other. Kinds without keys are known by their addresses."""
    bookmark = page.bookmark
    if bookmark is None:
        return
    for other in peers.others_with(page.service_id, name):
        if bookmark.key != other.key and not is_introduced(bookmark, other.key):
            raise PeerProblem(f"It claims to be the registry of the peer {other.name}, with another key.")


def key_fingerprint(key: str) -> str:
    try:
        return parse_base64_der(key).key_id
    except (InvalidKey, ValueError):
        return ""


def peer_view(
    peer: Peer, reasons: Counter[str], *, state: str, records: int, error: str | None, is_complete: bool
) -> PeerView:
    """A peer as operators see it before the first contact: its policy and counts. `reasons`: why records were not taken."""
    return PeerView(
        name=peer.name,
        url=peer.url,
        kind=peer.kind,
        state=state,
        last_contact=None,
        lag_seconds=None,
        records=records,
        error=error,
        pull=peer.pull,
        ask=peer.ask,
        reexport=peer.reexport,
        visibility=peer.visibility,
        namespaces=peer.namespaces,
        every_seconds=peer.every_seconds,
        key=key_fingerprint(peer.key),
        parked=reasons.total(),
        parked_reasons=dict(reasons),
        complete=is_complete,
    )


_Copy = MirroredRecord | ParkedRecord | WaypostError | None  # None: nothing to store


class _ReadPage(NamedTuple):
    page: PeerPage
    copies: Sequence[_Copy] | None  # of its entries, if they were decoded ahead


def _parts_of(page: PeerPage, cursor: str | None) -> Iterator[PeerPage]:
    """A list that has no pages of its own, in parts that are stored one after the other. The cursor moves with the last: until
    then, all of it is read again after a crash, and changes nothing that is stored."""
    size, count = limits.PEER_BATCH, len(page.entries)
    if page.bookmark is not None or count <= size:
        yield page
        return
    for start in range(0, count, size):
        is_first, is_last = start == 0, start + size >= count
        yield msgspec.structs.replace(
            page,
            entries=page.entries[start : start + size],
            starts_over=page.starts_over and is_first,
            bad=page.bad if is_first else 0,
            cursor=page.cursor if is_last else cursor,
            is_last=page.is_last and is_last,
            ends_snapshot=page.ends_snapshot and is_last,
        )


def _is_without_documents(entry: FeedEntry) -> bool:
    """Whether an entry tells the end of an agent, or of its lease, only."""
    return entry.type in GONE_TYPES or (entry.type == "renewed" and not entry.documents)


def refusal_reason(refusal: ParkedRecord | WaypostError) -> str:
    if isinstance(refusal, ParkedRecord):
        return refusal.reason
    return str(refusal.details.get("reason") or refusal.code)


class _Batch:
    """The commands of one page, and what becomes of its records. Rules may run again after a lost race."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._entries: list[FeedEntry] = []
        self.parked: dict[str, tuple[str, str]] = {}  # id -> etag, reason

    def park(self, entry: FeedEntry, reason: str) -> None:
        self.parked[entry.id] = (entry.etag, reason[:80])

    def add(self, entry: FeedEntry, command: Command) -> None:
        def decide(state: StoreState) -> Decision:
            try:
                decision = command.decide(state)
            except WaypostError as refusal:
                self.park(entry, refusal_reason(refusal))
                raise
            self.parked.pop(entry.id, None)
            if decision.outcome == mirror_rules.ALIAS:
                self.park(entry, mirror_rules.ALIAS)
            return decision

        self.commands.append(msgspec.structs.replace(command, decide=decide))
        self._entries.append(entry)

    def outcomes(self, results: Sequence[CommandResult | WaypostError]) -> Iterator[tuple[FeedEntry, str]]:
        """The outcome of each command, `refused` for one that was."""
        for entry, result in zip(self._entries, results, strict=False):
            yield entry, "refused" if isinstance(result, WaypostError) else result.outcome


class _Progress:
    """Notices a peer that would be read for ever: its cursors come back, it repeats its agents, or it does not end."""

    def __init__(self) -> None:
        self._cursors: dict[str, None] = {}  # the last ones, in their order
        self._clear()

    def _clear(self) -> None:
        self._pages = 0  # since the last one with nothing after it
        self._entries = 0
        self._ids: set[str] = set()

    def check(self, peer: Peer, cursor: str | None, page: PeerPage) -> None:
        """`cursor` is where the page was read. Raises PeerProblem."""
        is_followed = not page.is_last or (peer.has_feed and page.entries)
        if is_followed and page.cursor is not None:
            if page.cursor == cursor:
                raise PeerProblem("Its cursor does not move.")
            if page.cursor in self._cursors and not page.starts_over:
                raise PeerProblem("Its cursor goes round in a circle.")
        if not page.is_last and self._is_endless:
            raise PeerProblem("It goes on without an end, or repeats its agents.")

    @property
    def _is_endless(self) -> bool:
        return self._pages > limits.PEER_PAGES or self._entries > 2 * (len(self._ids) + limits.PEER_PAGE)

    def add(self, peer: Peer, page: PeerPage) -> None:
        """A page that was stored: one that was not is read again, at the same cursor."""
        if page.starts_over or (page.is_last and not peer.has_feed):
            self._cursors.clear()
        if page.starts_over or page.is_last:
            self._clear()
        if page.cursor is not None:
            self._cursors[page.cursor] = None
            if len(self._cursors) > limits.PEER_CURSORS:
                del self._cursors[next(iter(self._cursors))]
        if not page.is_last:
            self._pages += 1
        if not page.ends_snapshot:  # later changes may be of the same agents
            self._entries += len(page.entries)
            self._ids.update(entry.id for entry in page.entries)


class Puller:
    """Follows one peer."""

    def __init__(
        self,
        registry: Registry,
        peers: PeerStore,
        source: PeerSource,
        own: ServiceName,
        name: str,
        may_do: ChoreCheck = do_all_chores,
    ) -> None:
        """`may_do` says whether this node of a cluster is the one that pulls."""
        self._registry = registry
        self._peers = peers
        self._source = source
        self._own = own
        self._may_do = may_do
        self.name = name
        self._known = SetDigest()  # everything that the peer has told, taken or not
        self._seen: set[str] | None = None  # ids of the snapshot that is being read
        self._missing: set[str] = set()  # ids that the last complete snapshot lacked
        self._mismatches = 0
        self._rereads = 0  # of everything, because digests did not match, since the last one that did
        self._lost_cursors = 0  # that the peer did not know, one after the other
        self._progress = _Progress()
        self._have_holders_gone = False  # agents of others are gone: their names may be free
        self._released: dict[str, float] = {}  # ids that may be free for agents of this peer, with the time
        self._refresh_after = 0.0
        self._failures = 0
        self._wake = asyncio.Event()
        self._is_loaded = False
        self._ahead: tuple[str | None, asyncio.Task[_ReadPage | None]] | None = None  # with the cursor of the page

    @property
    def peer(self) -> Peer:
        return self._peers.get(self.name)

    @property
    def state(self) -> PeerState:
        return self._peers.state(self.name)

    @property
    def is_complete(self) -> bool:
        return self.state.is_complete

    def wake(self) -> None:
        """Pull now, whatever the backoff or the pause is."""
        self._wake.set()

    def retry(self) -> None:
        """Pull now, because an admin looked: what the peer did before does not count."""
        self._progress = _Progress()
        self.wake()

    def release(self, event: Event) -> None:
        """An agent is gone: if it stood in the place of one of this peer, that one is read again, unless it goes, too."""
        if event.owner == peer_subject(self.name):
            return
        self._have_holders_gone = True
        parked = self._peers.parked(self.name).get(event.id)
        is_wanted = self._known.get(event.id) is not None if parked is None else parked[1] in _ID_IS_HELD
        if is_wanted and len(self._released) < limits.PEER_PARKED:
            self._released[event.id] = self._registry.clock.now()

    def refresh(self) -> None:
        """Read everything again if that brings in agents that were not taken because of others, which are gone."""
        now = self._registry.clock.now()
        for name in self._find_lost_aliases():
            self._released.setdefault(name, now)
        if now < self._refresh_after:
            return
        due = [name for name, at in self._released.items() if now - at >= limits.PEER_REFRESH_SECONDS]
        for name in due:
            del self._released[name]
        find = self._registry.entries.find_named
        wanted = [name for name in due if self._known.get(name) is not None and find(name) is None]
        for name in wanted:
            self._known.remove(name)
        if wanted:
            self._refresh_after = now + limits.PEER_REFRESH_PAUSE_SECONDS
            self.restart_snapshot()

    def _find_lost_aliases(self) -> list[str]:
        """Ids of this peer that were names of records that are gone."""
        if not self._have_holders_gone:
            return []
        self._have_holders_gone = False
        find = self._registry.entries.find_named
        parked = self._peers.parked(self.name).items()
        return [name for name, (_, reason) in parked if reason in _ID_IS_HELD and find(name) is None]

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            if self._ahead is not None:
                self._ahead[1].cancel()

    async def _run(self) -> None:
        while True:
            peer = self._peers.find(self.name)
            if peer is None:
                return
            if peer.paused:
                await self._pause(limits.PEER_PAUSED_SECONDS)
                continue
            if not await self._may_do(f"peer {self.name}"):
                self._is_loaded = False  # another node changes the records meanwhile
                await self._pause(limits.PEER_LEASE_SECONDS)
                continue
            self.refresh()
            try:
                is_more = await self.pull_once(wait_seconds=self._wait_seconds)
                if not self._rereads:
                    self._failures = 0
            except PeerProblem as problem:
                await self._fail(str(problem))
            except OtherNode:
                self._is_loaded = False
                continue
            except WaypostError as error:  # of this service, such as a full disk
                await self._fail(f"Its records cannot be stored: {error.message}")
            except Exception as error:  # what one peer causes must not end following it, nor go unnoticed
                log.exception("peer %s", self.name)
                await self._fail(f"Its records cannot be processed ({type(error).__name__}): the log has the details.")
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

    async def _fail(self, reason: str) -> None:
        self._failures += 1
        if reason == self.state.error:
            return
        log.warning("peer %s: %s", self.name, reason)
        try:
            await self._peers.save_state(self.name, msgspec.structs.replace(self.state, error=reason))
        except WaypostError as error:
            log.warning("the state of peer %s cannot be stored: %s", self.name, error.message)

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
        self._known = SetDigest()
        self._seen, self._missing = None, set()
        ids = self._registry.entries.ids_owned(peer_subject(self.name))
        for start in range(0, len(ids), limits.PEER_BATCH):
            part = ids[start : start + limits.PEER_BATCH]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                if registration.federation is not None:
                    self._known.put(registration.id, registration.federation.etag)
        for agent_id, (etag, _) in self._peers.parked(self.name).items():
            self._known.put(agent_id, etag)
        self._is_loaded = True

    # --- One page --------------------------------------------------------------------------------

    async def pull_once(self, *, wait_seconds: float) -> bool:
        """Read and store one page. Returns whether more is waiting."""
        await self._load()
        cursor = self.state.cursor
        read = await self._read(self.peer, cursor, wait_seconds)
        if read is None:
            self.restart_snapshot()
            self._lost_cursors += 1
            if self._lost_cursors > limits.PEER_REREADS:
                raise PeerProblem("It does not know the cursors that it gives.")
            return True
        if cursor is not None:
            self._lost_cursors = 0
        is_more = False
        for part in _parts_of(read.page, cursor):
            is_more = await self._apply(part, read.copies if part is read.page else None)
            if self.peer.paused:
                return False
        self._progress.add(self.peer, read.page)
        return is_more

    async def _apply(self, page: PeerPage, copies: Sequence[_Copy] | None) -> bool:
        """Store a page, or a part of a long one. Returns whether more is waiting."""
        peer, state = self.peer, self.state
        if page.bookmark is not None and peer.key and page.bookmark.key != peer.key:
            peer = msgspec.structs.replace(peer, key=page.bookmark.key)  # its old key introduced it
            await self._peers.change(peer_principal(self.name), peer, "peer-key")
        if page.starts_over:
            self._seen = set()
        if page.bad and peer.has_feed:
            self._seen = None  # it lacks agents that only cannot be read
        if not page.is_last and page.cursor != state.cursor:
            self._read_ahead(peer, page.cursor)
        batch = await self._make_batch(peer, page, copies or await self._decode_all(peer, page))
        if self._seen is not None:
            self._seen.update(entry.id for entry in page.entries)
        removed: set[str] = set()
        if self._seen is not None and page.ends_snapshot:
            removed = await self._finish_snapshot(peer, page)
        is_lacking = self._mismatches >= limits.PEER_MISMATCHES  # read once more before anything is removed
        is_doubtful = await self._store(state, page, batch, removed)
        if is_doubtful:
            self.restart_snapshot()
            self._rereads += 1
            if self._rereads > (limits.PEER_REREADS if is_lacking else 1):  # once more would not help, and never end
                raise PeerProblem(_OTHER_HISTORY)
        elif self.is_complete:
            self._rereads = 0
        return is_doubtful or not page.is_last

    async def _read(self, peer: Peer, cursor: str | None, wait_seconds: float) -> _ReadPage | None:
        """The page at a cursor, perhaps read and decoded ahead while the one before was stored."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == cursor:
            read = await ahead[1]
            if read is not None:
                self._progress.check(peer, cursor, read.page)
            return read
        if ahead is not None:
            ahead[1].cancel()
        page = await self._fetch(peer, cursor, wait_seconds)
        if page is None:
            return None
        self._progress.check(peer, cursor, page)
        return _ReadPage(page, None)

    def _read_ahead(self, peer: Peer, cursor: str | None) -> None:
        """Read and decode the next page while this one is stored: a commit waits for the disk."""

        async def read() -> _ReadPage | None:
            page = await self._fetch(peer, cursor, 0)
            return None if page is None else _ReadPage(page, await self._decode_all(peer, page))

        task = asyncio.create_task(read(), name=f"read ahead of peer {self.name}")
        task.add_done_callback(_discard_error)
        self._ahead = (cursor, task)

    async def _fetch(self, peer: Peer, cursor: str | None, wait_seconds: float) -> PeerPage | None:
        """A page that is the peer's. Raises PeerProblem."""
        page = await self._source.read(peer, cursor, wait_seconds=wait_seconds, limit=limits.PEER_BATCH)
        if page is None:
            return None
        if page.bookmark is not None:
            verify_bookmark(page.bookmark, peer.key)
        known = self.state.service_id
        if page.service_id == self._own.id:
            raise PeerProblem("It is this registry itself.")
        if known and page.service_id != known:
            raise PeerProblem("Another registry answers at its address: remove the peer and add it again.")
        check_identity(self._peers, self.name, page)
        return page

    async def _decode_all(self, peer: Peer, page: PeerPage) -> Sequence[_Copy]:
        copies: list[_Copy] = []
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        for entry in page.entries:
            copies.append(self._decode(peer, entry, page.service_id))
            await time_slice.step()
        return copies

    def _decode(self, peer: Peer, entry: FeedEntry, sender_id: str) -> _Copy:
        is_read_again = not peer.has_feed and self._known.get(entry.id) == entry.etag
        if _is_without_documents(entry) or is_read_again:
            return None
        try:
            return decode_copy(peer, entry, self._own, self._registry.clock, peer.visibility, sender_id)
        except (ParkedRecord, WaypostError) as refusal:
            return refusal

    async def _make_batch(self, peer: Peer, page: PeerPage, copies: Sequence[_Copy]) -> _Batch:
        """A command for each change of a page."""
        batch, entries = _Batch(), page.entries
        new = {entry.id for entry in entries if entry.type not in GONE_TYPES and self._known.get(entry.id) is None}
        if self._known.count + len(new) > peer.max_records:
            await self._stop_peer(peer, f"It has more than {peer.max_records} records: it is paused.")
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        for entry, copy in zip(entries, copies, strict=True):
            self._add_entry(entry, copy, batch)
            await time_slice.step()
        return batch

    async def _stop_peer(self, peer: Peer, reason: str) -> NoReturn:
        """Pause a peer until an admin looks."""
        await self._peers.change(peer_principal(self.name), msgspec.structs.replace(peer, paused=True), "peer-pause")
        raise PeerProblem(f"{reason} Look at it, then `waypost peers resume`.")

    def _is_alias(self, agent_id: str) -> bool:
        return self._peers.parked(self.name).get(agent_id, ("", ""))[1] == mirror_rules.ALIAS

    def _add_entry(self, entry: FeedEntry, copy: _Copy, batch: _Batch) -> None:
        now = self._registry.clock.now()
        if entry.type in GONE_TYPES and self._is_alias(entry.id):
            batch.add(entry, Command(keys=(entry.id,), decide=mirror_rules.remove_alias(entry.id, now=now)))
        elif entry.type in GONE_TYPES:
            revision = 0 if entry.origin is None else entry.origin.revision
            rule = mirror_rules.withdraw_mirrored(entry.id, self.name, revision, entry.type, now=now)
            batch.add(entry, Command(keys=(entry.id,), decide=rule))
        elif _is_without_documents(entry):
            parked = self._peers.parked(self.name).get(entry.id)
            if parked is not None:
                batch.park(entry, parked[1])
                return
            expires_at = find_instant(entry.expires_at)
            rule = mirror_rules.renew_mirrored(entry.id, self.name, entry.etag, expires_at, now=now)
            batch.add(entry, Command(keys=(entry.id,), decide=rule))
        elif isinstance(copy, MirroredRecord):
            self._add_copy(entry, copy, batch)
        elif copy is not None:
            batch.park(entry, refusal_reason(copy))
        elif (parked := self._peers.parked(self.name).get(entry.id)) is not None:
            batch.park(entry, parked[1])  # it is known, and was not taken

    def _add_copy(self, entry: FeedEntry, copy: MirroredRecord, batch: _Batch) -> None:
        if self._is_alias(entry.id):
            is_held = self._registry.entries.find_named(entry.id) is not None
            if is_held and self._known.get(entry.id) == entry.etag:
                batch.park(entry, mirror_rules.ALIAS)
                return
            # It has changed, so it may be an agent of its own by now. If it is not, it becomes an alias again.
            rule = mirror_rules.remove_alias(entry.id, now=self._registry.clock.now())
            batch.add(entry, Command(keys=(entry.id,), decide=rule))
        try:
            batch.add(entry, self._registry.mirror_command(copy))
        except WaypostError as refusal:
            batch.park(entry, refusal_reason(refusal))

    async def _store(self, state: PeerState, page: PeerPage, batch: _Batch, removed: set[str]) -> bool:
        """Store the records of a page and the cursor after it in one commit. Returns whether everything must be read again."""
        now = self._registry.clock.now()
        after = SetDigestChange(self._known)
        for entry in page.entries:
            if entry.type in GONE_TYPES:
                after.remove(entry.id)
            elif entry.type != "renewed" or self._known.get(entry.id) is not None:
                after.put(entry.id, entry.etag)
        is_complete, mismatches = self._compare_digest(page, after)
        if self._mismatches >= limits.PEER_MISMATCHES:  # a snapshot lacks records
            mismatches = self._mismatches
        is_doubtful = mismatches >= limits.PEER_MISMATCHES
        unreadable, so_far = _count_unreadable(state, page, is_complete)
        new_state = PeerState(
            cursor=None if is_doubtful else page.cursor,
            last_contact=now,
            current_at=now if page.is_last else state.current_at,
            service_id=page.service_id,
            is_complete=is_complete and not is_doubtful,
            error=self._find_error(state, unreadable),
            unreadable=unreadable,
            unreadable_so_far=so_far,
        )
        parked = _ParkedChange(self._peers.parked(self.name), batch, page, removed)
        is_due = batch.commands or batch.parked or not state.is_like(new_state) or state.is_old(now)
        if is_due:
            results = await self._peers.commit_page(self.name, new_state, batch.commands, parked.changes)
            _raise_service_errors(results)
            if any(outcome == "unknown" for _, outcome in batch.outcomes(results)):
                mismatches = limits.PEER_MISMATCHES  # an earlier change was missed
            await self._merge_twins(results)
        else:
            self._peers.set_state(self.name, new_state)
        after.apply()
        self._mismatches = mismatches
        return mismatches >= limits.PEER_MISMATCHES

    async def _merge_twins(self, results: Sequence[CommandResult | WaypostError]) -> None:
        """A verified copy may be an agent that is here under another id, signed by the same key."""
        for result in results:
            copy = None if isinstance(result, WaypostError) else result.registration
            if copy is None or copy.owner != peer_subject(self.name):
                continue
            for key_id in keys_of(copy):
                entries = self._registry.entries
                ids = [each for each in entries.ids_of(entries.with_fact(KEY_FACT, key_id)) if each != copy.id]
                for other in await self._registry.registrations(ids[: limits.PEER_TWINS]):
                    await self._merge(copy, other)

    async def _merge(self, copy: Registration, other: Registration) -> None:
        kept = mirror_rules.find_kept_twin(copy, other)
        if kept is None:
            return
        gone, now = copy if kept is other else other, self._registry.clock.now()
        peer, etag = peer_of(gone.owner) or "", "" if gone.federation is None else gone.federation.etag
        remove = mirror_rules.withdraw_mirrored(gone.id, peer, 0, "other id", now=now)
        rename = mirror_rules.add_alias(gone.id, kept.id, self.name, now=now)
        commands = (Command(keys=(gone.id,), decide=remove), Command(keys=(kept.id, gone.id), decide=rename))
        _raise_service_errors(await self._registry.execute_all(commands))
        await self._peers.park(peer, gone.id, etag, mirror_rules.ALIAS)

    def _find_error(self, state: PeerState, unreadable: int) -> str:
        """What is wrong although pages are read."""
        if self._rereads > 1:
            return state.error
        return f"{unreadable} of its entries could not be read." if unreadable else ""

    def restart_snapshot(self) -> None:
        """Read everything again. Nothing is removed meanwhile."""
        self._peers.set_state(self.name, msgspec.structs.replace(self.state, cursor=None, is_complete=False))
        self._mismatches = 0

    def _compare_digest(self, page: PeerPage, after: SetDigestChange) -> tuple[bool, int]:
        """Whether the mirror is complete, and how many readings in a row differed. One difference may be a lease that ends
        while the page is read."""
        bookmark = page.bookmark
        if bookmark is None:  # without a digest, everything was read once
            return (self.is_complete or page.ends_snapshot, 0)
        if not page.is_last:
            return (self.is_complete and not page.starts_over, self._mismatches)
        is_complete = (after.count, after.digest) == (bookmark.count, bookmark.digest)
        return is_complete, 0 if is_complete else self._mismatches + 1

    async def _finish_snapshot(self, peer: Peer, page: PeerPage) -> set[str]:
        """Remove what two complete snapshots lack, unless it is suspiciously much. Returns the ids."""
        seen, self._seen = self._seen or set(), None
        lacking, time_slice = set[str](), TimeSlice(limits.PEER_SLICE_SECONDS)
        for agent_id in list(self._known.ids()):
            if agent_id not in seen:
                lacking.add(agent_id)
            await time_slice.step()
        gone, self._missing = lacking & self._missing, lacking
        if not gone:
            if lacking:
                self._mismatches = limits.PEER_MISMATCHES  # read it once more
            return set()
        if len(gone) > limits.PEER_BRAKE_RECORDS and len(gone) > limits.PEER_BRAKE_SHARE * self._known.count:
            missing = f"{len(gone)} of {self._known.count} records are missing from it at once: it is paused."
            await self._stop_peer(peer, missing)
        await self._remove(sorted(gone), "missing from two snapshots")
        for agent_id in gone:
            self._known.remove(agent_id)
        self._missing = set()
        return gone

    async def _remove(self, ids: Sequence[str], reason: str) -> None:
        now = self._registry.clock.now()
        for start in range(0, len(ids), limits.PEER_BATCH):
            part = ids[start : start + limits.PEER_BATCH]
            rules = [
                mirror_rules.remove_alias(each, now=now)
                if self._is_alias(each)
                else mirror_rules.withdraw_mirrored(each, self.name, 0, reason, now=now)
                for each in part
            ]
            commands = [Command(keys=(each,), decide=rule) for each, rule in zip(part, rules, strict=True)]
            _raise_service_errors(await self._registry.execute_all(commands))

    async def remove_all(self) -> int:
        """Take all records of the peer out of the registry, and the names that they gave to others. Returns how many records."""
        ids = self._registry.entries.ids_owned(peer_subject(self.name))
        aliases = [name for name in self._peers.parked(self.name) if self._is_alias(name)]
        await self._remove((*ids, *aliases), "peer removed")
        return len(ids)

    # --- For operators ---------------------------------------------------------------------------

    def view(self) -> PeerView:
        peer, state, now = self.peer, self.state, self._registry.clock.now()
        breaker, parked = self._peers.breaker(peer.name), self._peers.parked(peer.name)
        reasons = Counter(reason for _, reason in parked.values())
        if state.unreadable:
            reasons["unreadable"] = state.unreadable
        lag = None if state.current_at is None else max(0.0, round(now - state.current_at, 1))
        return msgspec.structs.replace(
            peer_view(
                peer,
                reasons,
                state=self._state_name(peer),
                records=self._registry.entries.count_owned(peer_subject(peer.name)),
                error=state.error or None,
                is_complete=self.is_complete,
            ),
            last_contact=rfc3339_or_none(state.last_contact),
            lag_seconds=lag,
            added_at=rfc3339_or_none(peer.added_at),
            breaker=breaker.state(now),
            ask_error=breaker.error or None,
        )

    def _state_name(self, peer: Peer) -> str:
        if peer.paused:
            return "paused"
        if self.state.error:
            return "failing"
        if self.state.last_contact is None:
            return "new"
        return "current" if self.is_complete else "syncing"


def _discard_error(task: asyncio.Task[Any]) -> None:
    """A page that was read ahead in vain: nobody waits for its error."""
    if not task.cancelled():
        task.exception()


def _count_unreadable(state: PeerState, page: PeerPage, is_complete: bool) -> tuple[int, int | None]:
    """The entries that are no records: of the last complete reading, and of the one under way, if there is one."""
    so_far = 0 if page.starts_over else state.unreadable_so_far
    if so_far is None and page.bookmark is not None:  # changes after a reading: they may be of the same agents
        return page.bad if is_complete else max(state.unreadable, page.bad), None
    so_far = (so_far or 0) + page.bad
    return (so_far, None) if page.is_last else (state.unreadable, so_far)


class _ParkedChange:
    """What a page changes of the parked records. It is computed inside the transaction, when all rules of the page have run."""

    def __init__(self, before: Mapping[str, ParkedItem], batch: _Batch, page: PeerPage, removed: set[str]) -> None:
        self._before = before
        self._batch = batch
        self._gone = {*removed, *(entry.id for entry in page.entries)}

    def changes(self) -> dict[str, ParkedItem | None]:
        """Records that are not taken, for the digest and for operators; None for those that no longer are."""
        gone: dict[str, ParkedItem | None] = {each: None for each in self._gone if each in self._before}
        room = max(0, limits.PEER_PARKED - len(self._before) + len(gone))
        after = gone | dict(islice(self._batch.parked.items(), room))
        return {each: item for each, item in after.items() if item != self._before.get(each)}


_SERVICE_ERRORS = frozenset(("storage_full", "unavailable", "store_unavailable"))


def _raise_service_errors(results: Sequence[CommandResult | WaypostError]) -> None:
    """Errors of this service, not of a record."""
    for result in results:
        if isinstance(result, WaypostError) and result.code in _SERVICE_ERRORS:
            raise result
