"""The registry: a facade over its parts. Every API, the command line and the SDK end up here.

    writer      register, renew, share, withdraw: commands to the store, durable when they return
    reader      single agents, lists, counts, history, watches
    finder      search
    pending     changes of verified agents that wait for confirmation
    verifier    checks of signatures, on request
    trust       allow-list, keys, revocations
    api_keys    API keys
    entries     the catalog in memory, read-only

The store commits a change and then calls `RegistryState.apply_commit`; only then do readers see it. Catalog and index are
in memory, complete documents come from the store through a bounded cache.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from waypost import limits
from waypost.errors import Unavailable
from waypost.model.principal import PUBLIC, Principal
from waypost.registry.admission import (
    AdmissionControl,
    AnnouncementOptions,
    ByteQuota,
    CertificateChecker,
    OwnerQuota,
    SelfSignedCertificates,
    StoredBytesQuota,
    check_name,
)
from waypost.registry.catalog.entries import complete_entries
from waypost.registry.catalog.view import CatalogView
from waypost.registry.change_log import ChangeLog, CursorKeys, Cursors
from waypost.registry.credentials.api_keys import ApiKeyStore
from waypost.registry.credentials.credentials import RegistryCredentials, SharedCounter, local_counter
from waypost.registry.domain_proofs import DomainProofs
from waypost.registry.find.facets import FacetCounter
from waypost.registry.find.search import RegistryFinder
from waypost.registry.follower import Follower, Head
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.jobs.periodic import ChoreCheck, Job, PeriodicJobs, cancel_all, do_all_chores, repeat
from waypost.registry.leader import Leader
from waypost.registry.ports import Clock, NoteListener, Ranker, Store, Timings, VectorExchange
from waypost.registry.reader import RegistryReader
from waypost.registry.state import RegistryState
from waypost.registry.trust_store import RegistryTrustStore
from waypost.registry.verification import RegistryVerifier
from waypost.registry.writer import PendingChanges, PublicationCheck, RegistryWriter
from waypost.responses.service import OwnUsage, Stats

_PREPARE_SECONDS = 0.5
_PREPARE_PAUSE_SECONDS = 0.001
_SERVICE_ID = "service id"


class RegistryOptions(msgspec.Struct, frozen=True, kw_only=True):
    default_visibility: str = PUBLIC
    watch_keep_seconds: float = limits.WATCH_KEEP_SECONDS
    watch_keep_changes: int = limits.WATCH_KEEP_CHANGES
    watch_keep_bytes: int = limits.WATCH_KEEP_BYTES
    audit_keep: int = limits.AUDIT_KEEP
    agents_per_owner: int = 0  # no limit
    stored_bytes_per_owner: int = 0  # no limit
    stored_bytes_per_peer: int = 0  # no limit
    hourly_bytes_per_owner: int = 0  # no limit
    announcements: AnnouncementOptions = AnnouncementOptions()
    confusable_names: str = "mark"  # or refuse
    relay_url: str | None = None  # where this service relays conversations of agents


class Registry:
    def __init__(
        self,
        store: Store,
        make_ranker: Callable[[], Ranker],
        clock: Clock,
        options: RegistryOptions | None = None,
        *,
        certificates: Callable[[RegistryTrustStore], CertificateChecker] = lambda trust: SelfSignedCertificates(),
        checks: Sequence[PublicationCheck] = (),
        announce: Callable[[int], None] | None = None,
        head: Head | None = None,
        credential_changes: SharedCounter | None = None,
        timings: Timings | None = None,
        cursor_keys: CursorKeys | None = None,
        may_do: ChoreCheck = do_all_chores,
        vectors: VectorExchange | None = None,
    ) -> None:
        """`announce` gets each revision before a caller is answered with it. With `head` the registry writes nothing and
        follows another process, whose newest revision `head` returns. `credential_changes` is the counter of that process.
        `checks` refuse a publication by raising. `timings` receives how long searches and commits take.
        `may_do` says whether this node is to do a chore of the whole cluster; `vectors` are those of its nodes."""
        timings = timings or Timings()
        options = options or RegistryOptions()
        self._options = options
        self.clock = clock
        self._store = store
        self._index = LiveIndex(make_ranker)
        self.cursors = Cursors(store, clock, cursor_keys)
        self.changes = ChangeLog(store, self.cursors)
        self._state = RegistryState(self._index, self.changes, announce)
        self._catalog = self._state.catalog
        self.entries = CatalogView(self._catalog, clock)
        self.trust = RegistryTrustStore(store, clock, self._catalog.signed_by)
        self.api_keys = ApiKeyStore(store, clock)
        self.credentials = RegistryCredentials(self.trust, self.api_keys, credential_changes or local_counter())
        self.proofs = DomainProofs()
        self._note_listeners: list[NoteListener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.ready = False

        facets = FacetCounter(self._catalog)
        reader = RegistryReader(self._state, self.entries, store, clock, self.cursors, self.changes, facets)
        finder = RegistryFinder(self._catalog, self._index, reader, facets, clock, timings)
        verifier = RegistryVerifier(reader, store, self._catalog, clock)
        writer = self._writer = self._make_writer(options, certificates(self.trust), checks, timings)
        pending = PendingChanges(reader, writer, store, clock)
        role = self._make_leader(options, pending, may_do, vectors) if head is None else self._make_follower(head)
        self.leader = role if isinstance(role, Leader) else None
        self.follower = role if isinstance(role, Follower) else None
        self._role = role
        self._jobs = PeriodicJobs(role.jobs)

        self._expose(writer, reader, finder, verifier, pending)

    def _expose(
        self,
        writer: RegistryWriter,
        reader: RegistryReader,
        finder: RegistryFinder,
        verifier: RegistryVerifier,
        pending: PendingChanges,
    ) -> None:
        """Make the methods of the parts methods of the registry, without a call that only forwards."""
        self.decode = writer.decode
        self.publish = writer.publish
        self.renew = writer.renew
        self.share = writer.share
        self.mirror_command = writer.mirror_command
        self.judge = writer.judge
        self.host = writer.host
        self.withdraw = writer.withdraw
        self.record = writer.record
        self.execute = writer.execute
        self.execute_all = writer.execute_all

        self.resolve = reader.resolve
        self.resolve_short = reader.resolve_short
        self.resolve_path_id = reader.resolve_path_id
        self.get = reader.get
        self.hosted = reader.hosted
        self.hosted_below = reader.hosted_below
        self.registrations = reader.registrations
        self.scan = reader.scan
        self.received = reader.received
        self.received_newest = reader.received_newest
        self.notes = reader.notes
        self.page = reader.page
        self.page_announced = reader.page_announced
        self.facets = reader.facets
        self.suggest = reader.suggest
        self.history = reader.history
        self.compare = reader.compare
        self.watch = reader.watch
        self.open_watch = reader.open_watch
        self.subscribe = self._state.subscribe
        self._stats = reader.stats

        self.calibration = finder.calibration
        self.find = finder.find
        self.rank = finder.rank
        self.standing_query = finder.standing_query
        self.searchable = self._index.wait

        self.verify = verifier.verify
        self.verify_document = verifier.verify_document
        self.reverify = verifier.reverify

        self.pending_change = pending.get
        self.confirm = pending.confirm
        self.reject = pending.reject
        self.count_pending = pending.count

    def _make_writer(
        self,
        options: RegistryOptions,
        certificates: CertificateChecker,
        checks: Sequence[PublicationCheck],
        timings: Timings,
    ) -> RegistryWriter:
        changed = ByteQuota(options.hourly_bytes_per_owner, self.clock)
        self._state.subscribe(changed.charge)
        if options.confusable_names == "refuse":
            checks = (*checks, partial(check_name, catalog=self._catalog))
        return RegistryWriter(
            self._store,
            self.clock,
            self._catalog,
            self._index,
            AdmissionControl(self.trust, options.announcements, certificates, self._catalog.resolve, self.clock),
            self.proofs,
            OwnerQuota(self._catalog, options.agents_per_owner),
            StoredBytesQuota(
                self._catalog,
                self.clock,
                lambda: self.changes.revision,
                per_owner=options.stored_bytes_per_owner,
                per_peer=options.stored_bytes_per_peer,
            ),
            changed,
            default_visibility=options.default_visibility,
            relay_url=options.relay_url,
            checks=checks,
            timings=timings,
        )

    def _make_leader(
        self, options: RegistryOptions, pending: PendingChanges, may_do: ChoreCheck, vectors: VectorExchange | None
    ) -> Leader:
        return Leader(
            self._store,
            self._state,
            self.clock,
            self._index,
            self.trust,
            pending,
            keep_seconds=options.watch_keep_seconds,
            keep_changes=options.watch_keep_changes,
            keep_bytes=options.watch_keep_bytes,
            keep_audit=options.audit_keep,
            may_do=may_do,
            vectors=vectors,
        )

    def _make_follower(self, head: Head) -> Follower:
        return Follower(self._store, self._state, self.clock, self._index, self.credentials, head)

    # --- Start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, fill the catalog, start the jobs. The index catches up in the background: searches wait for it."""
        await self._open_store()
        await self.cursors.load()
        await self.changes.load()
        await self._state.load(self._store)
        await self.credentials.load()
        if self.leader is not None:
            await self.trust.load_pinned()
            await self.service_id()  # followers only read it
        await self.proofs.load(self._store)
        await self._role.start()
        self.ready = True
        self._tasks = [
            self._index.start(self._role.catch_up_index()),
            asyncio.create_task(self._prepare(), name="prepare"),
        ]
        self._jobs.start()

    async def _open_store(self) -> None:
        """Make the ranker while a thread opens the file: SQLite releases the interpreter lock meanwhile."""
        opening = asyncio.create_task(self._store.open(self._state.apply_commit, self._apply_notes))
        try:
            await asyncio.sleep(0)
            self._index.load()
        finally:
            await opening

    def subscribe_notes(self, listener: NoteListener) -> None:
        """Call `listener` with notes after each commit that wrote some, of any node of a cluster."""
        self._note_listeners.append(listener)

    def _apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        for listener in self._note_listeners:
            listener(notes)
        self.credentials.apply_notes(notes)
        self.proofs.apply_notes(notes)

    async def _prepare(self) -> None:
        """Fill the parts of the catalog that the first requests can do without, once searches are answered."""
        await self.searchable()
        await repeat(Job("prepare", _PREPARE_SECONDS, self.prepare))

    async def prepare(self) -> None:
        while self._catalog.prepare():  # noqa: ASYNC110 - the pause lets requests run, it polls nothing
            await asyncio.sleep(_PREPARE_PAUSE_SECONDS)
        await complete_entries(self._catalog, self._store)

    async def stop(self) -> None:
        self.ready = False
        await self._jobs.stop()
        await cancel_all(self._tasks)
        await self.calibration.stop()
        self.changes.close()
        await self._role.stop()
        self._index.close()
        await self._store.close()

    async def catch_up(self) -> None:
        """Wait until this process has applied every change that any caller was answered with. The leader always has."""
        if self.follower is not None:
            await self.follower.catch_up()

    async def check_ready(self) -> None:
        """Raise if writes would be refused."""
        if not self.ready:
            raise Unavailable("The registry is starting.", retry_after=1)
        if not await self._store.healthy():
            raise Unavailable(
                "The store accepts no writes.", retry_after=5, hint="The log of the service names the reason."
            )

    async def service_id(self) -> str:
        """A name of this registry that no other has. It is stored with the data, so that all processes have the same."""
        return (await self._store.secret(_SERVICE_ID, uuid.uuid4().urn.encode)).decode()

    # --- Figures ---------------------------------------------------------------------------------

    @property
    def indexing_pending(self) -> int:
        return self._index.pending

    @property
    def writes_waiting(self) -> int:
        """Writes that were submitted and are not durable yet."""
        return self._writer.waiting

    def stats(self, principal: Principal) -> Stats:
        """Counts over what the caller sees. The revision is for admins: its gaps would reveal hidden records."""
        stats = self._stats(principal)
        if principal.subject is not None:
            stats = msgspec.structs.replace(
                stats, own=self._own_usage(principal.subject, has_limits=not principal.is_admin)
            )
        if not principal.is_admin:
            return stats
        return msgspec.structs.replace(stats, indexing_pending=self._index.pending, revision=self.changes.revision)

    def _own_usage(self, owner: str, *, has_limits: bool) -> OwnUsage:
        return OwnUsage(
            agents=self._catalog.count_of_owner(owner),
            agents_limit=self._options.agents_per_owner or None if has_limits else None,
            stored_bytes=self._catalog.stored_bytes_of_owner(owner),
            stored_bytes_limit=self._options.stored_bytes_per_owner or None if has_limits else None,
        )
