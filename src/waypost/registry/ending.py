"""The rules of an end, pure as those of a write: an agent is withdrawn, expelled, or runs out. What is remembered of it keeps
an older document from taking its place again."""

from __future__ import annotations

from collections.abc import Callable

from waypost import limits
from waypost.errors import PreconditionFailed
from waypost.model.principal import Principal
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.registry.auditing import entry_by, entry_of_expiry
from waypost.registry.entries import has_ended, hold_until_of
from waypost.registry.ports import AuditEntry, Change, Decision, Held, Tombstone
from waypost.registry.publication import content_part
from waypost.registry.renewing import need_current
from waypost.trust.policy import may_change


def withdraw(
    principal: Principal, key: str, if_match: tuple[str, ...] | None, *, now: float, via: str = "http"
) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        gone = held.tombstones.get(key)
        if (
            not held.registrations
            and gone is not None
            and gone.type == "withdrawn"
            and may_change(principal, gone.owner)
        ):
            return Decision(outcome="already")
        current = need_current(principal, key, held, now)
        if if_match is not None and "*" not in if_match and current.etag not in map(content_part, if_match):
            raise PreconditionFailed(
                "The agent is not in the version that If-Match names.",
                path="If-Match",
                hint="Read it again, then retry.",
            )
        entry = entry_by(
            principal, "withdraw", now=now, object=current.id, outcome="withdrawn", via=via, etag=current.etag
        )
        return _withdrawn(current, entry, now)

    return decide


def expel(principal: Principal, current: Registration, why: str, *, now: float) -> Decision:
    """Withdrawn on an operator's word: its key or its id was revoked."""
    entry = entry_by(
        principal, "withdraw", now=now, object=current.id, outcome="withdrawn", etag=current.etag, detail=why
    )
    return _withdrawn(current, entry, now)


def _withdrawn(current: Registration, entry: AuditEntry, now: float) -> Decision:
    change = Change(
        type="withdrawn",
        at=now,
        removed=current,
        tombstone=tombstone_of(current, "withdrawn", now, hold_until=now),
        before=current.scopes,
    )
    return Decision(outcome="withdrawn", change=change, audit=(entry,))


def expire(agent_id: str, *, now: float) -> Callable[[Held], Decision]:
    def decide(held: Held) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or not has_ended(current, now):
            return Decision(outcome="unchanged", registration=current)
        change = Change(
            type="expired",
            at=now,
            removed=current,
            tombstone=tombstone_of(current, "expired", now, hold_until=hold_until_of(current)),
            before=current.scopes,
        )
        entry = entry_of_expiry(current.id, current.etag, now)
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
