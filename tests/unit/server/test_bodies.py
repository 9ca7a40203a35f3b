"""What the bodies of many requests may take together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from waypost import limits
from waypost.errors import TooLarge, TooSlow, Unavailable
from waypost.server.http.asgi import BodyMemory, Message, Request

PART = limits.DOCUMENT_BYTES // 2


class SlowBody:
    """A body that stops after its first part."""

    def __init__(self, part: bytes) -> None:
        self._part: bytes | None = part
        self.is_waited_for = asyncio.Event()

    async def receive(self) -> Message:
        if self._part is None:
            self.is_waited_for.set()
            await asyncio.Event().wait()
        part, self._part = self._part, None
        return {"type": "http.request", "body": part, "more_body": True}

    def request(self, memory: BodyMemory) -> Request:
        return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, self.receive, memory)


@pytest.fixture
def memory() -> BodyMemory:
    return BodyMemory()


def whole(size: int, memory: BodyMemory) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, memory)


@asynccontextmanager
async def slow_bodies(count: int, size: int, memory: BodyMemory) -> AsyncIterator[None]:
    bodies = [SlowBody(b"x" * size) for _ in range(count)]
    reading = [asyncio.create_task(body.request(memory).body()) for body in bodies]
    try:
        async with asyncio.timeout(20):
            for body in bodies:
                await body.is_waited_for.wait()
        yield
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def test_bodies_that_are_being_received_are_bounded_together(memory: BodyMemory) -> None:
    most = limits.INCOMPLETE_BODIES_BYTES // PART
    async with slow_bodies(most, PART, memory):
        refused = SlowBody(b"x" * PART).request(memory)
        with pytest.raises(Unavailable) as raised:
            await refused.body()
        assert raised.value.retry_after
        assert refused.has_unread_body, "its connection cannot be used again"
        assert len(await whole(limits.DOCUMENT_BYTES, memory).body()) == limits.DOCUMENT_BYTES
        async with slow_bodies(20, limits.UNCOUNTED_BODY_BYTES, memory):
            pass
    async with slow_bodies(most, PART, memory):
        pass


async def test_a_body_that_is_too_long_or_given_up_no_longer_counts(memory: BodyMemory) -> None:
    for _ in range(3):
        async with slow_bodies(limits.INCOMPLETE_BODIES_BYTES // PART, PART, memory):
            pass
        for _ in range(200):
            with pytest.raises(TooLarge):
                await SlowBody(b"x" * PART).request(memory).body(PART - 1)


async def test_a_body_that_comes_byte_by_byte_is_refused_in_time(
    memory: BodyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is for the whole body, however often a part of it comes."""
    monkeypatch.setattr(limits, "BODY_READ_SECONDS", 0.2)

    async def receive() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, memory)
    async with asyncio.timeout(20):
        with pytest.raises(TooSlow):
            await request.body()


async def test_few_rejected_bodies_are_read_at_the_same_time(memory: BodyMemory) -> None:
    bodies = [SlowBody(b"x") for _ in range(limits.DRAINED_BODIES + 10)]
    draining = []
    for body in bodies:
        request = body.request(memory)
        request.has_unread_body = True
        draining.append(asyncio.create_task(request.drain()))
    async with asyncio.timeout(20):
        for task in draining[limits.DRAINED_BODIES :]:
            await task
    assert not any(task.done() for task in draining[: limits.DRAINED_BODIES])
    for task in draining:
        task.cancel()
    await asyncio.gather(*draining, return_exceptions=True)
