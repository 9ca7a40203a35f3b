"""PostgreSQL servers for tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from postgresql_server import PostgresqlServer, embedded_binaries
from support.ports import free_port

__all__ = ["DEBIAN_BINARIES", "PostgresqlServer", "embedded_binaries", "running_postgresql"]

DEBIAN_BINARIES: Final = Path("/usr/lib/postgresql/15/bin")


@contextmanager
def running_postgresql(
    binaries: Path | None = None, *, settings: Sequence[str] = (), port: int | None = None
) -> Iterator[PostgresqlServer]:
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) and not os.environ.get("TMPDIR") else None
    folder = Path(tempfile.mkdtemp(prefix="waypost-pg-", dir=place))
    server = PostgresqlServer(folder, binaries or embedded_binaries(), port or free_port())
    try:
        server.initialize()
        # Tests kill processes, not machines.
        server.append("postgresql.conf", "".join(f"{line}\n" for line in ("fsync = off", *settings)))
        server.start()
        yield server
    finally:
        server.stop_if_running()
        shutil.rmtree(folder, ignore_errors=True)
