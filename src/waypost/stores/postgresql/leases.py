"""Leases: one node of a cluster does a chore, by the clock of the database.

A holder that stopped for a while may believe that it still holds its lease. So what it writes names the epoch of the lease,
and the database refuses an epoch that is over.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import Final

from waypost.stores.postgresql.database import DATABASE_ERRORS, Database

LEASE_SECONDS: Final = 10.0  # another node takes over at most this long after the holder died
RENEW_SECONDS: Final = 3.0
_ASK_AGAIN_SECONDS: Final = 1.0  # how often a node asks for the lease of another one


class Leases:
    def __init__(self, database: Database, node: uuid.UUID) -> None:
        self._database = database
        self._node = node
        self._held: dict[str, tuple[int, float]] = {}  # epoch, and when it was claimed at the earliest
        self._refused_at: dict[str, float] = {}

    async def claim(self, chore: str) -> int | None:
        """The epoch of the lease of a chore, if this node has it or gets it; None if another node has it or the database is
        away."""
        now = time.monotonic()
        epoch, claimed_at = self._held.get(chore, (0, -LEASE_SECONDS))
        if now - claimed_at < LEASE_SECONDS - RENEW_SECONDS:
            return epoch
        if now - self._refused_at.get(chore, -_ASK_AGAIN_SECONDS) < _ASK_AGAIN_SECONDS:
            return None
        return await self._claim(chore)

    async def renew(self) -> None:
        """Renew all leases of this node; called every RENEW_SECONDS."""
        for chore in [*self._held]:
            await self._claim(chore)

    async def _claim(self, chore: str) -> int | None:
        asked_at = time.monotonic()
        try:
            rows = await self._database.fetch(
                "SELECT waypost.claim_lease($1, $2, $3)", chore, self._node, LEASE_SECONDS
            )
        except DATABASE_ERRORS:
            return None
        if rows[0][0] is None:
            self._held.pop(chore, None)
            self._refused_at[chore] = asked_at
            return None
        self._held[chore] = (int(rows[0][0]), asked_at)
        return int(rows[0][0])

    async def release(self) -> None:
        """Let other nodes take over at once."""
        if self._held:
            with suppress(*DATABASE_ERRORS):
                await self._database.fetch("UPDATE waypost.leases SET until = '-infinity' WHERE node = $1", self._node)
            self._held.clear()
