"""A failed fsync (F03): nothing is acknowledged after it, and it is not retried."""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.store_commands import Listener, everything, make_registration, put
from waypost.errors import StoreUnavailable
from waypost.stores.sqlite.store import SqliteStore

TESTS = Path(__file__).parents[1]
GOOD_SYNCS = 12
SECONDS = 60


@functools.cache
def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    trial = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


async def _found(folder: Path) -> set[str]:
    store = SqliteStore(folder, check=True)
    await store.open(Listener())
    found = set(await everything(store))
    assert [event.revision for event in await store.events(0, 1000)] == list(range(1, len(found) + 1))
    await store.execute(put(make_registration("afterwards")))
    await store.close()
    return found


@pytest.mark.skipif(not can_trace() and "CI" not in os.environ, reason="strace is not here, or may not trace")
def test_after_a_failed_fsync_nothing_is_answered_and_nothing_synced_again(tmp_path: Path) -> None:
    data, calls = tmp_path / "data", tmp_path / "calls"
    fault = f"inject=fsync,fdatasync:error=EIO:when={GOOD_SYNCS}+"
    tracer = ["strace", "-f", "-qq", "-y", "-o", str(calls), "-e", "trace=fsync,fdatasync", "-e", fault]
    ended = subprocess.run(
        [*tracer, sys.executable, "-m", "support.failing_disk", str(data)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    said = [line.split() for line in ended.stdout.splitlines()]
    done = [words[1] for words in said if words[0] == "done"]
    assert done == [f"agent-{n}" for n in range(len(done))]
    assert done
    rest = [" ".join(words) for words in said if words[0] != "done"]
    assert rest == [
        "refused StoreUnavailable",
        f"told {len(done)}",
        *["refused StoreUnavailable"] * 3,
        "healthy False",
        f"read {len(done)}",
    ]
    assert calls.read_text().count("EIO") == 1, "a failed fsync was tried again"
    found = asyncio.run(_found(data))
    assert found - {f"agent-{len(done)}"} == set(done)


@pytest.mark.parametrize("point", ["before_commit", "before_begin", "after_event", "during_checkpoint"])
async def test_a_fault_of_the_disk_ends_all_writing_until_a_restart(tmp_path: Path, point: str) -> None:
    armed = False

    def fail(name: str) -> None:
        if armed and name == point:
            raise OSError(errno.EIO, "the disk is broken")

    store, listener = SqliteStore(tmp_path, failpoint=fail), Listener()
    await store.open(listener)
    await store.execute(put(make_registration("before")))
    armed = True
    big = [put(make_registration(f"agent-{n}", text="x" * 100_000)) for n in range(180)]  # more than the log may hold
    results = await asyncio.gather(*map(store.execute, big), return_exceptions=True)
    written = {"before"} | {f"agent-{n}" for n, each in enumerate(results) if not isinstance(each, BaseException)}
    with pytest.raises(StoreUnavailable, match="read-only") as refusal:
        await store.execute(put(make_registration("after")))
    armed = False
    assert refusal.value.hint
    assert not await store.healthy()
    assert set(await everything(store)) == written
    assert len(listener.revisions) == len(written)
    await store.close()
    assert await _found(tmp_path) == written
