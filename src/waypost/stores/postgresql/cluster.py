"""The cluster key, and the secrets that all nodes share: sealed in PostgreSQL, so that a dump of it reveals none.

The key is a file of the data folder, or wherever `cluster_key_file` says: 64 hexadecimal digits, and a checksum if Waypost made
it. The first node of an empty database makes it, unless there is one; every other node needs a copy of that file.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import asyncpg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from waypost.errors import ConfigurationError
from waypost.files import create_atomic
from waypost.stores.postgresql.database import (
    DATABASE_ERRORS,
    Database,
    check_server,
    read_error,
    start_error,
    write_error,
)
from waypost.stores.postgresql.schema import migrate

CLUSTER_KEY_FILE: Final = "cluster.key"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECK = "cluster"  # the secret that proves that a key fits
_HINT = "Copy the file cluster.key of another node (mode 0600), and name it with --cluster-key-file or WAYPOST_CLUSTER_KEY_FILE."


class ClusterCipher:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._cipher: AESGCM | None = None
        self._making = asyncio.Lock()

    async def check(self, connection: asyncpg.Connection) -> None:
        """Read the key, or make it for a database without a cluster; refuse one that does not fit."""
        async with connection.transaction():
            await connection.execute("LOCK TABLE waypost.secrets IN EXCLUSIVE MODE")
            sealed = await connection.fetchval("SELECT sealed FROM waypost.secrets WHERE name = $1", _CHECK)
            key = self._read()
            if key is None and sealed is not None:
                raise ConfigurationError(
                    f"The database holds a cluster, but its key {self.path} is missing.",
                    path="cluster_key_file",
                    hint=_HINT,
                )
            if key is None:
                key = self._make()
            self._cipher = AESGCM(key)
            if sealed is not None:
                self.open(_CHECK, sealed)
            else:
                await connection.execute(
                    "INSERT INTO waypost.secrets (name, sealed) VALUES ($1, $2)",
                    _CHECK,
                    self.seal(_CHECK, secrets.token_bytes(16)),
                )

    def _read(self) -> bytes | None:
        try:
            text = self.path.read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The cluster key {self.path} cannot be read ({error}).", path="cluster_key_file", hint=_HINT
            ) from None
        digits, _, check = text.partition(" ")
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES or check not in ("", _checksum(key)):
            raise ConfigurationError(f"{self.path} is damaged, or no cluster key.", path="cluster_key_file", hint=_HINT)
        return key

    def _make(self) -> bytes:
        key = secrets.token_bytes(_KEY_BYTES)
        try:
            create_atomic(self.path, f"{key.hex()} {_checksum(key)}\n".encode())
        except OSError as error:
            raise ConfigurationError(
                f"The cluster key {self.path} cannot be written ({error.strerror}).",
                path="cluster_key_file",
                hint="Name a file in a folder that you may write to.",
            ) from None
        return self._read() or key

    def seal(self, name: str, value: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._get().encrypt(nonce, value, name.encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        try:
            return self._get().decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            raise ConfigurationError(
                f"The cluster key {self.path} does not fit the database: it belongs to another cluster.",
                path="cluster_key_file",
                hint=_HINT,
            ) from None

    def _get(self) -> AESGCM:
        if self._cipher is None:
            raise RuntimeError("the cluster key is read by `check`")
        return self._cipher

    async def get_secret(self, connection: asyncpg.Connection, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret of the cluster: made once, the same in every node."""
        async with self._making:
            found = await connection.fetchval("SELECT sealed FROM waypost.secrets WHERE name = $1", name)
            if found is None:
                await connection.execute(
                    "INSERT INTO waypost.secrets (name, sealed) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                    name,
                    self.seal(name, make()),
                )
                found = await connection.fetchval("SELECT sealed FROM waypost.secrets WHERE name = $1", name)
            return self.open(name, found)


class SharedSecret:
    """A secret of the cluster that changes. Of two nodes that change it at the same time, one succeeds."""

    def __init__(self, url: str, cipher: ClusterCipher, name: str) -> None:
        self._database = Database(url)
        self._cipher = cipher
        self._name = name

    async def prepare(self) -> None:
        """Check the server, its schema and the cluster key. Raises ConfigurationError."""
        try:
            async with self._database.acquire() as connection:
                await check_server(connection)
                await migrate(connection)
                await self._cipher.check(connection)
        except (*DATABASE_ERRORS, ValueError) as error:
            raise start_error(error, self._database.url) from error

    async def read(self) -> tuple[int, bytes] | None:
        """Its version and value."""
        try:
            rows = await self._database.fetch("SELECT version, sealed FROM waypost.secrets WHERE name = $1", self._name)
        except DATABASE_ERRORS as error:
            raise read_error(error) from error
        return (rows[0][0], self._cipher.open(self._name, rows[0][1])) if rows else None

    async def write(self, value: bytes, version: int) -> bool:
        """Replace this version, or 0 for none."""
        sealed = self._cipher.seal(self._name, value)
        try:
            rows = await self._database.fetch(_CREATE if version == 0 else _REPLACE, self._name, sealed, version)
        except DATABASE_ERRORS as error:
            raise write_error(error) from error
        return bool(rows)

    async def close(self) -> None:
        await self._database.close()


_CREATE = """INSERT INTO waypost.secrets (name, sealed, version) VALUES ($1, $2, $3::bigint + 1)
    ON CONFLICT DO NOTHING RETURNING version"""
_REPLACE = "UPDATE waypost.secrets SET sealed = $2, version = $3::bigint + 1 WHERE name = $1 AND version = $3 RETURNING version"


def _checksum(key: bytes) -> str:
    """A typing error is told apart from the key of another cluster."""
    return hashlib.sha256(key).hexdigest()[:16]
