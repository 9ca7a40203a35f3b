"""One agent from several sources: the newest source speaks, the others fill what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from waypost.model.record import AgentRecord

_FILLED = ("bindings", "tags", "examples", "auth", "constraints", "status", "version")


def merge_records(primary: AgentRecord, others: Iterable[AgentRecord]) -> AgentRecord:
    """`primary` with its empty members taken from the others, in their order. Names and ids are never mixed."""
    changes: dict[str, object] = {}
    extra = dict(primary.extra)
    for other in others:
        for name in _FILLED:
            if name not in changes and not getattr(primary, name) and getattr(other, name):
                changes[name] = getattr(other, name)
        for name, value in other.extra.items():
            extra.setdefault(name, value)
    if not changes and extra == primary.extra:
        return primary
    return msgspec.structs.replace(primary, extra=extra, **changes)
