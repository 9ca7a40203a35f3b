"""Files of the search index, which one node leaves in the database for nodes that start with an empty folder.

A manifest names its revision, which is that of the log, so a node opens the files and applies the later changes, as after a
restart. They are a copy that saves time: files are checked when they are opened, and a node without any builds its index from the
records. So the table is UNLOGGED: it is not in the WAL, and empty after a crash of the database and on a promoted standby.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import asyncpg
import msgspec

from waypost import limits
from waypost.files import open_private
from waypost.search.index.storage import Manifest, SegmentDirectory
from waypost.stores.postgresql.database import Database
from waypost.stores.postgresql.replica import Replica

_PART_BYTES: Final = limits.MIB
_FETCHED_PARTS: Final = 4

_READ_MANIFEST = "SELECT data FROM waypost.index_files WHERE name = 'manifest'"
_CHECKSUM = "SELECT checksum FROM waypost.log WHERE position = $1"
_READ_PARTS = "SELECT data FROM waypost.index_files WHERE name = $1 ORDER BY part"
_COMPLETE = "SELECT name FROM waypost.index_files WHERE part = 0 AND name = ANY ($1)"
_PUT_PART = """INSERT INTO waypost.index_files VALUES ($1, $2, $3)
    ON CONFLICT (name, part) DO UPDATE SET data = excluded.data"""
# Only if the database has the history of the replica, and still has all files: another node may have taken over meanwhile.
_COMMIT = """WITH put AS (
        INSERT INTO waypost.index_files SELECT 'manifest', 0, $1
        WHERE EXISTS (SELECT FROM waypost.log WHERE position = $3 AND checksum = $4)
            AND (SELECT count(*) FROM waypost.index_files WHERE part = 0 AND name = ANY ($2)) = cardinality($2)
        ON CONFLICT (name, part) DO UPDATE SET data = excluded.data RETURNING name
    )
    DELETE FROM waypost.index_files WHERE EXISTS (SELECT FROM put) AND name <> 'manifest' AND name <> ALL ($2)"""


class _Left(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of its index: a place in the log that it had reached, which proves the history, and the files."""

    position: int
    checksum: bytes
    manifest: Manifest


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Left).decode


class SharedIndex:
    def __init__(self, database: Database, replica: Replica) -> None:
        self._database = database
        self._replica = replica

    async def save(self) -> None:
        """Copy the files that the database does not have yet. Raises OSError if the index changed meanwhile."""
        folder = self._replica.index_folder
        manifest = SegmentDirectory(folder).manifest()
        position, checksum = self._replica.position, self._replica.checksum  # not before the manifest: it is not newer
        if manifest is None or not manifest.revision:
            return
        if any(_decode(row["data"]).manifest == manifest for row in await self._database.fetch(_READ_MANIFEST)):
            return
        names = _names(manifest)
        complete = {row["name"] for row in await self._database.fetch(_COMPLETE, names)}
        for name in names:
            if name not in complete:
                await self._put(folder / name)
        left = _encode(_Left(position, checksum, manifest))
        await self._database.fetch(_COMMIT, left, names, position, checksum)

    async def _put(self, path: Path) -> None:
        """The first part comes last: a file that has it is complete."""
        size = await asyncio.to_thread(os.path.getsize, path)
        for part in reversed(range(1 + size // _PART_BYTES)):
            await self._database.fetch(_PUT_PART, path.name, part, await asyncio.to_thread(_read_part, path, part))


async def load_index(connection: asyncpg.Connection, folder: Path) -> None:
    """Called before the records are loaded, so that the index is not newer than they are."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        content = await connection.fetchval(_READ_MANIFEST)
        if content is None:
            return
        left = _decode(content)
        if await connection.fetchval(_CHECKSUM, left.position) != left.checksum:
            return
        manifest = left.manifest
        directory = SegmentDirectory(folder)
        directory.clear()
        for name in _names(manifest):
            with open_private(folder / Path(name).name) as file:
                async for row in connection.cursor(_READ_PARTS, name, prefetch=_FETCHED_PARTS):
                    file.write(row["data"])
        directory.commit(manifest)


def _names(manifest: Manifest) -> list[str]:
    return sorted({file.name for saved in manifest.segments for file in saved.files})


def _read_part(path: Path, part: int) -> bytes:
    with path.open("rb") as file:
        file.seek(part * _PART_BYTES)
        return file.read(_PART_BYTES)
