"""An agent in a separate process, which tests kill.

    python -m support.agp_process echo  FOLDER REGISTRY
    python -m support.agp_process ask   FOLDER REGISTRY COUNT
    python -m support.agp_process listen FOLDER

`echo` connects to the registry and answers; `ask` sends it COUNT questions through the registry, some at a time, and resumes
after a kill; `listen` accepts connections and prints its address. Each received message is appended to a file and flushed
before the handler returns.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from support.agp import ALICE, BOB, key_of
from waypost.client.chat import ChatMessage
from waypost.client.peer_connection import PeerConnectionEvent
from waypost.errors import WaypostError
from waypost.live import LiveAgent

AT_ONCE = 8


class Log:
    """Append lines to a file, each flushed."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._lines = path.read_text().splitlines()
        self._file = path.open("a")
        self.news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: str, *, unless_there: bool = False) -> None:
        if unless_there and line in self._lines:
            return
        self._lines.append(line)
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.news.set()


def live(agent: str, folder: Path, registry: str | None) -> LiveAgent:
    def told(news: PeerConnectionEvent) -> None:
        print(news.event, news.peer, news.reason, file=sys.stderr, flush=True)

    return LiveAgent(agent, key_of(agent), data=folder, registry=registry, token=os.environ.get("TOKEN"), news=told)


async def echo(folder: Path, registry: str) -> None:
    agent, heard = live(BOB, folder, registry), Log(folder / "heard.log")

    @agent.on_chat
    async def answer(message: ChatMessage) -> str:
        heard.add(message.id, unless_there=message.again)
        return f"echo: {message.text}"

    async with agent:
        while True:
            try:
                await agent.attach()
                break
            except WaypostError as error:  # the registry may be away just now
                print("not attached:", error, file=sys.stderr, flush=True)
                await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.Event().wait()


async def ask(folder: Path, registry: str, count: int) -> None:
    agent = live(ALICE, folder, registry)
    posted, replies = Log(folder / "posted.log"), Log(folder / "replies.log")

    @agent.on_reply
    async def note(message: ChatMessage) -> None:
        replies.add(str(message.reply_to), unless_there=message.again)

    async with agent:
        print("ready", flush=True)
        while len(posted) < count:
            while len(posted) - len(replies) >= AT_ONCE:
                replies.news.clear()
                await replies.news.wait()
            posted.add(await agent.send(BOB, f"question {len(posted)}"))
        await asyncio.Event().wait()


async def listen(folder: Path) -> None:
    agent = live(BOB, folder, None)
    agent.knows(ALICE, fingerprint=key_of(ALICE).public.fingerprint())

    @agent.on_chat
    async def answer(message: ChatMessage) -> str:
        return f"echo: {message.text}"

    async with agent:
        print(await agent.listen(), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    role, folder, *rest = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    if role == "echo":
        asyncio.run(echo(Path(folder), rest[0]))
    elif role == "ask":
        asyncio.run(ask(Path(folder), rest[0], int(rest[1])))
    else:
        asyncio.run(listen(Path(folder)))


if __name__ == "__main__":
    main()
