"""Leases: one node of a cluster does a chore, by the clock of the database.

A holder that stopped for a while may believe that it still holds its lease. So what it writes names the epoch of the lease,
and the database refuses an epoch that is over.
"""

from __future__ import annotations

import uuid
from typing import Final

from waypost.stores.postgresql.database import DATABASE_ERRORS, Database

LEASE_SECONDS: Final = 10.0  # another node takes over at most this long after the holder died


class Leases:
    def __init__(self, database: Database, node: uuid.UUID) -> None:
        self._database = database
        self._node = node

    async def claim(self, chore: str) -> int | None:
        """Take or renew the lease of a chore; returns its epoch, or None if another node has it or the database is away."""
        try:
            rows = await self._database.fetch(
                "SELECT waypost.claim_lease($1, $2, $3)", chore, self._node, LEASE_SECONDS
            )
        except DATABASE_ERRORS:
            return None
        return None if rows[0][0] is None else int(rows[0][0])
