"""One agent from several sources: the newest source speaks, the others fill what it leaves out. One that only points at a
document of the agent (an entry of a catalogue) speaks after those that describe it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from waypost.model.record import AgentRecord

_FILLED = ("bindings", "tags", "examples", "auth", "constraints", "status", "version")


def only_points(record: AgentRecord) -> bool:
    """Whether it says where a document of the agent is, and nothing of where the agent itself is."""
    return bool(record.bindings) and all(binding.extra.get("unresolved") is True for binding in record.bindings)


def merge_sources(newest_first: Iterable[AgentRecord]) -> AgentRecord:
    """What all sources of an agent say together. There is at least one."""
    primary, *others = sorted(newest_first, key=only_points)
    return merge_records(primary, others)


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
