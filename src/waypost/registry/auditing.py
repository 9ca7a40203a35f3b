"""Audit entries of writes: who did what to what. Names and outcomes, never a document."""

from __future__ import annotations

from waypost.model.principal import Principal
from waypost.registry.ports import AuditEntry
from waypost.registry.publication import Publication


def entry_by(
    principal: Principal,
    action: str,
    *,
    now: float,
    object: str,  # noqa: A002 - the name of the member
    outcome: str = "",
    via: str = "http",
    etag: str = "",
    detail: str = "",
) -> AuditEntry:
    return AuditEntry(
        at=now,
        action=action,
        subject=principal.subject or "anonymous",
        object=object,
        outcome=outcome,
        via=via,
        credential=principal.credential,
        address=principal.address,
        etag=etag,
        detail=detail,
    )


def entry_of_publication(publication: Publication, action: str, agent_id: str, etag: str, now: float) -> AuditEntry:
    """What a registration or an update tells: by whom, and which content it made."""
    by = publication.confirmed_by or publication.principal
    return entry_by(
        by,
        action,
        now=now,
        object=agent_id,
        outcome=_OUTCOMES[action],
        via=publication.via,
        etag=etag,
        detail=publication.dialect,
    )


def entry_of_expiry(agent_id: str, etag: str, now: float) -> AuditEntry:
    """Nobody did it: a lease ran out. The service itself has no subject."""
    return AuditEntry(at=now, action="expire", subject="", object=agent_id, outcome="expired", via="lease", etag=etag)


def entry_of_judging(agent_id: str, etag: str, level: str, now: float) -> AuditEntry:
    """What followed from a key that was bound: the service judged what it holds."""
    return AuditEntry(at=now, action="judge", subject="", object=agent_id, outcome=level, via="trust", etag=etag)


_OUTCOMES = {"register": "created", "update": "updated", "confirm": "updated", "hold": "held"}
