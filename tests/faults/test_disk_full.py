"""A full disk (F04): writes are refused, reads continue, nothing is damaged, and the service recovers without a restart."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.kill_clients import document
from support.server import start_server, stop_server
from support.small_disk import Ballast, can_mount, small_disk
from support.store_commands import NOW, Listener, everything, make_registration, make_source, put, withdraw
from waypost.errors import StorageFull, StoreUnavailable
from waypost.stores.sqlite.store import SqliteStore

RECOVERY_SECONDS = 120.0  # a bound: it takes a second or two
needs_mount = pytest.mark.skipif(
    not can_mount() and "CI" not in os.environ, reason="a file system can only be mounted by root"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as folder:
        yield folder


async def _fill(store: SqliteStore, prefix: str) -> set[str]:
    """Register until the disk is full; return the acknowledged ids."""
    done: set[str] = set()
    for n in range(10_000):
        source = make_source("a2a", b"x" * 50_000)
        try:
            await store.execute(put(make_registration(f"{prefix}-{n}", sources=(source,))))
        except StorageFull:
            return done
        done.add(f"{prefix}-{n}")
    raise AssertionError("the disk never got full")


async def _wait_healthy(store: SqliteStore) -> None:
    async with asyncio.timeout(RECOVERY_SECONDS):
        while not await store.healthy():
            await asyncio.sleep(0.05)


@needs_mount
async def test_a_full_disk_refuses_writes_keeps_reads_and_recovers(disk: Path) -> None:
    ballast = Ballast(disk, 3)
    store, listener = SqliteStore(disk / "data"), Listener()
    await store.open(listener)
    done = await _fill(store, "agent")
    assert done
    for _ in range(3):
        with pytest.raises(StorageFull) as refusal:
            await store.execute(put(make_registration("big", sources=(make_source("a2a", b"x" * 200_000),))))
        assert refusal.value.retry_after
        assert refusal.value.hint
    assert not await store.healthy()
    assert set(await everything(store)) == done
    assert {entry.id async for page in store.entries() for entry in page} == done
    assert len(listener.revisions) == await store.revision() == len(done)
    ballast.drop()
    await _wait_healthy(store)
    more = await _fill(store, "later")
    assert more
    await store.close()
    again = SqliteStore(disk / "data", check=True)
    await again.open(Listener())
    assert set(await everything(again)) == done | more
    assert await again.revision() == len(done | more)
    await again.close()


@needs_mount
async def test_a_killed_store_opens_on_a_full_disk_and_serves(disk: Path) -> None:
    store = SqliteStore(disk / "data")
    await store.open(Listener())
    done = await _fill(store, "agent")
    await store.close()
    again = SqliteStore(disk / "data")
    await again.open(Listener())
    assert set(await everything(again)) == done
    await again.close()


async def test_a_full_file_refuses_writes_until_space_is_freed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, max_pages=600)
    await store.open(Listener())
    done = await _fill(store, "agent")
    assert set(await everything(store)) == done
    await store.prune(events_before=NOW + 1, keep_events=0, now=NOW)
    await store.execute(withdraw("agent-0"))
    await _wait_healthy(store)
    await store.execute(put(make_registration("later", sources=(make_source("a2a", b"x" * 30_000),))))
    assert set(await everything(store)) == done - {"agent-0"} | {"later"}
    await store.close()


async def test_every_caller_of_a_group_learns_that_its_commit_failed(tmp_path: Path) -> None:
    listener = Listener()
    store = SqliteStore(tmp_path, max_pages=100)
    await store.open(listener)
    commands = [put(make_registration(f"agent-{n}", sources=(make_source("a2a", b"x" * 40_000),))) for n in range(50)]
    results = await asyncio.gather(*map(store.execute, commands), return_exceptions=True)
    refused = [result for result in results if isinstance(result, StorageFull | StoreUnavailable)]
    written = {f"agent-{n}" for n, result in enumerate(results) if not isinstance(result, BaseException)}
    assert refused
    assert len(refused) + len(written) == 50
    assert set(await everything(store)) == written
    assert len(listener.revisions) == len(written)
    await store.close()


@needs_mount
def test_the_service_reports_a_full_disk_and_recovers(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        server = start_server(folder=tmp_path, data=disk / "data")
        try:
            ballast = Ballast(disk, 4)
            with httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as http:
                _check_service(http, ballast)
        finally:
            stop_server(server)


def _check_service(http: httpx2.Client, ballast: Ballast) -> None:
    done = 0
    while (answer := _put(http, done)).is_success:
        done += 1
    assert answer.status_code == 507, answer.text
    assert answer.headers["retry-after"]
    assert "disk is full" in answer.json()["message"]
    assert http.get("/readyz").status_code == 503
    assert http.get("/healthz").status_code == 200
    for n in (0, done - 1):
        assert http.get(f"/profile/v1/agents/agent-{n}").content == _document(n)
    assert http.get("/api/v1/stats").json()["agents"] == done
    ballast.drop()
    end = time.monotonic() + RECOVERY_SECONDS
    while not _put(http, done).is_success:
        assert time.monotonic() < end
    assert http.get("/readyz").status_code == 200
    request = {"query": f"agent-{done} survives the step", "required_tags": [f"of-agent-{done}"]}
    candidates = http.post("/profile/v1/discover", json=request).json()["candidates"]
    assert [each["id"] for each in candidates] == [f"agent-{done}"]


def _document(number: int) -> bytes:
    return document(f"agent-{number}", number) + b" " * 60_000


def _put(http: httpx2.Client, number: int) -> httpx2.Response:
    return http.put(f"/profile/v1/agents/agent-{number}", content=_document(number))
