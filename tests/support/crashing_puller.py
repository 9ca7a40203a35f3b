"""A registry that follows a peer and is killed at a failpoint: crashing_puller.py DATA URL [POINT TIMES].

Without a failpoint it prints `complete` when it has everything, and ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from support.crashing_writer import Crash, say
from waypost.app import build
from waypost.federation.peers import PeerRequest
from waypost.model.principal import Principal
from waypost.settings import Settings
from waypost.stores.sqlite.store import SqliteStore

ADMIN = Principal(subject="admin", scopes=frozenset(("admin",)))


async def main(data: Path, url: str, crash: Crash) -> None:
    settings = Settings(data=data, embedder="none", health_checks=False, allow_cidrs=("127.0.0.0/8",))
    is_armed = False

    def failpoint(point: str) -> None:
        if is_armed:
            crash(point)

    application = build(settings, store=SqliteStore(data, failpoint=failpoint))
    await application.start()
    if not application.peers.list():
        await application.peers.add(ADMIN, PeerRequest(url=url, name="there"))
    is_armed = True
    while not application.peers.show("there").complete:
        await asyncio.sleep(0.02)
    say("complete")
    await application.stop()


if __name__ == "__main__":
    point, times = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Crash(point, times)))
