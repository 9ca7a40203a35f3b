"""`waypost store copy` between a data folder and a database, and back."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from support.postgresql import PostgresqlServer
from support.server import clean_environment, running_server
from support.service import profile


def run(*arguments: str, data: Path) -> tuple[int, Any, str]:
    command = [sys.executable, "-m", "waypost", *arguments, "-o", "json"]
    environment = clean_environment({"WAYPOST_DATA": str(data)})
    done = subprocess.run(
        command, env=environment, cwd=data.parent, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def first_cursor(url: str, headers: dict[str, str]) -> str:
    with httpx2.stream("GET", f"{url}/api/v1/watch?from=0", headers=headers, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("id:"):
                return line.removeprefix("id:").strip()
    raise AssertionError("the watch ended")


def test_a_copy_there_and_back_keeps_everything(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    old, node, back = tmp_path / "old", tmp_path / "node", tmp_path / "back"
    url = postgresql.create_database()
    with running_server("--samples", data=old) as server:
        headers = server.headers
        for text in ("One.", "Two."):
            document = profile("urn:agent:a\u00e4", description=text)
            assert httpx2.post(f"{server.url}/api/v1/agents", json=document, headers=headers).is_success
        assert httpx2.delete(f"{server.url}/profile/v1/agents/urn:agent:a\u00e4", headers=headers).is_success
        document = profile("urn:agent:b")
        assert httpx2.post(f"{server.url}/api/v1/agents?ttl_seconds=3600", json=document, headers=headers).is_success
        allow = httpx2.post(f"{server.url}/api/v1/allow", json={"rule": "*"}, headers=headers)
        assert allow.is_success, allow.text
        stats = httpx2.get(f"{server.url}/api/v1/stats", headers=headers).json()
        cursor = first_cursor(server.url, headers)
        audit = httpx2.get(f"{server.url}/api/v1/audit", headers=headers).json()
        code, _, error = run("store", "copy", str(old), url, data=old)
        assert code == 78, "the service still runs"
        assert "in use" in error

    code, there, error = run("store", "copy", str(old), url, data=old)
    assert code == 0, error
    assert there["agents"] == stats["agents"]
    assert there["revision"] == stats["revision"]
    code, _, error = run("store", "copy", str(old), url, data=old)
    assert code == 78, "a second copy into the same database"

    flags = ("--store", url, "--cluster-key-file", str(old / "cluster.key"))
    with running_server(*flags, data=node) as server:
        assert server.headers == headers
        copied = httpx2.get(f"{server.url}/api/v1/stats", headers=headers).json()
        assert copied["agents"] == stats["agents"]
        assert httpx2.get(f"{server.url}/api/v1/audit", headers=headers).json()["entries"][:5] == audit["entries"][:5]
        assert first_cursor(server.url, headers) == cursor
        assert httpx2.get(f"{server.url}/api/v1/agents/urn:agent:b", headers=headers).is_success
        assert httpx2.post(f"{server.url}/api/v1/agents", json=profile("urn:agent:c"), headers=headers).is_success

    code, again, error = run("store", "copy", url, str(back), data=old)
    assert code == 0, error
    assert again["agents"] == stats["agents"] + 1
    with running_server(data=back) as server:
        assert server.headers == headers
        for agent_id in ("urn:agent:b", "urn:agent:c"):
            assert httpx2.get(f"{server.url}/api/v1/agents/{agent_id}", headers=headers).is_success
        assert first_cursor(server.url, headers) == cursor
    code, report, error = run("check", data=back)
    assert code == 0, (report, error)


def test_a_database_is_copied_while_nodes_write(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    url, node = postgresql.create_database(), tmp_path / "node"
    is_done = threading.Event()
    with running_server("--store", url, data=node) as server, ThreadPoolExecutor(1) as threads:

        def write() -> int:
            with httpx2.Client(headers=server.headers, timeout=30) as client:
                for number in itertools.count():
                    client.post(f"{server.url}/api/v1/agents", json=profile(f"urn:agent:{number}"))
                    if is_done.is_set():
                        return number
            raise AssertionError("unreachable")

        writing = threads.submit(write)
        try:
            copies = [run("store", "copy", url, str(tmp_path / f"copy-{number}"), data=node) for number in range(3)]
        finally:
            is_done.set()
        assert writing.result(60) > 0
    for code, _, error in copies:
        assert code == 0, error
    revisions = [copied["revision"] for _, copied, _ in copies]
    assert revisions == sorted(set(revisions)), "nothing was written meanwhile"


def test_backup_and_check_of_a_node_say_what_to_use_instead(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    with running_server("--store", postgresql.create_database(), data=tmp_path / "node") as server:
        for command in (("backup", str(tmp_path / "file")), ("check",)):
            code, _, error = run(*command, data=server.data)
            assert code == 78
            assert "PostgreSQL" in error
            assert "pg_dump" in error


def test_two_stores_of_one_kind_are_refused(tmp_path: Path) -> None:
    code, _, error = run("store", "copy", "one", "two", data=tmp_path / "data")
    assert code == 78
    assert "must be a data folder" in error
