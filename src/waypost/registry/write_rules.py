"""The rules of writes: the stored state and a request give a decision. Pure; the store calls them inside its transaction.

Each function returns a `Rule`, which may be called again after a lost race and raises a WaypostError to refuse.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, OwnerConflict, PreconditionFailed, StaleMetadata, WaypostError
from waypost.model.json import parse_json
from waypost.model.names import canonical_id, domain_of, equivalent_ids, is_same_id
from waypost.model.principal import (
    LAN_SUBJECT,
    VISIBILITIES,
    Principal,
    may_change,
    no_such_agent,
    require_bound,
    require_owner,
)
from waypost.model.record import AgentRecord, record_bytes
from waypost.model.registration import Registration, SourceDocument, granted_ttl, is_link, merge_sources, verdicts_of
from waypost.model.resolution import VERIFIED_LEVELS
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict, is_signed, level_of, states_of
from waypost.model.versions import FreshnessMarks, Release, Staleness, find_staleness
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.registry.audit_trail import audit_entry_by, audit_expiry, audit_publication
from waypost.registry.ownership import (
    KeyBinding,
    Ownership,
    binding_note_name,
    decide_ownership,
    dump_bindings,
    load_binding,
    make_bindings,
    marks_of,
    names_of,
    release_binding,
    reserved_error,
    with_spellings,
)
from waypost.registry.ports import AuditEntry, Decision, RegistrationChange, Rule, StoreState, Tombstone
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

DISPLACED: Final = "displaced"  # outcome of `displace`: the record of another owner made room
KEPT: Final = "kept"  # likewise: nothing had to make room

_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


# --- Publishing -----------------------------------------------------------------------------------


def publish(publication: Publication, *, now: float, default_visibility: str, announce_id: str) -> Rule:
    """Register or update (PRO-40…42)."""

    def decide(state: StoreState) -> Decision:
        current, expired = _find_live(publication, state, now)
        _check_preconditions(publication, current)
        ownership = decide_ownership(publication, current, expired, state.notes, now)
        if current is None:
            tombstone = _find_tombstone(publication, expired, state, now)
            _check_tombstone(publication, tombstone, now, is_proven=bool(ownership.proof))
            decision = _create(
                publication, expired, now=now, default_visibility=default_visibility, announce_id=announce_id
            )
        elif ownership.action == "displace":  # the record of another owner came back after it was displaced
            raise reserved_error(publication.decoded.record.id, publication)
        else:
            decision = _update(publication, current, state, now, adopts=ownership.action == "adopt")
        return _with_ownership(decision, publication, current, ownership, state, now)

    return decide


def displace(publication: Publication, *, now: float, publish: Callable[[Publication], Rule]) -> Rule:
    """Make room for a publication whose sender has proven an id that another subject only asserts: withdraw that record, or
    remove the alias if it is one. Nothing happens if the publication would be refused afterwards."""

    def decide(state: StoreState) -> Decision:
        current, expired = _find_live(publication, state, now)
        if current is None:
            return Decision(outcome=KEPT)
        _check_preconditions(publication, current)
        ownership = decide_ownership(publication, current, expired, state.notes, now)
        if ownership.action != "displace":
            return Decision(outcome=KEPT)
        others = {name: each for name, each in state.registrations.items() if name != current.id}
        publish(publication)(msgspec.structs.replace(state, registrations=others))
        entry = audit_entry_by(
            publication.principal,
            "takeover",
            now=now,
            object=current.id,
            outcome=DISPLACED,
            via=publication.via,
            etag=current.etag,
            detail=f"from {current.owner}, by {ownership.proof}",
        )
        names = {canonical_id(name) for name in names_of(publication)}
        if canonical_id(current.id) in names:
            return msgspec.structs.replace(withdrawal(current, entry, now), outcome=DISPLACED)
        return _remove_aliases(current, names, entry, now)

    return decide


def _remove_aliases(current: Registration, names: Collection[str], entry: AuditEntry, now: float) -> Decision:
    aliases = tuple(alias for alias in current.aliases if canonical_id(alias) not in names)
    registration = msgspec.structs.replace(current, aliases=aliases, changed_at=now)
    document = record_bytes(registration.record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    change = RegistrationChange(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )
    return Decision(outcome=DISPLACED, change=change, audit=(entry,))


def _with_ownership(
    decision: Decision,
    publication: Publication,
    current: Registration | None,
    ownership: Ownership,
    state: StoreState,
    now: float,
) -> Decision:
    """The decision with the bindings that follow from it. They are made only for the owner of the record."""
    after = decision.change.registration if decision.change is not None else decision.registration
    audit = decision.audit
    if current is not None and after is not None and after.owner != current.owner:
        entry = audit_entry_by(
            publication.principal,
            "takeover",
            now=now,
            object=after.id,
            outcome="adopted",
            via=publication.via,
            etag=after.etag,
            detail=f"from {current.owner}, by {ownership.proof or 'its key'}",
        )
        audit = (*audit, entry)
    if after is None or after.owner != publication.principal.subject or decision.outcome == "held":
        return decision if audit is decision.audit else msgspec.structs.replace(decision, audit=audit)
    bindings = make_bindings(publication, state.notes, now)
    if not bindings and audit is decision.audit:
        return decision
    entries = tuple(
        audit_entry_by(
            publication.principal,
            "bind",
            now=now,
            object=each.id,
            outcome="bound",
            via=publication.via,
            detail=f"key {each.key_id}",
        )
        for each in bindings
        if publication.dialect != "announce"  # its pin has an entry
        and _is_new_binding(each, load_binding(state.notes.get(binding_note_name(each.id))))
    )
    return msgspec.structs.replace(
        decision, notes={**decision.notes, **dump_bindings(bindings)}, audit=(*audit, *entries)
    )


def _is_new_binding(binding: KeyBinding, before: KeyBinding | None) -> bool:
    return before is None or (before.subject, before.key_id) != (binding.subject, binding.key_id)


def _find_live(
    publication: Publication, state: StoreState, now: float
) -> tuple[Registration | None, Registration | None]:
    """The live registration that a publication would change, and one of the same id whose lease has ended."""
    current = find_current(publication, state)
    if current is None or not current.has_expired(now):
        return current, None
    record_id = publication.decoded.record.id
    return None, current if is_same_id(current.id, record_id) else state.registrations.get(record_id)


def find_current(publication: Publication, state: StoreState) -> Registration | None:
    """The registration that a publication would change."""
    record_id = publication.decoded.record.id
    if record_id in state.registrations:
        return state.registrations[record_id]
    names = set(with_spellings((record_id, *publication.decoded.aliases)))
    for registration in state.registrations.values():
        if registration.id in names or not names.isdisjoint(registration.aliases):
            return registration
    return None


def _check_preconditions(publication: Publication, current: Registration | None) -> None:
    if publication.if_match is not None and (current is None or not _matches(publication.if_match, current)):
        raise _precondition_failed()
    if publication.if_none_match_any and current is not None:
        raise PreconditionFailed(
            "The agent is registered already.", path="If-None-Match", hint="Leave If-None-Match out."
        )


def _matches(if_match: tuple[str, ...], current: Registration) -> bool:
    return "*" in if_match or current.etag in map(content_etag_part, if_match)


def _precondition_failed() -> PreconditionFailed:
    return PreconditionFailed(
        "The agent has another version than If-Match names.", path="If-Match", hint="Read it again, then retry."
    )


def _find_tombstone(
    publication: Publication, expired: Registration | None, state: StoreState, now: float
) -> Tombstone | None:
    """The tombstone of the id. A registration that expired and is not removed yet counts as one."""
    if expired is not None:
        return _make_tombstone(expired, "expired", now, hold_until=_hold_until(expired))
    return find_tombstone(publication.decoded.record.id, state)


def find_tombstone(agent_id: str, state: StoreState) -> Tombstone | None:
    """The tombstone of an id in any spelling."""
    found = (state.tombstones.get(name) for name in with_spellings((agent_id,)))
    return next((tombstone for tombstone in found if tombstone is not None), None)


def _check_tombstone(publication: Publication, tombstone: Tombstone | None, now: float, *, is_proven: bool) -> None:
    if tombstone is None or now >= tombstone.forget_at:
        return
    principal = publication.principal
    is_lan = publication.gated and LAN_SUBJECT in (tombstone.owner, principal.subject)
    if now < tombstone.hold_until and not (is_lan or is_proven or may_change(principal, tombstone.owner)):
        raise OwnerConflict(
            "This id belonged to another owner until recently.",
            path="$.id",
            hint="Choose another id, or wait as long as its lease was, at most an hour.",
        )
    marks = marks_of(publication)
    # The version alone is no proof of age once the record is gone: an owner may return to an older release.
    staleness = find_staleness(
        FreshnessMarks(marks.sequence, marks.updated_at), FreshnessMarks(tombstone.sequence, tombstone.updated_at)
    )
    if staleness is not None and not publication.is_news and tombstone.owner == principal.subject:
        raise _stale(staleness, "withdrawn")


def _stale(staleness: Staleness, known: str) -> StaleMetadata:
    return StaleMetadata(
        f"This is older than the {known} version: {staleness.reason}.",
        path=f"$.{staleness.mark}",
        hint="Read the current record, then send a newer one (a later updated_at, a higher version).",
    )


def _create(
    publication: Publication, expired: Registration | None, *, now: float, default_visibility: str, announce_id: str
) -> Decision:
    """A new registration. Watchers that saw an `expired` one in its place and may not see this one get its removal."""
    decoded = publication.decoded
    ttl = granted_ttl(publication.ttl_seconds or decoded.ttl_seconds, publication.dialect)
    visibility = _visibility(publication, default_visibility)
    spellings = equivalent_ids(decoded.record.id)
    has_aliases = spellings or decoded.aliases or decoded.source_id != decoded.record.id
    aliases = _aliases(decoded.record.id, spellings, decoded.aliases, decoded.source_id) if has_aliases else ()
    sources = (make_source(publication, now),)
    document = record_bytes(decoded.record)
    registration = Registration(
        record=decoded.record,
        owner=publication.principal.subject or "anonymous",
        visibility=visibility,
        etag=_etag(document, visibility, aliases, sources),
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
    replaced = expired if expired is not None and expired.id == decoded.record.id else None
    before = replaced.scopes if replaced is not None else None
    change = RegistrationChange(
        type="registered", at=now, registration=registration, before=before, replaced=replaced, document=document
    )
    entry = audit_publication(publication, "register", decoded.record.id, registration.etag, now)
    return Decision(outcome="created", change=change, audit=(entry,))


def _update(
    publication: Publication, current: Registration, state: StoreState, now: float, *, adopts: bool
) -> Decision:
    decoded = publication.decoded
    previous = current.source(publication.dialect)
    visibility = _visibility(publication, current.visibility)
    aliases = _aliases(current.id, (*current.aliases, *decoded.aliases), decoded.record.id, decoded.source_id)
    peer_aliases = tuple(name for name in current.peer_aliases if name not in names_of(publication))
    is_unchanged = (
        previous is not None
        and visibility == current.visibility
        and (aliases, peer_aliases) == (current.aliases, current.peer_aliases)
        and not _have_verdicts_changed(publication, previous)
        and not adopts
    )
    if previous is not None and is_unchanged and _is_same_document(publication.document, previous):
        return _renew(current, now, publication.ttl_seconds or decoded.ttl_seconds, publication.dialect)
    registered = find_other_release(decoded, previous)
    if decoded.release is not None and registered is not None:  # times of several versions do not tell which is current
        if decoded.release.is_superseded_by(registered):
            return Decision(outcome="unchanged", registration=current)
    else:
        _check_staleness(publication, current)
    others = [source for source in current.sources if source.dialect != publication.dialect]
    record = merge_sources((decoded.record, *map(_decode_source, others)))
    if record.id != current.id:
        record = msgspec.structs.replace(record, id=current.id)
    ttl = granted_ttl(publication.ttl_seconds or decoded.ttl_seconds, publication.dialect) or current.ttl_seconds
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
        peer_aliases=peer_aliases,
        sources=(make_source(publication, now), *others),
        hosted=current.hosted or _hosted(publication),
    )
    document = record_bytes(registration.record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    if is_unchanged and _is_same_announcement(registration, current):
        return _renew_signed(registration, current, now)
    decision = _updated(publication, registration, current, document, now)
    if level_of(verdicts_of(current)) != "verified":
        return decision
    pending = _find_pending_change(publication, current, registration, previous, now)
    if pending is not None:
        return _hold(publication, current, pending, state, now)
    return msgspec.structs.replace(decision, notes={pending_note_name(current.id): None})


def find_other_release(decoded: Decoded, previous: SourceDocument | None) -> Release | None:
    """The registered version of an agent of whose versions a registry lists several, if it is not the one that came."""
    if decoded.release is None or previous is None:
        return None
    registered = decode_again(previous.document, previous.dialect, previous.url, previous.received_at).release
    return None if registered is None or registered.version == decoded.release.version else registered


def _check_staleness(publication: Publication, current: Registration) -> None:
    staleness = None if publication.is_news else find_staleness(marks_of(publication), _marks(publication, current))
    if staleness is not None:
        raise _stale(staleness, "registered")


def _marks(publication: Publication, current: Registration) -> FreshnessMarks:
    """The freshness marks that a publication is compared with."""
    source = current.source(publication.dialect)
    if source is not None:
        return FreshnessMarks(source.sequence, source.updated_at, source.version)
    if is_link(publication.decoded.record) or is_link(current.record):
        return FreshnessMarks()  # a link and its target have unrelated times, and neither replaces the other
    return FreshnessMarks(updated_at=find_instant(current.record.updated_at))


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
    """Whether an announcement was only signed again, as agents do every minute: nothing but its time and signature differs."""
    if after.sources[0].dialect != "announce" or after.owner != before.owner:
        return False
    record = msgspec.structs.replace(
        after.record, updated_at=before.record.updated_at, signature=before.record.signature
    )
    return record == before.record and after.aliases == before.aliases and after.hosted == before.hosted


def _renew_signed(registration: Registration, current: Registration, now: float) -> Decision:
    """A renewal that stores the newest signed document. It is neither a new version nor an event for watchers."""
    registration = msgspec.structs.replace(registration, changed_at=current.changed_at)
    change = RegistrationChange(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def _have_verdicts_changed(publication: Publication, source: SourceDocument) -> bool:
    """Whether the same document has other verdicts than before, because a key was bound or revoked. Verdicts that came from
    the domain are not changed by a document that was merely sent."""
    now, before = states_of(publication.verdicts), states_of(source.verdicts)
    if source.via == DOMAIN_VIA and publication.via != DOMAIN_VIA:
        return any(check not in VERIFIED_LEVELS for check, _ in now ^ before)
    return now != before


def domain_verdicts(publication: Publication, current: Registration | None) -> tuple[Verdict, ...]:
    """The domain verdicts of a document that is sent, if the domain served the same document before."""
    source = current.source(publication.dialect) if current is not None else None
    if source is None or source.via != DOMAIN_VIA or publication.via == DOMAIN_VIA:
        return ()
    if not _is_same_document(publication.document, source):
        return ()
    return tuple(verdict for verdict in source.verdicts if verdict.check in VERIFIED_LEVELS)


def _hosted(publication: Publication) -> str | None:
    """The domain to serve an ADP document under: at once for an admin, after a proof of the domain for others. A document
    that was fetched from its domain is served there already."""
    if publication.dialect == "adp" and publication.principal.is_admin and publication.via != DOMAIN_VIA:
        return domain_of(publication.decoded.source_id)
    return publication.proven_host


def _is_same_document(data: bytes, source: SourceDocument) -> bool:
    if hashlib.sha256(data).hexdigest() == source.digest:
        return True
    try:  # compare encoded JSON: in Python true equals 1
        return _encode_sorted(parse_json(data)) == _encode_sorted(parse_json(source.document))
    except WaypostError:
        return False


def _decode_source(source: SourceDocument) -> AgentRecord:
    """Decode a stored source again, as of the time when it was accepted."""
    return decode_again(source.document, source.dialect, source.url, source.received_at).record


def decode_again(document: bytes, dialect: str, source_url: str | None, now: float) -> Decoded:
    return decode_document(document, dialect, DecodeContext(now=now, source_url=source_url))[2]


def _visibility(publication: Publication, default: str) -> str:
    value = publication.visibility or publication.decoded.visibility or default
    if value not in VISIBILITIES:
        raise InvalidParameter(
            f"{value[:40]!r} is not a visibility.", path="Waypost-Visibility", hint=f"Use {', '.join(VISIBILITIES)}."
        )
    return value


def _aliases(agent_id: str, *names: str | tuple[str, ...]) -> tuple[str, ...]:
    flat = [name for part in names for name in ((part,) if isinstance(part, str) else part)]
    return tuple(name for name in dict.fromkeys(flat) if name != agent_id)[: limits.ALIASES]


def make_source(publication: Publication, now: float) -> SourceDocument:
    marks = marks_of(publication)
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


def content_etag(registration: Registration, document: bytes) -> str:
    names = (*registration.invitees, *registration.aliases)
    return _etag(document, registration.visibility, names, registration.sources)


def _etag(document: bytes, visibility: str, names: tuple[str, ...], sources: tuple[SourceDocument, ...]) -> str:
    """A hash of what readers can see: record, visibility, invitees and aliases, and the bytes of each source. No time."""
    digest = hashlib.sha256(document)
    digest.update("\0".join((visibility, *names)).encode())
    for source in sources if len(sources) == 1 else sorted(sources, key=lambda item: item.dialect):
        digest.update(f"\0{source.dialect}:{source.digest}".encode())
    return base64.urlsafe_b64encode(digest.digest())[:22].decode()


# --- Pending changes of verified agents -----------------------------------------------------------


def _find_pending_change(
    publication: Publication,
    current: Registration,
    registration: Registration,
    previous: SourceDocument | None,
    now: float,
) -> PendingChange | None:
    """The change, if it touches a guarded part of a verified agent and is neither signed nor confirmed. `previous` is the
    last document of the same dialect."""
    if publication.confirmed_by is not None or is_signed(publication.verdicts):
        return None
    differences = guarded_differences(
        current.record,
        registration.record,
        key_before=signing_key_name(_decode_source(previous)) if previous is not None else None,
        key_after=signing_key_name(publication.decoded.record) if previous is not None else None,
    )
    if not differences:
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
        differences=differences,
        visibility=publication.visibility,
        ttl_seconds=publication.ttl_seconds,
        source_url=publication.source_url,
        verdicts=publication.verdicts,
    )


def _hold(
    publication: Publication, current: Registration, pending: PendingChange, state: StoreState, now: float
) -> Decision:
    """Readers still see the verified version. Sending the same change again does not prolong its time."""
    name = pending_note_name(current.id)
    before = load_pending(state.notes.get(name))
    if before is not None and before.etag == pending.etag and not before.is_over(now):
        return Decision(outcome="held", registration=current)
    entry = audit_publication(publication, "hold", current.id, pending.etag, now)
    return Decision(outcome="held", registration=current, notes={name: dump_pending(pending)}, audit=(entry,))


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


def reject_pending(principal: Principal, key: str, etag: str, *, now: float) -> Rule:
    def decide(state: StoreState) -> Decision:
        current = _require_current(principal, key, state, now)
        name = pending_note_name(current.id)
        require_pending(load_pending(state.notes.get(name)), etag, now)
        entry = audit_entry_by(principal, "reject", now=now, object=current.id, outcome="rejected", etag=etag)
        return Decision(outcome="rejected", registration=current, notes={name: None}, audit=(entry,))

    return decide


def has_pending_expired(data: bytes, now: float) -> bool:
    change = load_pending(data)
    return change is not None and change.is_over(now)


def expire_pending(name: str, *, now: float) -> Rule:
    """Remove a change that was not confirmed in time, unless another one took its place."""

    def decide(state: StoreState) -> Decision:
        data = state.notes.get(name)
        if data is None or not has_pending_expired(data, now):
            return Decision(outcome="unchanged")
        entry = AuditEntry(at=now, action="lapse", subject="", object=name.removeprefix(pending_note_name("")))
        return Decision(outcome="lapsed", notes={name: None}, audit=(entry,))

    return decide


# --- Changes without a document -------------------------------------------------------------------


def _require_current(principal: Principal, key: str, state: StoreState, now: float) -> Registration:
    """The agent, if the caller may change it. A hidden agent looks like an absent one."""
    current = state.registrations.get(key) or next(iter(state.registrations.values()), None)
    if current is None or current.has_expired(now):
        raise no_such_agent(key)
    require_owner(principal, current.owner, current.scopes, key)
    require_bound(principal, current.id, *current.aliases)
    return current


def renew(principal: Principal, key: str, ttl_seconds: int | None, *, now: float) -> Rule:
    def decide(state: StoreState) -> Decision:
        current = _require_current(principal, key, state, now)
        return _renew(current, now, ttl_seconds, current.sources[0].dialect if current.sources else "")

    return decide


def _renew(current: Registration, now: float, ttl_seconds: int | None, dialect: str) -> Decision:
    """Extend the lease; without a lease nothing changes."""
    keeps_ttl = ttl_seconds is None and current.ttl_seconds is not None
    ttl = current.ttl_seconds if keeps_ttl else granted_ttl(ttl_seconds, dialect)
    if ttl is None:
        return Decision(outcome="unchanged", registration=current)
    registration = msgspec.structs.replace(
        current, ttl_seconds=ttl, lease_expires_at=float(int(now) + ttl), renewed_at=now
    )
    change = RegistrationChange(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def set_hosted_domain(principal: Principal, key: str, domain: str | None, *, now: float) -> Rule:
    """Serve an agent under a domain, by the Host header, or stop it. The caller must allow admins only."""

    def decide(state: StoreState) -> Decision:
        current = _require_current(principal, key, state, now)
        registration = msgspec.structs.replace(current, hosted=domain, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=registration, before=current.scopes)
        entry = audit_entry_by(
            principal, "host", now=now, object=current.id, outcome="updated", etag=current.etag, detail=domain or "none"
        )
        return Decision(outcome="updated", change=change, audit=(entry,))

    return decide


def parse_invitees(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > limits.INVITEES:
        raise InvalidParameter(f"Expected an array of at most {limits.INVITEES} subjects.", path=path)
    for name in value:
        if not isinstance(name, str) or not 0 < len(name) <= limits.SUBJECT_CHARS or not name.isprintable():
            raise InvalidParameter(
                f"A subject is a printable text of 1 to {limits.SUBJECT_CHARS} characters.",
                path=path,
                hint="Use the `sub` of its token.",
            )
    return tuple(dict.fromkeys(value))


def share(principal: Principal, key: str, add: Sequence[str], remove: Sequence[str], *, now: float) -> Rule:
    """Change the subjects that may see an agent. A subject in both lists is removed."""

    def decide(state: StoreState) -> Decision:
        current = _require_current(principal, key, state, now)
        invitees = tuple(dict.fromkeys(name for name in (*current.invitees, *add) if name not in remove))
        if len(invitees) > limits.INVITEES:
            raise InvalidParameter(
                f"An agent can be shared with at most {limits.INVITEES} subjects.",
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
    detail = f"{len(invitees)} invitees"
    entry = audit_entry_by(
        principal, "share", now=now, object=current.id, outcome="updated", etag=registration.etag, detail=detail
    )
    return Decision(outcome="updated", change=change, audit=(entry,))


# --- Ends -----------------------------------------------------------------------------------------
#
# The tombstone of an agent keeps an older document from taking its place again.


def withdraw(
    principal: Principal, key: str, if_match: tuple[str, ...] | None, *, now: float, via: str = "http"
) -> Rule:
    def decide(state: StoreState) -> Decision:
        tombstone = find_tombstone(key, state)
        is_withdrawn = not state.registrations and tombstone is not None and tombstone.type == "withdrawn"
        if is_withdrawn and tombstone is not None and may_change(principal, tombstone.owner):
            return Decision(outcome="already")
        current = _require_current(principal, key, state, now)
        if if_match is not None and not _matches(if_match, current):
            raise _precondition_failed()
        entry = audit_entry_by(
            principal, "withdraw", now=now, object=current.id, outcome="withdrawn", via=via, etag=current.etag
        )
        notes = release_binding(current.id, state.notes) if principal.is_admin else {}
        return msgspec.structs.replace(withdrawal(current, entry, now), notes=notes)

    return decide


def withdraw_revoked(principal: Principal, current: Registration, reason: str, *, now: float) -> Decision:
    """Withdraw an agent because an operator revoked its key or its id."""
    entry = audit_entry_by(
        principal, "withdraw", now=now, object=current.id, outcome="withdrawn", etag=current.etag, detail=reason
    )
    return withdrawal(current, entry, now)


def withdrawal(current: Registration, entry: AuditEntry, now: float) -> Decision:
    change = RegistrationChange(
        type="withdrawn",
        at=now,
        removed=current,
        tombstone=_make_tombstone(current, "withdrawn", now, hold_until=now),
        before=current.scopes,
    )
    return Decision(outcome="withdrawn", change=change, audit=(entry,))


def expire(agent_id: str, *, now: float) -> Rule:
    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None or not current.has_expired(now):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(
            type="expired",
            at=now,
            removed=current,
            tombstone=_make_tombstone(current, "expired", now, hold_until=_hold_until(current)),
            before=current.scopes,
        )
        entry = audit_expiry(current.id, current.etag, now)
        return Decision(outcome="expired", change=change, audit=(entry,))

    return decide


def _make_tombstone(current: Registration, kind: str, now: float, *, hold_until: float) -> Tombstone:
    newest = max((source.sequence for source in current.sources if source.sequence is not None), default=None)
    return Tombstone(
        id=canonical_id(current.id),
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


def _hold_until(expired: Registration) -> float:
    """How long the id of an expired agent is reserved for its owner: as long as its lease was, within a limit."""
    return (expired.expires_at or 0.0) + min(expired.ttl_seconds or 0, limits.ID_HOLD_MAX_SECONDS)
