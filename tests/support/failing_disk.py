"""A process that writes until its disk fails, and then prints what it can still read: python -m support.failing_disk DATA"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from support.store_commands import Listener, everything, make_registration, put
from waypost.errors import WaypostError
from waypost.stores.sqlite.store import SqliteStore

MOST = 500


def say(*words: object) -> None:
    print(*words, flush=True)


async def write(store: SqliteStore, number: int) -> bool:
    try:
        await store.execute(put(make_registration(f"agent-{number}")))
    except WaypostError as error:
        say("refused", type(error).__name__)
        return False
    say("done", f"agent-{number}")
    return True


async def main(data: Path) -> None:
    store, listener = SqliteStore(data), Listener()
    await store.open(listener)
    number = 0
    while number < MOST and await write(store, number):
        number += 1
    say("told", len(listener.revisions))
    for again in range(number, number + 3):
        await write(store, again)
    say("healthy", await store.healthy())
    say("read", len(await everything(store)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
