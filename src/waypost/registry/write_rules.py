"""What tells one version of an agent from another."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, OwnerConflict, PreconditionFailed, StaleMetadata, WaypostError
from waypost.model.json import parse_json
from waypost.model.names import domain_of
from waypost.model.principal import LAN_SUBJECT, VISIBILITIES, Principal
from waypost.model.record import AgentRecord, record_bytes
from waypost.model.registration import Registration, SourceDocument, granted_ttl, is_link, merge_sources, verdicts_of
from waypost.model.resolution import VERIFIED_LEVELS
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict, is_signed, level_of, states_of
from waypost.model.versions import FreshnessMarks, Staleness, find_staleness
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.registry.audit_trail import audit_entry_by, audit_expiry, audit_publication
from waypost.registry.ports import AuditEntry, Decision, RegistrationChange, StoreState, Tombstone
from waypost.registry.publication import (
    DOMAIN_VIA,
    PendingChange,
    Publication,
    content_etag_part,
    dump_pending,
    guarded_differences,
    load_pending,
    pending_note_name,
    signing_key_name,
)
from waypost.trust.policy import may_change, no_such_agent, require_bound, require_owner


def content_etag(registration: Registration, document: bytes) -> str:
    """A hash of what readers can see: record, visibility, invitees and the bytes of each source. Never of a clock."""
    names = (*registration.invitees, *registration.aliases)
    return etag_of(document, registration.visibility, names, registration.sources)


def etag_of(document: bytes, visibility: str, names: tuple[str, ...], sources: tuple[SourceDocument, ...]) -> str:
    digest = hashlib.sha256(document)
    digest.update("\0".join((visibility, *names)).encode())
    for source in sources if len(sources) == 1 else sorted(sources, key=lambda item: item.dialect):
        digest.update(f"\0{source.dialect}:{source.digest}".encode())
    return base64.urlsafe_b64encode(digest.digest())[:22].decode()


# ---- A change to a verified agent that nobody signed waits: it is noted, readers see the old version, its owner is asked.
#
# The rules of waiting, for `decisions`. Pure: called inside the store's transaction.


def find_pending_change(
    publication: Publication, current: Registration, registration: Registration, before: AgentRecord | None, now: float
) -> PendingChange | None:
    """What has to wait of a change to a verified agent; None when nothing does, or when who may has confirmed it. `before` is
    what the agent's last document of the same dialect said."""
    if publication.confirmed_by is not None or is_signed(publication.verdicts):
        return None
    found = guarded_differences(
        current.record,
        registration.record,
        key_before=signing_key_name(before) if before is not None else None,
        key_after=signing_key_name(publication.decoded.record) if before is not None else None,
    )
    if not found:
        return None
    return PendingChange(
        etag=registration.etag,
        base=current.etag,
        at=now,
        expires_at=now + limits.PENDING_CHANGE_SECONDS,
        subject=publication.principal.subject or "anonymous",
        dialect=publication.dialect,
        document=publication.document,
        via=publication.via,
        differences=found,
        visibility=publication.visibility,
        ttl_seconds=publication.ttl_seconds,
        source_url=publication.source_url,
        verdicts=publication.verdicts,
    )


def hold_change(
    publication: Publication, current: Registration, waiting: PendingChange, held: StoreState, now: float
) -> Decision:
    """Readers go on seeing what is verified. The same change sent again waits no longer for that."""
    name = pending_note_name(current.id)
    before = load_pending(held.notes.get(name))
    if before is not None and before.etag == waiting.etag and not before.is_over(now):
        return Decision(outcome="held", registration=current)
    entry = audit_publication(publication, "hold", current.id, waiting.etag, now)
    return Decision(outcome="held", registration=current, notes={name: dump_pending(waiting)}, audit=(entry,))


def require_pending(change: PendingChange | None, etag: str | None, now: float) -> PendingChange:
    """The pending change, if it is the one that the caller means."""
    if change is None or change.is_over(now):
        raise NotFound(
            "This agent has no pending change.", path="id", hint="It was confirmed, rejected or has expired."
        )
    if etag is not None and content_etag_part(etag) != change.etag:
        raise PreconditionFailed(
            "The pending change has another etag.", path="$.etag", hint="Look at it again, then confirm."
        )
    return change


def reject_decision(principal: Principal, current: Registration, etag: str, now: float) -> Decision:
    """Forget a change that waits."""
    entry = audit_entry_by(principal, "reject", now=now, object=current.id, outcome="rejected", etag=etag)
    return Decision(
        outcome="rejected", registration=current, notes={pending_note_name(current.id): None}, audit=(entry,)
    )


def has_pending_expired(data: bytes, now: float) -> bool:
    waiting = load_pending(data)
    return waiting is not None and waiting.is_over(now)


def expire_pending(name: str, *, now: float) -> Callable[[StoreState], Decision]:
    """Forget a change that nobody confirmed in time; one that took its place stays."""

    def decide(held: StoreState) -> Decision:
        data = held.notes.get(name)
        if data is None or not has_pending_expired(data, now):
            return Decision(outcome="unchanged")
        entry = AuditEntry(at=now, action="lapse", subject="", object=name.removeprefix(pending_note_name("")))
        return Decision(outcome="lapsed", notes={name: None}, audit=(entry,))

    return decide


# ---- The rules of changes that bring no document, pure as those of a write: a lease runs on, an agent is served under a domain,
# a change that waits is forgotten.


def renew_decision(current: Registration, now: float, asked: int | None, dialect: str) -> Decision:
    """Equal content: a lease runs on, and without a lease nothing happens at all."""
    ttl = granted_ttl(asked, dialect) if asked is not None or current.ttl_seconds is None else current.ttl_seconds
    if ttl is None:
        return Decision(outcome="unchanged", registration=current)
    registration = msgspec.structs.replace(
        current, ttl_seconds=ttl, lease_expires_at=float(int(now) + ttl), renewed_at=now
    )
    change = RegistrationChange(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def renew(principal: Principal, key: str, ttl_seconds: int | None, *, now: float) -> Callable[[StoreState], Decision]:
    def decide(held: StoreState) -> Decision:
        current = require_current(principal, key, held, now)
        return renew_decision(current, now, ttl_seconds, current.sources[0].dialect if current.sources else "")

    return decide


def set_hosted_domain(
    principal: Principal, key: str, domain: str | None, *, now: float
) -> Callable[[StoreState], Decision]:
    """Serve an agent under a domain by `Host`, or stop doing so. Only admins may: a Host must not be claimed."""

    def decide(held: StoreState) -> Decision:
        current = require_current(principal, key, held, now)
        registration = msgspec.structs.replace(current, hosted=domain, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=registration, before=current.scopes)
        entry = audit_entry_by(
            principal, "host", now=now, object=current.id, outcome="updated", etag=current.etag, detail=domain or "none"
        )
        return Decision(outcome="updated", change=change, audit=(entry,))

    return decide


def reject_pending(principal: Principal, key: str, etag: str, *, now: float) -> Callable[[StoreState], Decision]:
    """Forget a change that waits."""

    def decide(held: StoreState) -> Decision:
        current = require_current(principal, key, held, now)
        require_pending(load_pending(held.notes.get(pending_note_name(current.id))), etag, now)
        return reject_decision(principal, current, etag, now)

    return decide


def require_current(principal: Principal, key: str, held: StoreState, now: float) -> Registration:
    """The agent that the caller may change, or the refusal: what is hidden looks like what is not there."""
    current = held.registrations.get(key) or next(iter(held.registrations.values()), None)
    if current is None or current.has_expired(now):
        raise no_such_agent(key)
    require_owner(principal, current.owner, current.scopes, key)
    require_bound(principal, current.id, *current.aliases)
    return current


# ---- The rules of an end, pure as those of a write: an agent is withdrawn, expelled, or runs out. What is remembered of it keeps
# an older document from taking its place again.


def withdraw(
    principal: Principal, key: str, if_match: tuple[str, ...] | None, *, now: float, via: str = "http"
) -> Callable[[StoreState], Decision]:
    def decide(held: StoreState) -> Decision:
        gone = held.tombstones.get(key)
        if (
            not held.registrations
            and gone is not None
            and gone.type == "withdrawn"
            and may_change(principal, gone.owner)
        ):
            return Decision(outcome="already")
        current = require_current(principal, key, held, now)
        if if_match is not None and "*" not in if_match and current.etag not in map(content_etag_part, if_match):
            raise PreconditionFailed(
                "The agent is not in the version that If-Match names.",
                path="If-Match",
                hint="Read it again, then retry.",
            )
        entry = audit_entry_by(
            principal, "withdraw", now=now, object=current.id, outcome="withdrawn", via=via, etag=current.etag
        )
        return _withdrawal(current, entry, now)

    return decide


def withdraw_revoked(principal: Principal, current: Registration, why: str, *, now: float) -> Decision:
    """Withdrawn on an operator's word: its key or its id was revoked."""
    entry = audit_entry_by(
        principal, "withdraw", now=now, object=current.id, outcome="withdrawn", etag=current.etag, detail=why
    )
    return _withdrawal(current, entry, now)


def _withdrawal(current: Registration, entry: AuditEntry, now: float) -> Decision:
    change = RegistrationChange(
        type="withdrawn",
        at=now,
        removed=current,
        tombstone=tombstone_of(current, "withdrawn", now, hold_until=now),
        before=current.scopes,
    )
    return Decision(outcome="withdrawn", change=change, audit=(entry,))


def expire(agent_id: str, *, now: float) -> Callable[[StoreState], Decision]:
    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or not current.has_expired(now):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(
            type="expired",
            at=now,
            removed=current,
            tombstone=tombstone_of(current, "expired", now, hold_until=_hold_until(current)),
            before=current.scopes,
        )
        entry = audit_expiry(current.id, current.etag, now)
        return Decision(outcome="expired", change=change, audit=(entry,))

    return decide


def tombstone_of(current: Registration, kind: str, now: float, *, hold_until: float) -> Tombstone:
    newest = max((source.sequence for source in current.sources if source.sequence is not None), default=None)
    return Tombstone(
        id=current.id,
        owner=current.owner,
        at=now,
        type="withdrawn" if kind == "withdrawn" else "expired",
        hold_until=hold_until,
        forget_at=now + limits.TTL_MAX_SECONDS + limits.REMEMBER_WITHDRAWN_SECONDS,
        updated_at=find_instant(current.record.updated_at),
        version=current.record.version,
        sequence=newest,
        etag=current.etag,
    )


# ---- Who besides its owner sees a private agent: the rule of a change of invitees, pure.


def parse_invitees(value: object, path: str) -> tuple[str, ...]:
    """Names of subjects."""
    if not isinstance(value, list) or len(value) > limits.INVITEES:
        raise InvalidParameter(f"An array of at most {limits.INVITEES} subjects is wanted.", path=path)
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= limits.SUBJECT_CHARS or not name.isprintable():
            raise InvalidParameter(
                f"A subject is a printable text of 1 to {limits.SUBJECT_CHARS} characters.",
                path=path,
                hint="Name it as its token does (`sub`).",
            )
    return tuple(dict.fromkeys(value))


def share(
    principal: Principal, key: str, add: Sequence[str], remove: Sequence[str], *, now: float
) -> Callable[[StoreState], Decision]:
    """Let subjects see an agent, or no longer. Whoever is named in both is let in no more."""

    def decide(held: StoreState) -> Decision:
        current = require_current(principal, key, held, now)
        wanted = [name for name in (*current.invitees, *add) if name not in remove]
        invitees = tuple(dict.fromkeys(wanted))
        if len(invitees) > limits.INVITEES:
            raise InvalidParameter(
                f"An agent is shared with at most {limits.INVITEES} subjects.",
                path="$.add",
                hint="Remove some, or make it internal: then every reader with a token sees it.",
            )
        if invitees == current.invitees:
            return Decision(outcome="unchanged", registration=current)
        return _change_invitees(principal, current, invitees, now)

    return decide


def _change_invitees(principal: Principal, current: Registration, invitees: tuple[str, ...], now: float) -> Decision:
    registration = msgspec.structs.replace(current, invitees=invitees, changed_at=now)
    document = record_bytes(registration.record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    change = RegistrationChange(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )
    entry = audit_entry_by(
        principal, "share", now=now, object=current.id, outcome="updated", etag=registration.etag,
        detail=f"{len(invitees)} invitees",
    )  # fmt: skip
    return Decision(outcome="updated", change=change, audit=(entry,))


# ---- The rules of a write, pure: what is held + what is asked → what to do. The store calls them inside its transaction.

_in_order = msgspec.json.Encoder(order="deterministic").encode


def publish(
    publication: Publication, *, now: float, default_visibility: str, announce_id: str
) -> Callable[[StoreState], Decision]:
    """The rule for a registration or an update (PRO-40…42)."""

    def decide(held: StoreState) -> Decision:
        current = find_current(publication, held)
        ended: Registration | None = None
        if current is not None and current.has_expired(now):
            ended = held.registrations.get(publication.decoded.record.id)
            current = None
        _check_preconditions(publication, current)
        if current is None:
            _check_tombstone(publication, _find_tombstone(publication, ended, held, now), now)
            return _create(publication, ended, now=now, default_visibility=default_visibility, announce_id=announce_id)
        if not may_change(publication.principal, current.owner) and not _may_adopt(publication, current.owner):
            raise OwnerConflict(
                "This id is held by another owner.",
                path="$.id",
                hint="Choose another id, or ask the owner to change it.",
            )
        return _update(publication, current, held, now)

    return decide


def _may_adopt(publication: Publication, owner: str) -> bool:
    """What was heard on the LAN belongs to whoever announces it here with the same key, which the gate has looked at."""
    return publication.gated and owner == LAN_SUBJECT


def find_current(publication: Publication, held: StoreState) -> Registration | None:
    """The registration that a publication would change."""
    record_id = publication.decoded.record.id
    if record_id in held.registrations:
        return held.registrations[record_id]
    names = {record_id, *publication.decoded.aliases}
    for registration in held.registrations.values():
        if registration.id in names or not names.isdisjoint(registration.aliases):
            return registration
    return None


def _check_hold(principal: Principal, owner: str, hold_until: float, *, now: float) -> None:
    if now < hold_until and not may_change(principal, owner):
        raise OwnerConflict(
            "This id was held by another owner a short while ago.",
            path="$.id",
            hint="Choose another id, or wait as long as its lease was, at most an hour.",
        )


def _check_preconditions(publication: Publication, current: Registration | None) -> None:
    wanted = publication.if_match
    if wanted is not None and (
        current is None or ("*" not in wanted and current.etag not in map(content_etag_part, wanted))
    ):
        raise PreconditionFailed(
            "The agent is not in the version that If-Match names.", path="If-Match", hint="Read it again, then retry."
        )
    if publication.if_none_match_any and current is not None:
        raise PreconditionFailed(
            "The agent is registered already.", path="If-None-Match", hint="Leave If-None-Match out."
        )


def _find_tombstone(
    publication: Publication, ended: Registration | None, held: StoreState, now: float
) -> Tombstone | None:
    """What the id left behind. One whose time is over is judged as if it had been swept away already."""
    if ended is not None:
        return tombstone_of(ended, "expired", now, hold_until=_hold_until(ended))
    return held.tombstones.get(publication.decoded.record.id)


def _check_tombstone(publication: Publication, tombstone: Tombstone | None, now: float) -> None:
    if tombstone is None or now >= tombstone.forget_at:
        return
    if not publication.gated or LAN_SUBJECT not in (tombstone.owner, publication.principal.subject):
        _check_hold(publication.principal, tombstone.owner, tombstone.hold_until, now=now)
    marks = _freshness_of(publication)
    # A version alone is no proof of age once the record is gone: an owner may go back to an older release.
    found = find_staleness(
        FreshnessMarks(marks.sequence, marks.updated_at), FreshnessMarks(tombstone.sequence, tombstone.updated_at)
    )
    if found is not None and not publication.is_news and tombstone.owner == publication.principal.subject:
        raise _stale(found, "withdrawn")


def _stale(found: Staleness, held: str) -> StaleMetadata:
    return StaleMetadata(
        f"This is older than what is {held}: {found.reason}.",
        path=f"$.{found.mark}",
        hint="Read the current record, then send a newer one (a later updated_at, a higher version).",
    )


def _freshness_of(publication: Publication) -> FreshnessMarks:
    record = publication.decoded.record
    return FreshnessMarks(publication.decoded.sequence, find_instant(record.updated_at), record.version)


def _create(
    publication: Publication, ended: Registration | None, *, now: float, default_visibility: str, announce_id: str
) -> Decision:
    """A new registration. Whoever saw an `ended` one in its place, and may not see this one, is told that it is gone."""
    decoded = publication.decoded
    ttl = granted_ttl(publication.ttl_seconds or decoded.ttl_seconds, publication.dialect)
    visibility = _visibility(publication, default_visibility)
    is_called_otherwise = decoded.aliases or decoded.source_id != decoded.record.id
    aliases = _aliases(decoded.record.id, decoded.aliases, decoded.source_id) if is_called_otherwise else ()
    sources = (_source_of(publication, now),)
    document = record_bytes(decoded.record)
    registration = Registration(
        record=decoded.record,
        owner=publication.principal.subject or "anonymous",
        visibility=visibility,
        etag=etag_of(document, visibility, aliases, sources),
        revision=0,
        created_at=now,
        changed_at=now,
        renewed_at=now,
        ttl_seconds=ttl,
        lease_expires_at=None if ttl is None else float(int(now) + ttl),
        aliases=aliases,
        sources=sources,
        announce_id=announce_id,
        hosted=_hosted(publication),
    )
    before = ended.scopes if ended is not None else None
    change = RegistrationChange(
        type="registered", at=now, registration=registration, before=before, replaced=ended, document=document
    )
    entry = audit_publication(publication, "register", registration.id, registration.etag, now)
    return Decision(outcome="created", change=change, audit=(entry,))


def _update(publication: Publication, current: Registration, held: StoreState, now: float) -> Decision:
    decoded = publication.decoded
    same_dialect = current.source(publication.dialect)
    visibility = _visibility(publication, current.visibility)
    aliases = _aliases(current.id, (*current.aliases, *decoded.aliases), decoded.record.id, decoded.source_id)
    unchanged = False
    if same_dialect is not None:
        unchanged = (
            visibility == current.visibility
            and aliases == current.aliases
            and not _have_verdicts_changed(publication, same_dialect)
        )
        if unchanged and _same_document(publication.document, same_dialect):
            return renew_decision(current, now, publication.ttl_seconds or decoded.ttl_seconds, publication.dialect)
        held_marks = FreshnessMarks(same_dialect.sequence, same_dialect.updated_at, same_dialect.version)
    elif is_link(decoded.record) or is_link(current.record):
        held_marks = (
            FreshnessMarks()
        )  # a pointer and what it points at are of different times, and neither replaces the other
    else:
        held_marks = FreshnessMarks(updated_at=find_instant(current.record.updated_at))
    found = None if publication.is_news else find_staleness(_freshness_of(publication), held_marks)
    if found is not None:
        raise _stale(found, "held")
    others = [source for source in current.sources if source.dialect != publication.dialect]
    record = merge_sources((decoded.record, *(_decode_source(source, now) for source in others)))
    if record.id != current.id:
        record = msgspec.structs.replace(record, id=current.id)
    ttl = granted_ttl(publication.ttl_seconds or decoded.ttl_seconds, publication.dialect) or current.ttl_seconds
    adopts = _may_adopt(publication, current.owner) and not publication.principal.is_admin
    registration = msgspec.structs.replace(
        current,
        record=record,
        owner=publication.principal.subject or current.owner if adopts else current.owner,
        visibility=visibility,
        changed_at=now,
        renewed_at=now,
        ttl_seconds=ttl,
        lease_expires_at=None if ttl is None else float(int(now) + ttl),
        aliases=aliases,
        sources=(_source_of(publication, now), *others),
        hosted=current.hosted or _hosted(publication),
    )
    document = record_bytes(registration.record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    if unchanged and _is_same_announcement(registration, current):
        return _renew_signed(registration, current, now)
    if level_of(verdicts_of(current)) != "verified":
        return _updated(publication, registration, current, document, now)
    before = None if same_dialect is None else _decode_source(same_dialect, now)
    waiting = find_pending_change(publication, current, registration, before, now)
    if waiting is not None:
        return hold_change(publication, current, waiting, held, now)
    decision = _updated(publication, registration, current, document, now)
    return msgspec.structs.replace(decision, notes={pending_note_name(current.id): None})


def _updated(
    publication: Publication, registration: Registration, current: Registration, document: bytes, now: float
) -> Decision:
    change = RegistrationChange(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )
    action = "confirm" if publication.confirmed_by else "update"
    entry = audit_publication(publication, action, registration.id, registration.etag, now)
    return Decision(outcome="updated", change=change, audit=(entry,))


def _is_same_announcement(after: Registration, before: Registration) -> bool:
    """Whether an announcement was only signed anew, as agents do each minute: its time and signature differ, nothing else."""
    if after.sources[0].dialect != "announce" or after.owner != before.owner:
        return False
    record = msgspec.structs.replace(
        after.record, updated_at=before.record.updated_at, signature=before.record.signature
    )
    return record == before.record and after.aliases == before.aliases and after.hosted == before.hosted


def _renew_signed(registration: Registration, current: Registration, now: float) -> Decision:
    """A renewal that keeps the newest signed words. It is no version of its own, and no news to watchers."""
    registration = msgspec.structs.replace(registration, changed_at=current.changed_at)
    change = RegistrationChange(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def _have_verdicts_changed(publication: Publication, source: SourceDocument) -> bool:
    """Whether the same document is worth more, or less, than when it came: a key was bound or revoked meanwhile. What its
    domain proved is not to be judged by whoever only sends it."""
    now, then = states_of(publication.verdicts), states_of(source.verdicts)
    if source.via == DOMAIN_VIA and publication.via != DOMAIN_VIA:
        return any(check not in VERIFIED_LEVELS for check, _ in now ^ then)
    return now != then


def domain_verdicts(publication: Publication, current: Registration | None) -> tuple[Verdict, ...]:
    """The rungs of the very document that is sent, where it is held as its domain gave it."""
    source = current.source(publication.dialect) if current is not None else None
    if source is None or source.via != DOMAIN_VIA or publication.via == DOMAIN_VIA:
        return ()
    if not _same_document(publication.document, source):
        return ()
    return tuple(verdict for verdict in source.verdicts if verdict.check in VERIFIED_LEVELS)


def _hosted(publication: Publication) -> str | None:
    """An ADP document of an admin is served under its domain at once; anybody else has to prove the domain first. One that was
    fetched from its domain is served there already."""
    if publication.dialect == "adp" and publication.principal.is_admin and publication.via != DOMAIN_VIA:
        return domain_of(publication.decoded.source_id)
    return publication.proven_host


def _same_document(data: bytes, source: SourceDocument) -> bool:
    if hashlib.sha256(data).hexdigest() == source.digest:
        return True
    try:  # as text: to Python true is 1, and to no reader of JSON
        return _in_order(parse_json(data)) == _in_order(parse_json(source.document))
    except WaypostError:
        return False


def _decode_source(source: SourceDocument, now: float) -> AgentRecord:
    """A source that was accepted once decodes again; the time is its own, so that it is not judged by today."""
    return decode_again(source.document, source.dialect, source.url, source.received_at).record


def decode_again(document: bytes, dialect: str, source_url: str | None, now: float) -> Decoded:
    return decode_document(document, dialect, DecodeContext(now=now, source_url=source_url))[2]


def _visibility(publication: Publication, otherwise: str) -> str:
    value = publication.visibility or publication.decoded.visibility or otherwise
    if value not in VISIBILITIES:
        raise InvalidParameter(
            f"{value[:40]!r} is not a visibility.", path="Waypost-Visibility", hint=f"Use {', '.join(VISIBILITIES)}."
        )
    return value


def _aliases(agent_id: str, *names: str | tuple[str, ...]) -> tuple[str, ...]:
    flat = [name for part in names for name in ((part,) if isinstance(part, str) else part)]
    return tuple(name for name in dict.fromkeys(flat) if name != agent_id)[: limits.ALIASES]


def _source_of(publication: Publication, now: float) -> SourceDocument:
    marks = _freshness_of(publication)
    return SourceDocument(
        dialect=publication.dialect,
        document=publication.document,
        digest=hashlib.sha256(publication.document).hexdigest(),
        id=publication.decoded.source_id,
        received_at=now,
        subject=publication.principal.subject or "anonymous",
        via=publication.via,
        sequence=marks.sequence,
        updated_at=marks.updated_at,
        version=marks.version,
        verdicts=publication.verdicts,
        url=publication.source_url,
    )


def _hold_until(ended: Registration) -> float:
    """How long the id of an expired agent is reserved for its owner: as long as its lease was, within a limit."""
    return (ended.expires_at or 0.0) + min(ended.ttl_seconds or 0, limits.ID_HOLD_MAX_SECONDS)
