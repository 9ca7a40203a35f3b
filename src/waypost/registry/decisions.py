"""The rules of a write, pure: what is held + what is asked → what to do. The store calls them inside its transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.dialects import decode_document
from waypost.dialects.codec import DecodeContext, Decoded
from waypost.errors import (
    InvalidParameter,
    OwnerConflict,
    PreconditionFailed,
    StaleMetadata,
    WaypostError,
)
from waypost.model.freshness import Marks, Staleness, staleness
from waypost.model.json import parse_json
from waypost.model.lease import granted_ttl
from waypost.model.merge import merge_sources, only_points
from waypost.model.names import domain_of
from waypost.model.principal import LAN_SUBJECT, VISIBILITIES, Principal
from waypost.model.record import AgentRecord, record_bytes
from waypost.model.registration import Registration, Source, verdicts_of
from waypost.model.resolution import RUNGS
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict, level_of, states_of
from waypost.registry.auditing import entry_of_publication
from waypost.registry.drift import held_name
from waypost.registry.ending import tombstone_of
from waypost.registry.entries import has_ended, hold_until_of
from waypost.registry.etags import content_etag, etag_of
from waypost.registry.holding import held_back, waiting_change
from waypost.registry.ports import Change, Decision, Held, Tombstone
from waypost.registry.publication import DOMAIN_VIA, Publication, content_part
from waypost.registry.renewing import renew_decision
from waypost.trust.policy import may_change

_in_order = msgspec.json.Encoder(order="deterministic").encode


def publish(
    publication: Publication, *, now: float, default_visibility: str, announce_id: str
) -> Callable[[Held], Decision]:
    """The rule for a registration or an update (PRO-40…42)."""

    def decide(held: Held) -> Decision:
        current = find_current(publication, held)
        ended: Registration | None = None
        if current is not None and has_ended(current, now):
            ended = held.registrations.get(publication.decoded.record.id)
            current = None
        _check_preconditions(publication, current)
        if current is None:
            _check_remembered(publication, _remembered(publication, ended, held, now), now)
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


def find_current(publication: Publication, held: Held) -> Registration | None:
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
        current is None or ("*" not in wanted and current.etag not in map(content_part, wanted))
    ):
        raise PreconditionFailed(
            "The agent is not in the version that If-Match names.", path="If-Match", hint="Read it again, then retry."
        )
    if publication.if_none_match_any and current is not None:
        raise PreconditionFailed(
            "The agent is registered already.", path="If-None-Match", hint="Leave If-None-Match out."
        )


def _remembered(publication: Publication, ended: Registration | None, held: Held, now: float) -> Tombstone | None:
    """What the id left behind. One whose time is over is judged as if it had been swept away already."""
    if ended is not None:
        return tombstone_of(ended, "expired", now, hold_until=hold_until_of(ended))
    return held.tombstones.get(publication.decoded.record.id)


def _check_remembered(publication: Publication, tombstone: Tombstone | None, now: float) -> None:
    if tombstone is None or now >= tombstone.forget_at:
        return
    if not publication.gated or LAN_SUBJECT not in (tombstone.owner, publication.principal.subject):
        _check_hold(publication.principal, tombstone.owner, tombstone.hold_until, now=now)
    marks = _marks_of(publication)
    # A version alone is no proof of age once the record is gone: an owner may go back to an older release.
    found = staleness(Marks(marks.sequence, marks.updated_at), Marks(tombstone.sequence, tombstone.updated_at))
    if found is not None and not publication.is_news and tombstone.owner == publication.principal.subject:
        raise _stale(found, "withdrawn")


def _stale(found: Staleness, held: str) -> StaleMetadata:
    return StaleMetadata(
        f"This is older than what is {held}: {found.why}.",
        path=f"$.{found.mark}",
        hint="Read the current record, then send a newer one (a later updated_at, a higher version).",
    )


def _marks_of(publication: Publication) -> Marks:
    record = publication.decoded.record
    return Marks(publication.decoded.sequence, find_instant(record.updated_at), record.version)


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
    change = Change(
        type="registered", at=now, registration=registration, before=before, replaced=ended, document=document
    )
    entry = entry_of_publication(publication, "register", registration.id, registration.etag, now)
    return Decision(outcome="created", change=change, audit=(entry,))


def _update(publication: Publication, current: Registration, held: Held, now: float) -> Decision:
    decoded = publication.decoded
    same_dialect = current.source(publication.dialect)
    visibility = _visibility(publication, current.visibility)
    aliases = _aliases(current.id, (*current.aliases, *decoded.aliases), decoded.record.id, decoded.source_id)
    unchanged = False
    if same_dialect is not None:
        unchanged = (
            visibility == current.visibility
            and aliases == current.aliases
            and not _judged_otherwise(publication, same_dialect)
        )
        if unchanged and _same_document(publication.document, same_dialect):
            return renew_decision(current, now, publication.ttl_seconds or decoded.ttl_seconds, publication.dialect)
        held_marks = Marks(same_dialect.sequence, same_dialect.updated_at, same_dialect.version)
    elif only_points(decoded.record) or only_points(current.record):
        held_marks = Marks()  # a pointer and what it points at are of different times, and neither replaces the other
    else:
        held_marks = Marks(updated_at=find_instant(current.record.updated_at))
    found = None if publication.is_news else staleness(_marks_of(publication), held_marks)
    if found is not None:
        raise _stale(found, "held")
    others = [source for source in current.sources if source.dialect != publication.dialect]
    record = merge_sources((decoded.record, *(_decode_again(source, now) for source in others)))
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
    if unchanged and _says_the_same(registration, current):
        return _said_again(registration, current, now)
    if level_of(verdicts_of(current)) != "verified":
        return _updated(publication, registration, current, document, now)
    before = None if same_dialect is None else _decode_again(same_dialect, now)
    waiting = waiting_change(publication, current, registration, before, now)
    if waiting is not None:
        return held_back(publication, current, waiting, held, now)
    decision = _updated(publication, registration, current, document, now)
    return msgspec.structs.replace(decision, notes={held_name(current.id): None})


def _updated(
    publication: Publication, registration: Registration, current: Registration, document: bytes, now: float
) -> Decision:
    change = Change(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )
    action = "confirm" if publication.confirmed_by else "update"
    entry = entry_of_publication(publication, action, registration.id, registration.etag, now)
    return Decision(outcome="updated", change=change, audit=(entry,))


def _says_the_same(after: Registration, before: Registration) -> bool:
    """Whether an announcement was only signed anew, as agents do each minute: its time and signature differ, nothing else."""
    if after.sources[0].dialect != "announce" or after.owner != before.owner:
        return False
    record = msgspec.structs.replace(
        after.record, updated_at=before.record.updated_at, signature=before.record.signature
    )
    return record == before.record and after.aliases == before.aliases and after.hosted == before.hosted


def _said_again(registration: Registration, current: Registration, now: float) -> Decision:
    """A renewal that keeps the newest signed words. It is no version of its own, and no news to watchers."""
    registration = msgspec.structs.replace(registration, changed_at=current.changed_at)
    change = Change(type="renewed", at=now, registration=registration, before=current.scopes)
    return Decision(outcome="refreshed", change=change)


def _judged_otherwise(publication: Publication, source: Source) -> bool:
    """Whether the same document is worth more, or less, than when it came: a key was bound or revoked meanwhile. What its
    domain proved is not to be judged by whoever only sends it."""
    now, then = states_of(publication.verdicts), states_of(source.verdicts)
    if source.via == DOMAIN_VIA and publication.via != DOMAIN_VIA:
        return any(check not in RUNGS for check, _ in now ^ then)
    return now != then


def proven_by_domain(publication: Publication, current: Registration | None) -> tuple[Verdict, ...]:
    """The rungs of the very document that is sent, where it is held as its domain gave it."""
    source = current.source(publication.dialect) if current is not None else None
    if source is None or source.via != DOMAIN_VIA or publication.via == DOMAIN_VIA:
        return ()
    if not _same_document(publication.document, source):
        return ()
    return tuple(verdict for verdict in source.verdicts if verdict.check in RUNGS)


def _hosted(publication: Publication) -> str | None:
    """An ADP document of an admin is served under its domain at once; anybody else has to prove the domain first. One that was
    fetched from its domain is served there already."""
    if publication.dialect == "adp" and publication.principal.is_admin and publication.via != DOMAIN_VIA:
        return domain_of(publication.decoded.source_id)
    return publication.proven_host


def _same_document(data: bytes, source: Source) -> bool:
    if hashlib.sha256(data).hexdigest() == source.digest:
        return True
    try:  # as text: to Python true is 1, and to no reader of JSON
        return _in_order(parse_json(data)) == _in_order(parse_json(source.document))
    except WaypostError:
        return False


def _decode_again(source: Source, now: float) -> AgentRecord:
    """A source that was accepted once decodes again; the time is its own, so that it is not judged by today."""
    return decoded_again(source.document, source.dialect, source.url, source.received_at).record


def decoded_again(document: bytes, dialect: str, source_url: str | None, now: float) -> Decoded:
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


def _source_of(publication: Publication, now: float) -> Source:
    marks = _marks_of(publication)
    return Source(
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
