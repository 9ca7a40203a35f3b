"""Vectors of agents that nodes compute for each other, as rows beside the agents.

Which node computes those of an agent follows from the names of the agent and of the nodes that are alive (rendezvous hashing), so
that nodes need not agree. If they differ in who is alive for a moment, an agent is computed twice, or a little later.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from waypost.stores import ClusterStats
from waypost.stores.postgresql.database import DATABASE_ERRORS, Database
from waypost.stores.postgresql.group import key_of

# Agents that are removed at this moment are left out without waiting, so that no write waits for a lock in turn. Rows of vectors
# are locked in the same order by all nodes.
_PUT = """INSERT INTO waypost.vectors (key, data)
    SELECT n.key, n.data FROM unnest($1::bytea[], $2::bytea[]) AS n(key, data) JOIN waypost.agents a ON a.key = n.key
    ORDER BY n.key FOR KEY SHARE OF a SKIP LOCKED
    ON CONFLICT (key) DO UPDATE SET data = excluded.data"""
_FETCH = "SELECT key, data FROM waypost.vectors WHERE key = ANY ($1)"


class SharedVectors:
    """Implements `registry.ports.VectorExchange`. `nodes` are those that are alive."""

    def __init__(self, database: Database, node: uuid.UUID, stats: ClusterStats) -> None:
        self._database = database
        self._node = node
        self._stats = stats
        self.nodes: Sequence[uuid.UUID] = ()

    def is_mine(self, agent_id: str) -> bool:
        if self._stats.is_away:
            return True
        name = agent_id.encode()
        return max(self.nodes, key=lambda node: _weigh(node, name), default=self._node) == self._node

    async def fetch(self, agent_ids: Sequence[str]) -> Mapping[str, bytes]:
        names = {key_of(agent_id): agent_id for agent_id in agent_ids}
        with suppress(*DATABASE_ERRORS):
            rows = await self._database.fetch(_FETCH, [*names])
            self._stats.vectors_read += len(rows)
            return {names[key]: data for key, data in rows}
        return {}

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        with suppress(*DATABASE_ERRORS):
            await self._database.fetch(_PUT, [key_of(agent_id) for agent_id in vectors], [*vectors.values()])
            self._stats.vectors_computed += len(vectors)


def _weigh(node: uuid.UUID, name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=8, key=node.bytes).digest()
