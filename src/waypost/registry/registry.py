"""The registry: publish, renew, withdraw, get, list, find, watch. Every face, the command and the SDK end up here.

Writes go to the store, which answers when they are durable; what was committed comes back through `_on_commit` and only
then is seen by readers. Reads come from memory and, for whole documents, from a bounded cache over the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import IdempotencyConflict, InvalidParameter, Unavailable, WaypostError
from waypost.model.events import Event
from waypost.model.principal import PUBLIC, Principal, audience
from waypost.model.query import DiscoverResult, Query
from waypost.model.registration import CatalogEntry
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.registry import write_rules
from waypost.registry.admission import (
    AdmissionControl,
    AnnouncementOptions,
    OwnerQuota,
    SelfSignedCertificates,
    check_name,
    pending_warning,
    publication_warnings,
)
from waypost.registry.announcement_admission import CertificateChecker
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entries import backfill_facts, entry_of, expiry_of
from waypost.registry.catalog.entry_columns import EntryColumns
from waypost.registry.change_log import ChangeLog
from waypost.registry.domain_proofs import DomainProofs
from waypost.registry.find.facets import FacetCounter, catalog_stats
from waypost.registry.find.search import AgentSearch
from waypost.registry.jobs.indexer import Indexer, LazyRanker
from waypost.registry.pending_changes import PendingChanges
from waypost.registry.ports import (
    AuditEntry,
    Clock,
    Command,
    CommandResult,
    CommittedChange,
    Decision,
    Idempotency,
    Ranker,
    Store,
)
from waypost.registry.publication import Publication, PublicationReceipt, pending_note_name, representation_etag
from waypost.registry.trust_store import RegistryTrustStore
from waypost.trust.cursor_cipher import CURSOR_KEY_BYTES, CursorCipher
from waypost.trust.policy import no_such_agent, require_bound

log = logging.getLogger("waypost.registry")

_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # RFC 9562 §4.1, for any digit
_SWEEP_SECONDS = 0.5
_COMPACT_SECONDS = 0.5
_EMBED_SECONDS = 0.25
_PRUNE_SECONDS = 60.0
_FORGET_SECONDS = 6 * 3600.0
_SWEEP_BATCH = 256
_COMPACT_AT_START = 1000  # changes that wait at the start; with more, the first answers would not be complete


class RegistryOptions(msgspec.Struct, frozen=True, kw_only=True):
    default_visibility: str = PUBLIC
    watch_keep_seconds: float = limits.WATCH_KEEP_SECONDS
    watch_keep_changes: int = limits.WATCH_KEEP_CHANGES
    audit_keep: int = limits.AUDIT_KEEP
    agents_per_owner: int = 0  # no limit
    announcements: AnnouncementOptions = AnnouncementOptions()
    confusable_names: str = "mark"  # or refuse


def _ignore_revision(_: int) -> None:
    """Whom a registry announces its revision to when nobody follows it."""


@contextlib.contextmanager
def _gc_frozen() -> Iterator[None]:
    """What is loaded meanwhile lives as long as the process: the collector looks at it once, not again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()


class Registry(PendingChanges):
    def __init__(
        self,
        store: Store,
        ranker: Ranker | Callable[[], Ranker],
        clock: Clock,
        options: RegistryOptions | None = None,
        *,
        announce: Callable[[int], None] = _ignore_revision,
    ) -> None:
        """`announce` is told each revision that this process answers with, before any caller is: others follow it."""
        self.store = store
        self.ranker = LazyRanker(ranker if callable(ranker) else lambda: ranker)
        self.clock = clock
        self.options = options or RegistryOptions()
        self.catalog = Catalog()
        self._quota = OwnerQuota(self.catalog, self.options.agents_per_owner)
        self._facets = FacetCounter(self.catalog)
        self._cache = LruCache(limits.RECORD_CACHE)
        self._brief = LruCache(limits.RECORD_CACHE)
        self._tasks: list[asyncio.Task[None]] = []
        self._domains = {}
        self._announce = announce
        self._observers: list[Callable[[CommittedChange], None]] = []
        self._names = random.Random(secrets.randbits(256))
        self._index = Indexer(self.ranker, store)
        self.trust = RegistryTrustStore(store, clock, self.catalog.signed_by)
        self.proofs = DomainProofs()
        self._chores: list[tuple[float, Callable[[], Any]]] = []
        self._admit_endpoint: Callable[[Publication], None] | None = None
        self._gate = AdmissionControl(
            self.trust, self.options.announcements, SelfSignedCertificates(), self.catalog.resolve
        )
        self.ready = False

    # --- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, fill the catalogue, catch the index up with the log, start the housekeeping."""
        with _gc_frozen():
            revision = await self._load()
        await self._loaded()
        await self._finish()
        self.ready = True
        self._searchable = asyncio.create_task(self._catch_up(revision), name="catch up")
        self._tasks = [self._searchable, asyncio.create_task(self._keep_prepared(), name="prepare")]
        self._tasks += [
            asyncio.create_task(self._every(seconds, work), name=work.__name__)
            for seconds, work in self._housekeeping()
        ]

    async def _load(self) -> int:
        """All that was durable, into memory; its revision."""
        await self._open_store()
        self.seal = CursorCipher(await self.store.secret("cursor", lambda: secrets.token_bytes(CURSOR_KEY_BYTES)))
        revision = await self.store.revision()
        self.changes = ChangeLog(self.store, self.seal, revision, nonce=lambda: secrets.token_bytes(8))
        await self._load_catalogue()
        await self.trust.load()
        await self.proofs.load(self.store)
        await self._recall_removals(revision)
        return revision

    async def _open_store(self) -> None:
        """While a thread looks at the file, which takes no turn of the interpreter, what searching needs is loaded."""
        opening = asyncio.create_task(self.store.open(self._on_commit, self._on_notes))
        try:
            await asyncio.sleep(0)
            self.ranker.load()
        finally:
            await opening

    async def _catch_up(self, revision: int) -> None:
        await self._index.catch_up(revision)
        if self.ranker.pending > _COMPACT_AT_START:
            await self._tolerate(self._fold)

    async def searchable(self) -> None:
        """Wait until the index has caught up: a start answers for agents before that."""
        if not self.ranker.has_caught_up:
            await asyncio.shield(self._searchable)

    async def _loaded(self) -> None:
        """All that was durable at the start is in memory."""
        self._announce(self.changes.revision)

    async def _finish(self) -> None:
        """What was begun before the start."""
        await self._tolerate(self.trust.finish)

    def _housekeeping(self) -> list[tuple[float, Callable[[], Any]]]:
        """What is done from time to time, and how often."""
        prune_every = min(_PRUNE_SECONDS, max(_SWEEP_SECONDS, self.options.watch_keep_seconds / 2))
        return [
            (_SWEEP_SECONDS, self.sweep),
            (_COMPACT_SECONDS, self._compact_if_due),
            (_EMBED_SECONDS, self._index.embed),
            (prune_every, self.prune),
            (_PRUNE_SECONDS, self.expire_pending),
            (_FORGET_SECONDS, self.trust.forget),
            *self._chores,
        ]

    def add_job(self, seconds: float, work: Callable[[], Any]) -> None:
        """What else the process that writes is to do from time to time. Said before the start."""
        self._chores.append((seconds, work))

    async def stop(self) -> None:
        self.ready = False
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if hasattr(self, "changes"):
            self.changes.close()
            await self._tolerate(self._fold)
        self.ranker.close()
        await self.store.close()

    async def _load_catalogue(self) -> None:
        async for page in self.store.entries():
            roll = EntryColumns.of(page)
            self.catalog.load(roll)
            self._domains.update(roll.stated("domain", "id"))

    async def _prepare(self) -> None:
        """What the first answers and registrations can do without, in small turns between them."""
        while self.catalog.prepare():  # noqa: ASYNC110 - it gives way to others, it does not poll
            await asyncio.sleep(0.001)
        await backfill_facts(self.catalog, self.store)

    async def _keep_prepared(self) -> None:
        """The first answers go first: at a start there is much to do."""
        await self.searchable()
        await self._every(_COMPACT_SECONDS, self._prepare)

    async def _recall_removals(self, revision: int) -> None:
        """`Last-Modified` of a list counts removals; the newest ones are in the log."""
        newest: dict[tuple[Any, ...], Event] = {}  # by who saw it: most changes are seen by the same
        for event in await self.store.events(max(0, revision - 1000), 1000):
            seen = event.owner, event.visibility, event.invitees, event.before
            if seen not in newest or newest[seen].at < event.at:
                newest[seen] = event
        for event in newest.values():
            self.catalog.record_change_time({*event.scopes, *(event.before or ())}, event.at)

    async def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._tolerate(work)

    async def _tolerate(self, work: Callable[[], Any]) -> None:
        """What housekeeping cannot do now (on a full disk, say) it tries again later."""
        try:
            await work()
        except WaypostError as error:
            log.warning("housekeeping: %s", error)

    def use_certificate_checker(self, certificates: CertificateChecker) -> None:
        """Let `certificates` say what those are worth that agents announce."""
        self._gate.certificates = certificates

    def use_endpoint_check(self, admit: Callable[[Publication], None]) -> None:
        """Let `admit` raise for what names an endpoint that is never asked."""
        self._admit_endpoint = admit

    def observe(self, observer: Callable[[CommittedChange], None]) -> None:
        """Tell `observer` of every committed change, on the event loop. For caches of faces."""
        self._observers.append(observer)

    def _on_notes(self, notes: Mapping[str, bytes | None]) -> None:
        self.trust.take_in(notes)
        self.proofs.take_in(notes)

    def _on_commit(self, batch: Sequence[CommittedChange]) -> None:
        for committed in batch:
            self._take_in(committed)
        self.changes.append([committed.event for committed in batch])
        self._announce(self.changes.revision)

    def _take_in(self, committed: CommittedChange) -> None:
        event, registration = committed.event, committed.registration
        self._brief.drop(event.id)
        if registration is None:
            self._cache.drop(event.id)
            self.catalog.remove(event.id, event.at)
            self.ranker.remove(event.id, event.revision)
        elif event.type == "renewed" and self.catalog.is_alive(event.id):
            self._cache.put(event.id, registration)
            self.catalog.renew(committed.entry or entry_of(registration))
        else:
            self._cache.put(event.id, registration)
            self.catalog.put(committed.entry or entry_of(registration), event.at)
            self.ranker.put(registration)
            self._index.changes += 1
            if registration.hosted:
                self._domains[registration.hosted] = event.id
        for observer in self._observers:
            observer(committed)

    async def sweep(self) -> None:
        """Tell the store of leases that ran out. Readers do not wait for this: they compare."""
        self.catalog.expire(self.clock.now())
        ids = self.catalog.take_expired(_SWEEP_BATCH)
        if not ids:
            return
        now = self.clock.now()
        commands = [Command(keys=(agent_id,), decide=write_rules.expire(agent_id, now=now)) for agent_id in ids]
        results = await asyncio.gather(*map(self.store.execute, commands), return_exceptions=True)
        failed = [agent_id for agent_id, result in zip(ids, results, strict=True) if isinstance(result, WaypostError)]
        self.catalog.put_back_expired(failed)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, WaypostError):
                raise result

    async def _fold(self) -> None:
        await self._index.fold(self.changes.revision)

    async def _compact_if_due(self) -> None:
        await self._index.compact_if_due(self.changes.revision)

    async def prune(self) -> None:
        now = self.clock.now()
        await self.store.prune(
            events_before=now - self.options.watch_keep_seconds,
            keep_events=self.options.watch_keep_changes,
            now=now,
            keep_audit=self.options.audit_keep,
        )

    # --- Writing ---------------------------------------------------------------------------------

    def decode(
        self, document: bytes, *, dialect: str | None = None, base_url: str | None = None, source_url: str | None = None
    ) -> tuple[str, Decoded]:
        """Any document in any dialect. Raises what is wrong with it."""
        context = DecodeContext(now=self.clock.now(), source_url=source_url, base_url=base_url)
        name, _, decoded = decode_document(document, dialect, context)
        return name, decoded

    async def publish(self, publication: Publication) -> PublicationReceipt:
        """Register or update. Durable when it returns."""
        self._index.arrivals += 1
        now = self.clock.now()
        decoded = publication.decoded
        require_bound(publication.principal, decoded.record.id, decoded.source_id)
        if self._admit_endpoint is not None:
            self._admit_endpoint(publication)
        if self.options.confusable_names == "refuse":
            check_name(publication, self.catalog)
        keys = tuple(dict.fromkeys((decoded.record.id, decoded.source_id, *decoded.aliases)))
        write = partial(
            write_rules.publish,
            now=now,
            default_visibility=self.options.default_visibility,
            announce_id=self._new_uuid(),
        )
        known = self._known_as(keys)
        owner = known[0].owner if known else None
        proofs, proven = self.proofs.rule(publication, owner, write, now)
        notes, decide = self._gate.rule(publication, proven, now)
        command = Command(
            keys=keys,
            notes=(*_pending_notes(known), *proofs, *notes),
            decide=decide,
            idempotency=self._idempotency(publication, now),
        )
        self.catalog.expire(now)  # what has run out takes no place
        with self._quota.place(publication.principal, keys):
            answer = await self.store.execute(command)
        if answer.registration is None and answer.outcome in ("withdrawn", "already"):  # a goodbye that was announced
            return PublicationReceipt(
                id=decoded.record.id, dialect=publication.dialect, outcome=answer.outcome, etag=""
            )
        receipt = self.receipt(answer, publication.dialect, decoded)
        return await self._with_held(receipt) if answer.outcome == "held" else receipt

    async def _with_held(self, receipt: PublicationReceipt) -> PublicationReceipt:
        """With what waits; a repeated answer may come after it was confirmed."""
        waiting = await self.find_pending(receipt.id)
        if waiting is None:
            return receipt
        return msgspec.structs.replace(receipt, held=waiting, warnings=(*receipt.warnings, pending_warning(waiting)))

    def _known_as(self, keys: Sequence[str]) -> list[CatalogEntry]:
        """The agents that go by these names."""
        found = [self.catalog.find(agent_id) for agent_id in map(self.catalog.resolve, keys) if agent_id is not None]
        return [entry for entry in found if entry is not None]

    def _new_uuid(self) -> str:
        """A name, not a secret: one call to the system for each registration would cost more than the rest of it."""
        digits = self._names.randbytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"

    def _idempotency(self, publication: Publication, now: float) -> Idempotency | None:
        key = publication.idempotency_key
        if key is None:
            return None
        if not 0 < len(key) <= limits.IDEMPOTENCY_KEY_CHARS:
            raise InvalidParameter(
                f"An idempotency key has 1 to {limits.IDEMPOTENCY_KEY_CHARS} characters.", path="Idempotency-Key"
            )
        what = f"{publication.dialect}\0{publication.visibility}\0{publication.ttl_seconds}\0".encode()
        return Idempotency(
            key=f"{publication.principal.subject or ''}\0{key}",
            fingerprint=hashlib.sha256(what + publication.document).hexdigest(),
            forget_at=now + limits.IDEMPOTENCY_KEEP_SECONDS,
        )

    def receipt(self, answer: CommandResult, dialect: str, decoded: Decoded | None = None) -> PublicationReceipt:
        registration = answer.registration
        if registration is None:
            raise IdempotencyConflict(
                "The agent that this idempotency key created is gone.", path="Idempotency-Key", hint="Use a new key."
            )
        ends = expiry_of(registration)
        warnings = [*decoded.warnings, *publication_warnings(registration, self.catalog.lookalikes)] if decoded else []
        return PublicationReceipt(
            id=registration.id,
            dialect=dialect,
            outcome=answer.outcome,
            etag=representation_etag(registration.etag, ends, is_unhealthy=registration.is_unhealthy),
            aliases=registration.aliases,
            losses=decoded.losses if decoded else (),
            warnings=tuple(warnings),
            trust=self.trust_of(registration),
            expires_at=ends,
            ttl_seconds=registration.ttl_seconds,
            registration=registration,
        )

    async def renew(self, principal: Principal, key: str, ttl_seconds: int | None = None) -> PublicationReceipt:
        """Let a lease run on without sending the document again."""
        agent_id = self._known(key)
        decide = write_rules.renew(principal, agent_id, ttl_seconds, now=self.clock.now())
        answer = await self.store.execute(Command(keys=(agent_id,), decide=decide))
        registration = answer.registration
        dialect = registration.sources[0].dialect if registration and registration.sources else "profile"
        return self.receipt(answer, dialect)

    async def record(self, entry: AuditEntry) -> None:
        """Put an act into the audit trail that changes no agent. Durable when it returns."""
        await self.store.execute(Command(keys=(), decide=lambda held: Decision(outcome="recorded", audit=(entry,))))

    async def withdraw(
        self,
        principal: Principal,
        key: str,
        if_match: tuple[str, ...] | None = None,
        *,
        repeat_ok: bool = False,
        via: str = "http",
    ) -> str:
        """Remove an agent. The answer is `withdrawn`, or `already` when the owner repeats it and `repeat_ok`."""
        agent_id = self.catalog.resolve(key) or key
        decide = write_rules.withdraw(principal, agent_id, if_match, now=self.clock.now(), via=via)
        answer = await self.store.execute(Command(keys=(agent_id,), decide=decide))
        if answer.outcome == "already" and not repeat_ok:
            raise no_such_agent(key)
        return answer.outcome

    async def share(
        self, principal: Principal, key: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> PublicationReceipt:
        """Let subjects see a private agent, or no longer. Lists, searches and watches follow at once."""
        agent_id = self._known(key)
        decide = write_rules.share(principal, agent_id, add, remove, now=self.clock.now())
        answer = await self.store.execute(Command(keys=(agent_id,), decide=decide))
        return self.receipt(answer, answer.registration.sources[0].dialect if answer.registration else "profile")

    async def host(self, principal: Principal, key: str, domain: str | None) -> PublicationReceipt:
        """Answer for an agent under a domain by `Host`; None ends it. The last one to be given a domain has it."""
        agent_id = self._known(key)
        decide = write_rules.set_hosted_domain(principal, agent_id, domain, now=self.clock.now())
        answer = await self.store.execute(Command(keys=(agent_id,), decide=decide))
        return self.receipt(answer, answer.registration.sources[0].dialect if answer.registration else "profile")

    def _known(self, key: str) -> str:
        self.catalog.expire(self.clock.now())
        agent_id = self.catalog.resolve(key)
        if agent_id is None:
            raise no_such_agent(key)
        return agent_id

    # --- Finding ---------------------------------------------------------------------------------

    async def find(self, query: Query, principal: Principal) -> DiscoverResult:
        """Ranked candidates that the caller sees, and what was and was not applied."""
        if not self.ranker.has_caught_up:
            await self.searchable()
        self._index.questions += 1
        if self.ranker.is_behind(audience(principal)):  # in a bulk load: what was acknowledged is found all the same
            await asyncio.to_thread(self.ranker.prepare_for, audience(principal))
        now = self.clock.now()
        self.catalog.expire(now)
        search = AgentSearch(query, self.catalog, principal, now)
        ranking = search.rank(self.ranker, self._facets)
        registrations = await self.registrations([hit.id for hit in ranking.hits], sources=False)
        return search.findings(ranking, registrations, self.trust_of)

    def stats(self, principal: Principal) -> dict[str, Any]:
        """Figures over what the caller sees. The revision is for admins: its gaps would tell of hidden records."""
        self.catalog.expire(self.clock.now())
        figures = catalog_stats(self.catalog, audience(principal))
        if principal.is_admin:
            figures["indexing_pending"] = self.ranker.pending
            figures["revision"] = self.changes.revision
        return figures

    async def check_ready(self) -> None:
        """Raise when writes would be refused."""
        if not self.ready:
            raise Unavailable("The registry is starting.", retry_after=1)
        if not await self.store.healthy():
            raise Unavailable("The store accepts no writes.", retry_after=5, hint="See the log of the service.")


def _pending_notes(known: Sequence[CatalogEntry]) -> tuple[str, ...]:
    """The note of a change that may wait: only verified agents have any."""
    for entry in known:
        if entry.trust == "verified":
            return (pending_note_name(entry.id),)
    return ()
