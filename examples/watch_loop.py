"""React when an agent appears that fits a task: a standing query.

Start: scripts/serve, then python examples/watch_loop.py

The loop survives a restart of the service. A program that must miss nothing stores `change.cursor` and starts from it.
"""

import asyncio

from waypost import Agent, Client
from waypost.errors import CursorTooOld

TASK = "water the plants while nobody is at home"


async def watch(waypost: Client, cursor: str | None, seen: asyncio.Event) -> None:
    while True:
        try:
            async for change in waypost.watch(cursor, query=TASK, min_match="possible", include_agent=True):
                cursor = change.cursor
                if change.type == "withdrawn":
                    print(f"{change.id} is gone")
                    return
                print(f"{change.type}: {change.id} is a {change.match} match")
                seen.set()
        except CursorTooOld:  # the log no longer reaches back so far: list the agents, then watch from now on
            cursor = None


async def publish(waypost: Client, seen: asyncio.Event) -> None:
    """Somebody else, who registers two agents and withdraws them later."""
    await waypost.register(
        Agent("sprinkler", "Sprinkler", "Waters plants while you are away.").bind("https", "https://garden.example/")
    )
    await waypost.register(
        Agent("stock-ticker", "Stock Ticker", "Prices of shares.").bind("https", "https://stocks.example/")
    )
    await seen.wait()
    await waypost.withdraw("stock-ticker")
    await waypost.withdraw("sprinkler")


async def main() -> None:
    async with Client() as waypost, asyncio.timeout(60):
        seen = asyncio.Event()
        loop = asyncio.create_task(watch(waypost, "0", seen))  # from the oldest change that is kept
        await publish(waypost, seen)
        await loop


if __name__ == "__main__":
    asyncio.run(main())
