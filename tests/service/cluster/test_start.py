"""A node that cannot join its cluster says why, and ends with exit code 78 (configuration) or 69 (unavailable)."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.ports import free_port
from support.postgresql import PostgresqlServer
from support.server import clean_environment

from .conftest import Cluster


def serve(folder: Path, url: str, *flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "waypost", "serve", "--port", "0", "--data", str(folder), "--store", url, *flags]
    done = subprocess.run(
        command, env=clean_environment(), cwd=folder.parent, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_wrong_password(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    url = postgresql.create_database()
    database = url.rpartition("/")[2]
    rule = f"host {database} carol 127.0.0.1/32 scram-sha-256\n"
    rules = postgresql.data / "pg_hba.conf"
    rules.write_text(rule + rules.read_text())
    postgresql.sql("CREATE ROLE carol LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()")
    code, error = serve(tmp_path / "data", postgresql.url(database, user="carol", password="wr0ng"))
    assert code == 78
    assert "refused the user or the password" in error
    assert "wr0ng" not in error


def test_no_database(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    code, error = serve(tmp_path / "data", postgresql.url("nowhere"))
    assert code == 78
    assert "does not exist" in error
    assert "createdb" in error


def test_no_rights(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    url = postgresql.create_database()
    postgresql.sql("CREATE ROLE dave LOGIN")
    code, error = serve(tmp_path / "data", postgresql.url(url.rpartition("/")[2], user="dave"))
    assert code == 78
    assert "lacks rights" in error


def test_writes_that_are_not_durable(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    url = postgresql.create_database()
    postgresql.sql(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")
    code, error = serve(tmp_path / "data", url)
    assert code == 78
    assert "synchronous_commit is off" in error


def _answer_as(listening: socket.socket, version: str) -> None:
    """Greet one client as a server of this version does; it needs no more to be refused."""
    connection, _ = listening.accept()
    with connection:
        size = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))[0]
        connection.recv(size - 4, socket.MSG_WAITALL)
        reported = {"server_version": version, "server_encoding": "UTF8", "client_encoding": "UTF8", "TimeZone": "UTC"}
        reported |= {"in_hot_standby": "off", "default_transaction_read_only": "off", "integer_datetimes": "on"}
        messages = [(b"R", struct.pack(">I", 0))]
        messages += ((b"S", f"{name}\0{value}\0".encode()) for name, value in reported.items())
        messages += [(b"K", struct.pack(">II", 1, 1)), (b"Z", b"I")]
        connection.sendall(b"".join(kind + struct.pack(">I", len(body) + 4) + body for kind, body in messages))
        while connection.recv(1024):
            pass


def test_a_server_that_is_too_old(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        greeting = threading.Thread(target=_answer_as, args=(listening, "13.16"), daemon=True)
        greeting.start()
        code, error = serve(tmp_path / "data", f"postgresql://waypost@127.0.0.1:{port}/waypost?sslmode=disable")
        greeting.join(20)
    assert code == 78
    assert "PostgreSQL 13; 14 or newer is needed" in error


def test_nobody_listens(tmp_path: Path) -> None:
    code, error = serve(tmp_path / "data", f"postgresql://waypost:secr3t@127.0.0.1:{free_port()}/waypost")
    assert code == 69
    assert "cannot be reached" in error
    assert "secr3t" not in error


def test_a_url_that_is_none(tmp_path: Path) -> None:
    for url in ("postgresql://", "mysql://localhost/x"):
        code, error = serve(tmp_path / "data", url)
        assert code == 78
        assert "must be one of" in error


def test_a_newer_schema(tmp_path: Path, cluster: Cluster, postgresql: PostgresqlServer) -> None:
    cluster.start()
    statement = "INSERT INTO waypost.schema (version, min_reader) VALUES (1000, 999)"
    postgresql.sql(statement, database=cluster.url.rpartition("/")[2])
    shutil.copytree(cluster.nodes[0].data, tmp_path / "data", ignore=shutil.ignore_patterns("*.lock", "*.sock"))
    code, error = serve(tmp_path / "data", cluster.url)
    assert code == 78
    assert "newer release" in error


@pytest.mark.parametrize("kind", ["missing", "of another cluster", "damaged"])
def test_a_cluster_key_that_does_not_fit(
    tmp_path: Path, cluster: Cluster, postgresql: PostgresqlServer, kind: str
) -> None:
    first = cluster.start()
    assert (first.data / "cluster.key").stat().st_mode & 0o777 == 0o600
    key = tmp_path / "key"
    if kind == "of another cluster":
        other = Cluster(tmp_path / "other", postgresql.create_database(), cluster.stack).start()
        shutil.copy(other.data / "cluster.key", key)
    elif kind == "damaged":
        key.write_text((first.data / "cluster.key").read_text().replace("a", "b"))
    code, error = serve(tmp_path / "data", cluster.url, "--cluster-key-file", str(key))
    assert code == 78
    assert "cluster key" in error or "its key" in error
    assert not (tmp_path / "data" / "admin.token").exists()


def test_a_cluster_key_of_ones_own(tmp_path: Path, cluster: Cluster) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4 + "\n")
    node = cluster.start("--cluster-key-file", str(key))
    assert not (node.data / "cluster.key").exists()
    key.write_text("0123456789abcdee" * 4)
    code, error = serve(tmp_path / "data", cluster.url, "--cluster-key-file", str(key))
    assert code == 78
    assert "another cluster" in error
