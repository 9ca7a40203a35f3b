"""Audit entries of writes: who did what to what. Names and outcomes, never a document."""

from __future__ import annotations

from waypost.model.principal import Principal
from waypost.registry.ports import AuditEntry


def entry_by(
    principal: Principal,
    action: str,
    *,
    now: float,
    object: str,  # noqa: A002 - the name of the member
    outcome: str = "",
    via: str = "",
    detail: str = "",
) -> AuditEntry:
    return AuditEntry(
        at=now,
        action=action,
        subject=principal.subject or "anonymous",
        object=object,
        outcome=outcome,
        via=via or principal.via,
        credential=principal.credential,
        address=principal.address,
        detail=detail,
    )
