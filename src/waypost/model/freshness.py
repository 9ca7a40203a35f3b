"""Which of two versions is newer: by sequence, then by `updated_at`, then by `version` (PRO-40…42).

Only what both sides state is compared; the first mark that tells them apart decides. A newer `updated_at` may come with
a lower version: that is a deliberate step back, not stale news.
"""

from __future__ import annotations

import msgspec

from waypost.model.versions import compare_versions


class Marks(msgspec.Struct, frozen=True):
    sequence: int | None = None
    updated_at: float | None = None
    version: str | None = None


class Staleness(msgspec.Struct, frozen=True):
    mark: str
    why: str


def staleness(incoming: Marks, held: Marks) -> Staleness | None:
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
