"""Conversations without a network: two ends of a link, parties with keys, chance that repeats itself."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

from waypost.meeting.conversation import Conversation, Timing
from waypost.meeting.correspondent import Correspondent
from waypost.meeting.link import LinkLost
from waypost.meeting.mail import Letter
from waypost.meeting.peers import GivenKeys
from waypost.net.clock import ManualClock
from waypost.stores.keeper_memory import MemoryKeeper
from waypost.trust.signing import PrivateKey, new_key
from waypost.wire.agp import Content
from waypost.wire.agp_hello import Party

WAIT_SECONDS = 30.0
ALICE, BOB, CAROL = "agent:alice.example.com", "agent:bob.example.com", "agent:carol.example.com"


class SeededDraws:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def message_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def nonce(self) -> bytes:
        return self._random.randbytes(24)


def key_of(agent: str) -> PrivateKey:
    return new_key("ed25519", random.Random(agent).randbytes(32))


def party(agent: str, key: PrivateKey | None = None) -> Party:
    key = key or key_of(agent)
    return Party(agent=agent, key=key, fingerprint=key.public.fingerprint() or "", raw=key.public.raw or b"")


def known(*agents: str) -> GivenKeys:
    return GivenKeys({agent: key_of(agent).public.fingerprint() or "" for agent in agents})


class MemoryLink:
    """One end. `most`: frames that wait on the other side before `send` waits."""

    def __init__(self, most: int = 64) -> None:
        self.frames: asyncio.Queue[str | bytes | LinkLost] = asyncio.Queue(most)
        self.other: MemoryLink
        self.closed: tuple[int, str] | None = None
        self.sent: list[str] = []

    async def send(self, frame: str) -> None:
        if self.closed is not None:
            raise LinkLost(*self.closed)
        self.sent.append(frame)
        await self.other.frames.put(frame)

    async def receive(self) -> str | bytes:
        frame = await self.frames.get()
        if isinstance(frame, LinkLost):
            raise frame
        return frame

    async def close(self, code: int, reason: str) -> None:
        for end in (self, self.other):
            if end.closed is None:
                end.closed = (code, reason)
                while end.frames.full():
                    end.frames.get_nowait()
                end.frames.put_nowait(LinkLost(code, reason))

    def cut(self) -> None:
        """As if a cable were."""
        for end in (self, self.other):
            if end.closed is None:
                end.closed = (1006, "")
                while not end.frames.empty():
                    end.frames.get_nowait()
                end.frames.put_nowait(LinkLost())


def pair(most: int = 64) -> tuple[MemoryLink, MemoryLink]:
    one, two = MemoryLink(most), MemoryLink(most)
    one.other, two.other = two, one
    return one, two


async def echo(letter: Letter, conversation: Conversation | None) -> AsyncIterator[Content]:
    yield Content(text=f"echo: {letter.content.text}")


async def correspondent(agent: str, *peers: str, keeper: MemoryKeeper | None = None, **named: Any) -> Correspondent:
    keeper = keeper or MemoryKeeper()
    await keeper.open()
    clock = named.pop("clock", None) or ManualClock()
    return Correspondent(
        party(agent), keeper, known(*peers), clock, SeededDraws(hash(agent) & 0xFFFF), **{"timing": Timing(), **named}
    )


class Meeting:
    """Two correspondents on one link. Use as `async with`."""

    def __init__(self, caller: Correspondent, answerer: Correspondent, most: int = 64) -> None:
        self.caller, self.answerer = caller, answerer
        self.ends = pair(most)
        self.outcomes: list[BaseException | None] = []

    async def __aenter__(self) -> Meeting:
        near, far = self.ends
        opened = asyncio.Event()
        both = 2

        async def count(_: Conversation) -> None:
            nonlocal both
            both -= 1
            if not both:
                opened.set()

        self._tasks = [
            asyncio.create_task(self.caller.converse(near, peer=self.answerer.me.agent, opened=count)),
            asyncio.create_task(self.answerer.converse(far, opened=count)),
        ]
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait([*self._tasks, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_SECONDS)
        waiting.cancel()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ends[0].cut()
        await self.ended()

    async def ended(self) -> list[BaseException | None]:
        async with asyncio.timeout(WAIT_SECONDS):
            self.outcomes = list(await asyncio.gather(*self._tasks, return_exceptions=True))
        return self.outcomes


async def text_of(asking: AsyncIterator[Letter]) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        return "".join([part.content.text async for part in asking])
