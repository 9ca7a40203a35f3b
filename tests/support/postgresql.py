"""PostgreSQL servers for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
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


@contextmanager
def running_replication() -> Iterator[tuple[PostgresqlServer, PostgresqlServer]]:
    """A primary, and a synchronous standby of it."""
    settings = ("wal_level = replica", "max_wal_senders = 4", "hot_standby = on")
    with running_postgresql(settings=settings) as primary:
        standby = primary.clone(primary.folder / "standby", free_port())
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", "SELECT pg_reload_conf()")
        try:
            yield primary, standby
        finally:
            standby.stop_if_running()


PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def running_pgbouncer(server: PostgresqlServer, folder: Path) -> Iterator[int]:
    """A pool in transaction mode in front of a server; gives its port."""
    assert PGBOUNCER is not None
    port = free_port()
    place = Path(tempfile.mkdtemp(prefix="waypost-pool-"))
    place.chmod(0o755)
    (place / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=waypost\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\n"
        "default_pool_size = 8\n"
    )
    process = subprocess.Popen(
        [PGBOUNCER, str(place / "pgbouncer.ini")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **server.owner(),
    )
    try:
        _wait_for_port(port)
        yield port
    finally:
        process.kill()
        process.wait(20)
        shutil.rmtree(place, ignore_errors=True)


def _wait_for_port(port: int) -> None:
    ends_at = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)
        else:
            return
