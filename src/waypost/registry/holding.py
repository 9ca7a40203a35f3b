"""A change to a verified agent that nobody signed waits: it is noted, readers see the old version, its owner is asked.

The rules of waiting, for `decisions`. Pure: called inside the store's transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.errors import NotFound, PreconditionFailed
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration
from waypost.model.verdict import is_signed
from waypost.registry.auditing import entry_by, entry_of_publication
from waypost.registry.drift import HeldChange, differences, dump_held, held_name, key_of, load_held
from waypost.registry.ports import AuditEntry, Decision, Held
from waypost.registry.publication import Publication, content_part


def waiting_change(
    publication: Publication, current: Registration, registration: Registration, before: AgentRecord | None, now: float
) -> HeldChange | None:
    """What has to wait of a change to a verified agent; None when nothing does, or when who may has confirmed it. `before` is
    what the agent's last document of the same dialect said."""
    if publication.confirmed_by is not None or is_signed(publication.verdicts):
        return None
    found = differences(
        current.record,
        registration.record,
        key_before=key_of(before) if before is not None else None,
        key_after=key_of(publication.decoded.record) if before is not None else None,
    )
    if not found:
        return None
    return HeldChange(
        etag=registration.etag,
        base=current.etag,
        at=now,
        expires_at=now + limits.HELD_SECONDS,
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


def held_back(publication: Publication, current: Registration, waiting: HeldChange, held: Held, now: float) -> Decision:
    """Readers go on seeing what is verified. The same change sent again waits no longer for that."""
    name = held_name(current.id)
    before = load_held(held.notes.get(name))
    if before is not None and before.etag == waiting.etag and not before.is_over(now):
        return Decision(outcome="held", registration=current)
    entry = entry_of_publication(publication, "hold", current.id, waiting.etag, now)
    return Decision(outcome="held", registration=current, notes={name: dump_held(waiting)}, audit=(entry,))


def need_held(data: bytes | None, etag: str | None, now: float) -> HeldChange:
    """The change that waits, if it is the one that the caller means."""
    waiting = load_held(data)
    if waiting is None or waiting.is_over(now):
        raise NotFound("No change of this agent waits.", path="id", hint="It was confirmed, rejected or is too old.")
    if etag is not None and content_part(etag) != waiting.etag:
        raise PreconditionFailed(
            "Another change waits than the one that etag names.", path="$.etag", hint="Look at it again, then confirm."
        )
    return waiting


def rejected(principal: Principal, current: Registration, etag: str, now: float) -> Decision:
    """Forget a change that waits."""
    entry = entry_by(principal, "reject", now=now, object=current.id, outcome="rejected", etag=etag)
    return Decision(outcome="rejected", registration=current, notes={held_name(current.id): None}, audit=(entry,))


def has_lapsed(data: bytes, now: float) -> bool:
    waiting = load_held(data)
    return waiting is not None and waiting.is_over(now)


def lapse(name: str, *, now: float) -> Callable[[Held], Decision]:
    """Forget a change that nobody confirmed in time; one that took its place stays."""

    def decide(held: Held) -> Decision:
        data = held.notes.get(name)
        if data is None or not has_lapsed(data, now):
            return Decision(outcome="unchanged")
        entry = AuditEntry(at=now, action="lapse", subject="", object=name.removeprefix(held_name("")))
        return Decision(outcome="lapsed", notes={name: None}, audit=(entry,))

    return decide
