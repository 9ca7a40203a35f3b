"""The cost of a durable write in the store: alone, in group commits, and beside plain SQLite. No HTTP.

    python -m bench.store [--seconds 3] [--folder DIR]

`bare` is the least that durability allows: one row of the same bytes and one commit, by the standard sqlite3 in WAL mode with
synchronous=FULL. The others are whole registrations: entry, registration, sources, alias and event. Compare the ratios;
the figures themselves belong to the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import corpus
from waypost import limits
from waypost.model.json import dump_json
from waypost.model.record import record_from_json
from waypost.model.registration import Registration, SourceDocument
from waypost.registry.ports import Command, Decision, RegistrationChange
from waypost.stores.sqlite.store import SqliteStore

WRITERS = (1, 8, 64, 512)
MOST_PER_SECOND = 12_000
NOW = 1_790_000_000.0


def registration(document: dict[str, Any]) -> Registration:
    data = dump_json(document)
    source = SourceDocument(
        dialect="profile",
        document=data,
        digest=hashlib.sha256(data).hexdigest(),
        id=document["id"],
        received_at=NOW,
        subject="bench",
        via="bench",
    )
    return Registration(
        record=record_from_json(document),
        owner="bench",
        visibility="public",
        etag=source.digest[:22],
        revision=0,
        created_at=NOW,
        changed_at=NOW,
        renewed_at=NOW,
        aliases=(f"alias:{document['id']}",),
        sources=(source,),
    )


def command(document: dict[str, Any]) -> Command:
    made = registration(document)
    change = RegistrationChange(type="registered", at=NOW, registration=made)
    return Command(keys=(made.id, *made.aliases), decide=lambda held: Decision(outcome="created", change=change))


def bare(folder: Path, seconds: float) -> float:
    connection = sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, data BLOB)")
    data = dump_json(next(corpus.documents(1)))
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        connection.execute("INSERT INTO rows (data) VALUES (?)", (data,))
        count += 1
    elapsed = time.perf_counter() - started
    connection.close()
    return count / elapsed


async def grouped(folder: Path, writers: int, seconds: float) -> tuple[float, float, float]:
    """Registrations per second, mean size of a group, and CPU microseconds for each."""
    store, groups = SqliteStore(folder / f"with-{writers}"), 0

    def listen(_: object) -> None:
        nonlocal groups
        groups += 1

    await store.open(listen)
    prepared = iter([command(document) for document in corpus.documents(int(seconds * MOST_PER_SECOND))])
    started, cpu, count = time.perf_counter(), time.process_time(), 0

    async def write() -> None:
        nonlocal count
        while time.perf_counter() - started < seconds and (each := next(prepared, None)) is not None:
            await store.execute(each)
            count += 1

    await asyncio.gather(*(write() for _ in range(writers)))
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu
    await store.close()
    return count / elapsed, count / max(groups, 1), cpu / max(count, 1) * 1e6


def main(say: Callable[[str], object] = sys.stdout.write) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk that is to be measured")
    arguments = parser.parse_args()
    sys.setswitchinterval(limits.THREAD_SWITCH_SECONDS)
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="waypost-bench-") as folder:
        rate = bare(Path(folder), arguments.seconds)
        say(f"{'':14}{'writes/s':>10}{'to bare':>9}{'group':>8}{'CPU µs':>8}\n")
        say(f"{'bare SQLite':14}{rate:>10.0f}{1:>9.2f}{1:>8.1f}\n")
        for writers in WRITERS:
            found, size, cpu = asyncio.run(grouped(Path(folder), writers, arguments.seconds))
            say(f"{f'{writers} writers':14}{found:>10.0f}{found / rate:>9.2f}{size:>8.1f}{cpu:>8.0f}\n")


if __name__ == "__main__":
    main()
