"""Which of two versions is newer: by sequence, then by `updated_at`, then by `version` (PRO-40…42).

Only what both sides state is compared; the first mark that tells them apart decides. A newer `updated_at` may come with
a lower version: that is a deliberate step back, not stale news.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from waypost.model.record import AgentRecord
from waypost.model.versions import compare_versions


class FreshnessMarks(msgspec.Struct, frozen=True):
    sequence: int | None = None
    updated_at: float | None = None
    version: str | None = None


class Staleness(msgspec.Struct, frozen=True):
    mark: str
    why: str


def find_staleness(incoming: FreshnessMarks, held: FreshnessMarks) -> Staleness | None:
    """What makes the incoming version older than the held one; None when it is not."""
    if incoming.sequence is not None and held.sequence is not None and incoming.sequence != held.sequence:
        if incoming.sequence < held.sequence:
            return Staleness("sequence", f"its sequence {incoming.sequence} is below {held.sequence}")
        return None
    if incoming.updated_at is not None and held.updated_at is not None and incoming.updated_at != held.updated_at:
        return Staleness("updated_at", "its updated_at is older") if incoming.updated_at < held.updated_at else None
    if incoming.version is not None and held.version is not None:
        order = compare_versions(incoming.version, held.version)
        if order is not None and order < 0:
            return Staleness("version", f"its version {incoming.version} is below {held.version}")
    return None


# ---- One agent from several sources: the newest source speaks, the others fill what it leaves out. One that only points at a
# document of the agent (an entry of a catalogue) speaks after those that describe it.

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
