"""Writes to the registry. Each one is a command whose rule runs inside the transaction of the store.

A method returns when the change is durable. Readers see it after the commit, through `RegistryState`.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from waypost import limits
from waypost.errors import IdempotencyConflict, InvalidParameter, NotFound, OwnerConflict, WaypostError
from waypost.model.principal import SCOPE_WRITE, Principal, may_see, no_such_agent, require_bound, require_owner
from waypost.model.registration import CatalogEntry, Registration, trust_of
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.rate_limit import RateLimiter
from waypost.registry import mirror_rules, write_rules
from waypost.registry.admission import (
    AdmissionControl,
    ByteQuota,
    OwnerQuota,
    StoredBytesQuota,
    pending_warning,
    publication_warnings,
)
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.catalog.catalog import NO_ENTRY, Catalog
from waypost.registry.domain_proofs import DomainProofs
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.ownership import BOUND_REASON, domain_notes, names_of, ownership_notes, with_spellings
from waypost.registry.ports import (
    AuditEntry,
    Clock,
    Command,
    CommandResult,
    Decision,
    Idempotency,
    Rule,
    Store,
    StoreState,
    Timings,
)
from waypost.registry.publication import (
    PendingChange,
    Publication,
    PublicationReceipt,
    load_pending,
    pending_note_name,
    shown_etag,
)
from waypost.registry.reader import RegistryReader

PublicationCheck = Callable[[Publication], None]  # raises to refuse a publication before the store is asked

_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # RFC 9562 §4.1


class RegistryWriter:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        catalog: Catalog,
        index: LiveIndex,
        admission: AdmissionControl,
        proofs: DomainProofs,
        quota: OwnerQuota,
        stored_bytes: StoredBytesQuota,
        byte_quota: ByteQuota,
        *,
        default_visibility: str,
        relay_url: str | None,
        checks: Sequence[PublicationCheck],
        timings: Timings,
    ) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._index = index
        self._admission = admission
        self._proofs = proofs
        self._quota = quota
        self._stored_bytes = stored_bytes
        self._byte_quota = byte_quota
        self._default_visibility = default_visibility
        self._relay_url = relay_url
        self._checks = checks
        self._timings = timings
        self.waiting = 0  # writes that are not durable yet
        self._random = random.Random(secrets.randbits(256))
        self._refusals: RateLimiter[str] = RateLimiter(
            limits.AUDITED_REFUSALS_PER_HOUR / 3600, limits.AUDITED_REFUSALS_PER_HOUR, max_keys=limits.AUDITED_SUBJECTS
        )

    def decode(
        self, document: bytes, *, dialect: str | None = None, base_url: str | None = None, source_url: str | None = None
    ) -> tuple[str, Decoded]:
        """The dialect of a document and its content. Raises if the document is invalid."""
        context = DecodeContext(now=self._clock.latest(), source_url=source_url, base_url=base_url)
        name, _, decoded = decode_document(document, dialect, context)
        return name, decoded

    async def publish(self, publication: Publication, *, is_brief: bool = False) -> PublicationReceipt:
        """Register or update an agent. A brief receipt has an id, the outcome and the etag: to examine the texts for warnings
        takes as long as to store them."""
        self._index.publications += 1
        now = self._clock.now()
        publication = msgspec.structs.replace(publication, relay_url=self._relay_url)
        decoded = publication.decoded
        require_bound(publication.principal, decoded.record.id, decoded.source_id)
        for check in self._checks:
            check(publication)
        names = names_of(publication)
        keys = with_spellings(names)
        self._catalog.expire(now)  # expired agents own nothing, and do not count against the quota
        if publication.if_match is not None:
            visible = [self._find_visible_id(publication.principal, key) for key in keys]
            if not any(visible):  # a hidden agent fails the precondition as an unknown one does
                keys = self._absent_names(keys)
        known = self._entries_of(keys)
        rule = partial(
            write_rules.publish,
            now=now,
            default_visibility=self._default_visibility,
            announce_id=self._new_uuid(),
        )
        every = (*names, *(entry.id for entry in known))
        notes = (*_pending_notes(known), *self._ownership_notes(every), *domain_notes(every, self._proofs.domains))
        if any(entry.owner != publication.principal.subject for entry in known):
            make_room = partial(write_rules.displace, now=now, publish=rule)
            displacing = self._command(publication, keys, notes, make_room, None, now)
            if (await self._execute_owned(publication, displacing)).outcome == write_rules.DISPLACED:
                known = self._entries_of(keys)
        owner = known[0].owner if known else None
        command = self._command(publication, keys, notes, rule, owner, now)
        command = msgspec.structs.replace(command, idempotency=_idempotency(publication, now))
        with self._quota.reserve(publication.principal, keys):
            result = await self._execute_owned(publication, command)
        if result.registration is None and result.outcome in ("withdrawn", "already"):  # an announced goodbye
            return PublicationReceipt(
                id=decoded.record.id, dialect=publication.dialect, outcome=result.outcome, etag=""
            )
        if is_brief and result.registration is not None:
            return _make_brief_receipt(result.registration, publication.dialect, result.outcome)
        receipt = self._make_receipt(result, publication.dialect, decoded)
        return await self._with_pending(receipt) if result.outcome == "held" else receipt

    def _ownership_notes(self, names: Sequence[str]) -> tuple[str, ...]:
        return ownership_notes(names, self._admission.pinned)

    def _command(
        self,
        publication: Publication,
        keys: tuple[str, ...],
        notes: tuple[str, ...],
        rule: Callable[[Publication], Rule],
        owner: str | None,
        now: float,
    ) -> Command:
        """A command whose rule gets the publication with its verdicts. `owner` is that of the agent, if it exists."""
        proof_notes, proven = self._proofs.rule(publication, owner, rule, now)
        admission_notes, decide = self._admission.rule(publication, proven, now)
        decide = self._stored_bytes.limit(publication.principal, self._byte_quota.limit(publication.principal, decide))
        return Command(keys=keys, notes=tuple(dict.fromkeys((*notes, *proof_notes, *admission_notes))), decide=decide)

    async def _execute_owned(self, publication: Publication, command: Command) -> CommandResult:
        """Refusals of reserved ids are recorded, up to a number an hour for each subject: an attacker must neither fill the audit
        trail nor hide another one."""
        try:
            return await self.execute(command)
        except OwnerConflict as error:
            now, subject = self._clock.now(), publication.principal.subject or ""
            if error.details.get("reason") == BOUND_REASON and self._refusals.take(subject, now):
                await self.record(_refusal_entry(publication, now))
            raise

    async def _with_pending(self, receipt: PublicationReceipt) -> PublicationReceipt:
        change = await self.find_pending(receipt.id)
        if change is None:  # a repeated request: the change was confirmed or rejected since
            return receipt
        return msgspec.structs.replace(receipt, held=change, warnings=(*receipt.warnings, pending_warning(change)))

    async def find_pending(self, agent_id: str) -> PendingChange | None:
        name = pending_note_name(agent_id)
        return load_pending(dict(await self._store.notes(name)).get(name))

    def _entries_of(self, keys: Sequence[str]) -> list[CatalogEntry]:
        found = [self._catalog.find(agent_id) for agent_id in map(self._catalog.resolve, keys) if agent_id is not None]
        return [entry for entry in found if entry is not None]

    def _new_uuid(self) -> str:
        """A name, not a secret: a call to the system's random source would cost more than the rest of a registration."""
        digits = self._random.randbytes(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"

    def mirror_command(self, copy: mirror_rules.MirroredRecord) -> Command:
        """The command that stores the copy of a record that a peer sent. Raises if admission refuses it."""
        self._index.publications += 1
        command = self._mirror_command(copy)
        principal = mirror_rules.peer_principal(copy.federation.peer)
        return msgspec.structs.replace(command, decide=self._stored_bytes.limit(principal, command.decide))

    async def judge(self, copy: mirror_rules.MirroredRecord) -> Registration:
        """The registration that `mirror` would store, with its verdicts, without storing it. Raises what `mirror` would raise,
        but agents and tombstones of this registry are not considered."""
        command = self._mirror_command(copy)
        notes: dict[str, bytes] = {}
        for name in command.notes:
            notes.update(pair for pair in await self._store.notes(name, limit=1) if pair[0] == name)
        state = StoreState(registrations={}, tombstones={}, revision=0, notes=notes)
        change = command.decide(state).change
        if change is None or change.registration is None:
            raise NotFound("Policy does not take this record.", path="$.id")
        return change.registration

    def _mirror_command(self, copy: mirror_rules.MirroredRecord) -> Command:
        now = self._clock.now()
        self._catalog.expire(now)
        for check in self._checks:
            for publication in copy.publications:
                check(publication)
        names = dict.fromkeys((copy.id, *(name for each in copy.publications for name in names_of(each))))
        keys = with_spellings(names)
        notes = [*self._ownership_notes(keys), *domain_notes(keys, self._proofs.domains)]
        verifications = [
            # The key of an announcement is pinned by announcing here, not by a copy.
            None if each.dialect == "announce" else self._admission.verification(each, now)
            for each in copy.publications
        ]
        for verification in filter(None, verifications):
            notes += verification.notes
        announce_id = self._new_uuid()

        def decide(state: StoreState) -> Decision:
            judged = copy
            if any(verifications):
                pairs = zip(copy.publications, verifications, strict=True)
                publications = tuple(each if check is None else check.judge(state) for each, check in pairs)
                judged = msgspec.structs.replace(copy, publications=publications)
            return mirror_rules.mirror(judged, now=now, announce_id=announce_id)(state)

        return Command(keys=keys, notes=tuple(dict.fromkeys(notes)), decide=decide)

    async def renew(self, principal: Principal, key: str, ttl_seconds: int | None = None) -> PublicationReceipt:
        """Extend a lease without sending the document again."""
        agent_id = self._get_id(principal, key)
        return await self.change(agent_id, write_rules.renew(principal, agent_id, ttl_seconds, now=self._clock.now()))

    async def share(
        self, principal: Principal, key: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> PublicationReceipt:
        """Add or remove subjects that may see a private agent. Lists, searches and watches follow at once."""
        agent_id = self._get_id(principal, key)
        decide = write_rules.share(principal, agent_id, add, remove, now=self._clock.now())
        return await self.change(agent_id, self._byte_quota.limit(principal, decide))

    async def host(self, principal: Principal, key: str, domain: str | None) -> PublicationReceipt:
        """Serve an agent under a domain, by the Host header; None ends it. The last agent to be given a domain has it."""
        agent_id = self._get_id(principal, key)
        decide = write_rules.set_hosted_domain(principal, agent_id, domain, now=self._clock.now())
        return await self.change(agent_id, decide)

    async def withdraw(
        self,
        principal: Principal,
        key: str,
        if_match: tuple[str, ...] | None = None,
        *,
        repeat_ok: bool = False,
        via: str = "http",
    ) -> str:
        """Remove an agent. Returns `withdrawn`, or `already` if the owner repeats it and `repeat_ok`."""
        self._catalog.expire(self._clock.now())
        agent_id = self._find_visible_id(principal, key) or self._absent_names((key,))[0]
        decide = write_rules.withdraw(principal, agent_id, if_match, now=self._clock.now(), via=via)
        keys = with_spellings((agent_id,))  # its tombstone has the canonical id
        command = Command(keys=keys, notes=self._ownership_notes((agent_id,)), decide=decide)
        try:
            result = await self.execute(command)
        except NotFound:
            raise no_such_agent(key) from None
        if result.outcome == "already" and not repeat_ok:
            raise no_such_agent(key)
        return result.outcome

    async def record(self, entry: AuditEntry) -> None:
        """Write an audit entry for an action that changes no agent."""
        await self.execute(Command(keys=(), decide=lambda state: Decision(outcome="recorded", audit=(entry,))))

    async def execute(self, command: Command) -> CommandResult:
        """Run a rule in a transaction of the store; also for other parts of the service."""
        started_at = time.perf_counter()
        self.waiting += 1
        try:
            return await self._store.execute(command)
        finally:
            self.waiting -= 1
            self._timings.commit(time.perf_counter() - started_at)

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        """Run several rules in one commit, as `Store.execute_all` does."""
        started_at = time.perf_counter()
        self.waiting += len(commands)
        try:
            return await self._store.execute_all(commands)
        finally:
            self.waiting -= len(commands)
            self._timings.commit(time.perf_counter() - started_at)

    async def change(self, agent_id: str, decide: Rule, notes: tuple[str, ...] = ()) -> PublicationReceipt:
        """Apply a rule to one agent."""
        result = await self.execute(Command(keys=(agent_id,), notes=notes, decide=decide))
        registration = result.registration
        dialect = registration.sources[0].dialect if registration and registration.sources else "profile"
        return self._make_receipt(result, dialect)

    # Hidden and unknown agents take the same steps, so that neither the response nor its time tells them apart (E7).

    def _get_id(self, principal: Principal, key: str) -> str:
        self._catalog.expire(self._clock.now())
        agent_id = self._find_visible_id(principal, key)
        if agent_id is None:
            raise no_such_agent(key)
        return agent_id

    def _find_visible_id(self, principal: Principal, key: str) -> str | None:
        entry = self._catalog.find(self._catalog.resolve(key) or key) or NO_ENTRY
        return entry.id if may_see(principal, entry.scopes) and entry is not NO_ENTRY else None

    def _absent_names(self, keys: Sequence[str]) -> tuple[str, ...]:
        """The names to look up in the store for a caller who sees no such agent. Those of a hidden agent are replaced by names
        that nothing can have."""
        return tuple(key if self._catalog.resolve(key) is None else f"\0{key}" for key in keys)

    def _make_receipt(self, result: CommandResult, dialect: str, decoded: Decoded | None = None) -> PublicationReceipt:
        registration = result.registration
        if registration is None:
            raise IdempotencyConflict(
                "The agent that was registered with this idempotency key is gone.",
                path="Idempotency-Key",
                hint="Use a new key.",
            )
        ends = registration.expires_at
        warnings = (
            [*decoded.warnings, *publication_warnings(registration, self._catalog.confusable_names)] if decoded else []
        )
        if decoded and decoded.release and decoded.release.version != registration.record.version:
            warnings.append(
                f"$.version: {decoded.release.version} is not the current version; "
                f"{registration.record.version} stays registered."
            )
        return PublicationReceipt(
            id=registration.id,
            dialect=dialect,
            outcome=result.outcome,
            etag=shown_etag(registration),
            aliases=registration.aliases,
            losses=decoded.losses if decoded else (),
            warnings=tuple(warnings),
            trust=trust_of(registration),
            expires_at=ends,
            ttl_seconds=registration.ttl_seconds,
            registration=registration,
        )


def _make_brief_receipt(registration: Registration, dialect: str, outcome: str) -> PublicationReceipt:
    return PublicationReceipt(id=registration.id, dialect=dialect, outcome=outcome, etag=shown_etag(registration))


def _refusal_entry(publication: Publication, now: float) -> AuditEntry:
    return audit_entry_by(
        publication.principal,
        "refuse",
        now=now,
        object=publication.decoded.record.id[: limits.ID_CHARS],
        outcome="reserved",
        via=publication.via,
        detail=publication.dialect,
    )


def _pending_notes(known: Sequence[CatalogEntry]) -> tuple[str, ...]:
    """The note of a pending change, which only a verified agent can have."""
    for entry in known:
        if entry.trust == "verified":
            return (pending_note_name(entry.id),)
    return ()


def _idempotency(publication: Publication, now: float) -> Idempotency | None:
    key = publication.idempotency_key
    if key is None:
        return None
    if not 0 < len(key) <= limits.IDEMPOTENCY_KEY_CHARS:
        raise InvalidParameter(
            f"An idempotency key has 1 to {limits.IDEMPOTENCY_KEY_CHARS} characters.", path="Idempotency-Key"
        )
    parameters = f"{publication.dialect}\0{publication.visibility}\0{publication.ttl_seconds}\0".encode()
    return Idempotency(
        key=f"{publication.principal.subject or ''}\0{key}",
        fingerprint=hashlib.sha256(parameters + publication.document).hexdigest(),
        forget_at=now + limits.IDEMPOTENCY_KEEP_SECONDS,
    )


class PendingChanges:
    def __init__(self, reader: RegistryReader, writer: RegistryWriter, store: Store, clock: Clock) -> None:
        self._reader = reader
        self._writer = writer
        self._store = store
        self._clock = clock

    async def get(self, principal: Principal, key: str, etag: str | None = None) -> PendingChange:
        """The pending change of an agent, for those who may change the agent; with `etag` only if it has that one."""
        entry = self._reader.resolve(principal, key)
        require_owner(principal, entry.owner, entry.scopes, key)
        return write_rules.require_pending(await self._writer.find_pending(entry.id), etag, self._clock.now())

    async def confirm(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        """Publish the change. It passes the checks of any write, but is not held again."""
        change = await self.get(principal, key, etag)
        agent_id = self._reader.resolve(principal, key).id
        return await self._writer.publish(self._to_publication(change, agent_id, principal))

    async def reject(self, principal: Principal, key: str, etag: str) -> PublicationReceipt:
        agent_id = self._reader.resolve(principal, key).id
        decide = write_rules.reject_pending(principal, agent_id, etag, now=self._clock.now())
        return await self._writer.change(agent_id, decide, (pending_note_name(agent_id),))

    async def count(self) -> int:
        return len(await self._store.notes(pending_note_name("")))

    async def expire(self) -> None:
        """Remove changes that were not confirmed in time."""
        now = self._clock.now()
        for name, data in await self._store.notes(pending_note_name("")):
            if write_rules.has_pending_expired(data, now):
                decide = write_rules.expire_pending(name, now=now)
                await self._store.execute(Command(keys=(), notes=(name,), decide=decide))

    def _to_publication(self, change: PendingChange, agent_id: str, confirmed_by: Principal) -> Publication:
        """The original write, on behalf of its original subject. Its document may state another id than the agent's."""
        decoded = write_rules.decode_again(change.document, change.dialect, change.source_url, self._clock.now())
        record = msgspec.structs.replace(decoded.record, id=agent_id)
        return Publication(
            dialect=change.dialect,
            document=change.document,
            decoded=msgspec.structs.replace(decoded, record=record, aliases=(decoded.record.id, *decoded.aliases)),
            principal=Principal(subject=change.subject, scopes=frozenset((SCOPE_WRITE,)), via=change.via),
            via=change.via,
            visibility=change.visibility,
            ttl_seconds=change.ttl_seconds,
            if_match=(change.base,),  # the confirmed difference is against this version
            source_url=change.source_url,
            confirmed_by=confirmed_by,
        )
