"""The rules for records that peers send: copies with an origin, which never take the place of anything local.

Authority over an id, the highest first: a local owner, the origin itself, a copy signed by a key that is bound here, a copy from
a peer that was granted the namespace, other copies. Of one origin, age is compared by its revision, never by arrival. A copy
makes no binding and proves nothing: its bytes are verified here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.errors import OwnerConflict, StaleMetadata
from waypost.model.federation import Federation, peer_of, peer_subject
from waypost.model.names import equivalent_ids, is_same_id
from waypost.model.principal import Principal
from waypost.model.record import record_bytes
from waypost.model.registration import Registration, keys_of, merge_sources, verdicts_of
from waypost.model.verdict import Verdict, level_of
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ownership import decide_ownership
from waypost.registry.ports import Decision, RegistrationChange, Rule, StoreState
from waypost.registry.publication import Publication
from waypost.registry.write_rules import content_etag, find_other_release, find_tombstone, make_source, withdrawal

PEER_VIA = "peer"
ALIAS = "alias"  # the outcome for a copy of an agent that is here under another id


class MirroredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a peer sent it, with its decoded documents, the newest first."""

    publications: tuple[Publication, ...]
    federation: Federation
    visibility: str
    expires_at: float | None = None  # the end of its lease, as the origin says

    @property
    def id(self) -> str:
        return self.federation.origin_id


def peer_principal(name: str) -> Principal:
    return Principal(subject=peer_subject(name), via=PEER_VIA)


def mirror(copy: MirroredRecord, *, now: float, announce_id: str) -> Rule:
    """Store a copy, or a newer one in its place."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(copy.id) or next(iter(state.registrations.values()), None)
        if current is not None and current.has_expired(now) and peer_of(current.owner) is not None:
            current = None
        is_other_id = current is not None and current.id != copy.id
        if current is not None:
            _check_authority(copy, current, is_other_id=is_other_id)
        for publication in copy.publications:  # an id that a key or a domain reserves needs its proof, from a peer too
            decide_ownership(publication, None, None, state.notes, now)
        _check_tombstone(copy.federation, state)
        if current is not None and is_other_id:
            return _add_alias(copy.id, current, state, now)
        return _store(copy, current, state, now, announce_id)

    return decide


def _check_authority(copy: MirroredRecord, current: Registration, *, is_other_id: bool) -> None:
    federation, held = copy.federation, current.federation
    if is_other_id and copy.id in current.peer_aliases:
        return
    if held is None or peer_of(current.owner) is None:
        raise OwnerConflict(
            "This id belongs to a local owner.", path="$.id", hint="A peer replaces no local agent.", details=_LOCAL
        )
    if is_other_id:
        if _is_same_agent(copy, current):
            return
        raise OwnerConflict("Another agent has a name of this one.", path="$.id", details=_OTHER_COPY)
    if federation.service_id == held.service_id:
        if federation.is_direct and not held.is_direct:
            return  # whatever a peer on the way claimed to be the revision
        if federation.peer != held.peer and held.is_direct and not federation.is_direct:
            raise OwnerConflict("The origin of this agent is a peer itself.", path="$.id", details=_OTHER_COPY)
        if _is_superseded(copy, current):
            raise _stale()
        return
    verdicts = [verdict for publication in copy.publications for verdict in publication.verdicts]
    if _authority(federation, verdicts) <= _authority(held, verdicts_of(current)):
        raise OwnerConflict("Another origin has this id.", path="$.id", details=_OTHER_COPY)


def _is_same_agent(copy: MirroredRecord, current: Registration) -> bool:
    """Whether a copy is the agent that is held under another id: the ids are spellings of each other, or a document is the
    same."""
    known = {source.digest for source in current.sources}
    return is_same_id(copy.id, current.id) or any(
        hashlib.sha256(publication.document).hexdigest() in known for publication in copy.publications
    )


def _add_alias(name: str, current: Registration, state: StoreState, now: float) -> Decision:
    """One agent, one record: the other id becomes a name of it."""
    is_taken = any(name in (each.id, *each.aliases) for each in state.registrations.values())
    if is_taken or len(current.aliases) >= limits.ALIASES:
        return Decision(outcome=ALIAS, registration=current)
    renamed = msgspec.structs.replace(
        current, aliases=(*current.aliases, name), peer_aliases=(*current.peer_aliases, name)
    )
    return Decision(outcome=ALIAS, change=_renaming(current, renamed, now))


def _renaming(current: Registration, renamed: Registration, now: float) -> RegistrationChange:
    document = record_bytes(current.record)
    registration = msgspec.structs.replace(renamed, changed_at=now)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    return RegistrationChange(
        type="updated", at=now, registration=registration, before=current.scopes, replaced=current, document=document
    )


def find_kept_twin(copy: Registration, other: Registration) -> Registration | None:
    """Of two records of one agent, the one that stays; None if they are two agents.

    One agent has a key in common that is bound here, an endpoint and a name. The endpoint alone may be a gateway for several
    agents of one publisher, and two ids at one origin are two agents, because it says so.
    """
    is_twin = (
        level_of(verdicts_of(copy)) == level_of(verdicts_of(other)) == "verified"
        and not set(keys_of(copy)).isdisjoint(keys_of(other))
        and copy.record.name.casefold() == other.record.name.casefold()
        and not _endpoints(copy).isdisjoint(_endpoints(other))
    )
    if not is_twin or copy.federation is None:
        return None
    if other.federation is None or peer_of(other.owner) is None:
        return other
    if other.federation.service_id == copy.federation.service_id:
        return None
    ranks = [_authority(each.federation, verdicts_of(each)) for each in (copy, other) if each.federation is not None]
    return copy if ranks[0] > ranks[1] else other


def _endpoints(registration: Registration) -> set[str]:
    return {binding.endpoint for binding in registration.record.bindings}


def add_alias(name: str, agent_id: str, peer: str, *, now: float) -> Rule:
    """Make the id of a record that was removed a name of the one that stands for it."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="already")
        entry = audit_entry_by(
            peer_principal(peer), ALIAS, now=now, object=agent_id, outcome="done", via=PEER_VIA, detail=name
        )
        return msgspec.structs.replace(_add_alias(name, current, state, now), audit=(entry,))

    return decide


def remove_alias(name: str, *, now: float) -> Rule:
    """The id is gone at its origin, or another agent now: it is no longer a name of the record that stands for it. A name that
    a local owner gave stays."""

    def decide(state: StoreState) -> Decision:
        current = next((each for each in state.registrations.values() if name in each.aliases), None)
        if current is None or (peer_of(current.owner) is None and name not in current.peer_aliases):
            return Decision(outcome="already")
        renamed = msgspec.structs.replace(
            current, aliases=_without(current.aliases, name), peer_aliases=_without(current.peer_aliases, name)
        )
        return Decision(outcome="updated", change=_renaming(current, renamed, now))

    return decide


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def _is_superseded(copy: MirroredRecord, current: Registration) -> bool:
    """Whether the held copy of the same origin is newer. Of several versions that an MCP registry lists, the times do not tell
    which is current, unless it called one the latest and now another."""
    for publication in copy.publications:
        release = publication.decoded.release
        held = find_other_release(publication.decoded, current.source(publication.dialect))
        if release is not None and held is not None and not (release.is_latest and held.is_latest):
            return release.is_superseded_by(held)
    return current.federation is not None and copy.federation.is_older_than(current.federation)


def _authority(federation: Federation, verdicts: Sequence[Verdict]) -> int:
    """Which of two copies of different origins counts."""
    if federation.is_direct:
        return 3
    if verdicts and level_of(verdicts) == "verified":
        return 2
    return 1 if federation.is_granted else 0


_LOCAL = {"reason": "local_owner"}
_OTHER_COPY = {"reason": "other_copy"}


def _stale() -> StaleMetadata:
    return StaleMetadata("A newer state of this agent is known from its origin.", path="$.origin.revision")


def _check_tombstone(federation: Federation, state: StoreState) -> None:
    """A withdrawn agent does not come back on a slower path, nor with a revision that a peer on the way claims."""
    tombstone = find_tombstone(federation.origin_id, state)
    if tombstone is None or tombstone.origin != federation.service_id:
        return
    if federation.revision <= tombstone.origin_revision or (tombstone.is_from_origin and not federation.is_direct):
        raise _stale()


def _store(
    copy: MirroredRecord, current: Registration | None, state: StoreState, now: float, announce_id: str
) -> Decision:
    sources = tuple(make_source(publication, now) for publication in copy.publications)
    record = merge_sources([publication.decoded.record for publication in copy.publications])
    if record.id != copy.id:
        record = msgspec.structs.replace(record, id=copy.id)
    aliases = _free_aliases(copy, current, state)
    registration = Registration(
        record=record,
        owner=peer_subject(copy.federation.peer),
        visibility=copy.visibility,
        etag="",
        revision=0,
        created_at=now if current is None else current.created_at,
        changed_at=now,
        renewed_at=now,
        lease_expires_at=copy.expires_at,
        aliases=aliases,
        peer_aliases=() if current is None else tuple(name for name in current.peer_aliases if name in aliases),
        sources=sources,
        announce_id=announce_id if current is None else current.announce_id,
        federation=copy.federation,
    )
    document = record_bytes(record)
    registration = msgspec.structs.replace(registration, etag=content_etag(registration, document))
    if current is not None and _is_same(registration, current):
        return Decision(outcome="unchanged", registration=current)
    change = RegistrationChange(
        type="registered" if current is None else "updated",
        at=now,
        registration=registration,
        before=None if current is None else current.scopes,
        replaced=current,
        document=document,
    )
    return Decision(outcome="created" if current is None else "updated", change=change)


def _is_same(after: Registration, before: Registration) -> bool:
    """Whether a page of a feed was merely read again, as after a crash: nothing is told twice."""
    known = before.federation
    return (
        known is not None
        and after.federation is not None
        and (after.etag, after.owner, after.lease_expires_at) == (before.etag, before.owner, before.lease_expires_at)
        and (after.federation.etag, after.federation.revision) == (known.etag, known.revision)
    )


def _free_aliases(copy: MirroredRecord, current: Registration | None, state: StoreState) -> tuple[str, ...]:
    """The other names of a copy that are no names of other agents. It keeps those that it has from other origins."""
    taken = {name for each in state.registrations.values() if each.id != copy.id for name in (each.id, *each.aliases)}
    decoded = [publication.decoded for publication in copy.publications]
    names = [name for each in decoded for name in (each.record.id, each.source_id, *each.aliases)]
    kept = () if current is None else current.aliases
    wanted = dict.fromkeys((*equivalent_ids(copy.id), *names, *kept))
    return tuple(name for name in wanted if name != copy.id and name not in taken)[: limits.ALIASES]


def renew_mirrored(agent_id: str, peer: str, etag: str, expires_at: float | None, *, now: float) -> Rule:
    """Take over the end of a lease. The outcome is `unknown` if the record is not the one that the peer renewed."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        known = None if current is None else current.federation
        if current is None or known is None or known.peer != peer or known.etag != etag:
            return Decision(outcome="unknown", registration=current)
        if current.lease_expires_at == expires_at:
            return Decision(outcome="unchanged", registration=current)
        registration = msgspec.structs.replace(current, lease_expires_at=expires_at, renewed_at=now)
        change = RegistrationChange(type="renewed", at=now, registration=registration, before=current.scopes)
        return Decision(outcome="refreshed", change=change)

    return decide


def withdraw_mirrored(agent_id: str, peer: str, revision: int, reason: str, *, now: float) -> Rule:
    """Remove a record of a peer. `revision` is that of the withdrawal at the origin; 0 if it is not known."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None or current.federation is None or current.owner != peer_subject(peer):
            return Decision(outcome="already")
        federation = current.federation
        entry = audit_entry_by(
            peer_principal(peer),
            "withdraw",
            now=now,
            object=current.id,
            outcome="withdrawn",
            via=PEER_VIA,
            etag=current.etag,
            detail=reason,
        )
        decision = withdrawal(current, entry, now)
        change = decision.change
        if change is None or change.tombstone is None or not revision:
            return decision
        tombstone = msgspec.structs.replace(
            change.tombstone,
            origin=federation.service_id,
            origin_revision=max(revision, federation.revision),
            is_from_origin=federation.is_direct,
        )
        return msgspec.structs.replace(decision, change=msgspec.structs.replace(change, tombstone=tombstone))

    return decide
