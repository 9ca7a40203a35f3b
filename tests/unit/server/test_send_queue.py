"""The send queue of an announce session with a slow peer (THREATS W6)."""

from __future__ import annotations

import asyncio

import pytest

from waypost import limits
from waypost.server.api.announce.websocket import SendQueue, SessionClosed
from waypost.server.http.asgi import Message


class Reader:
    """A peer that accepts frames only when it is allowed to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.may = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self.may.wait()
        self.taken.append(message["bytes"])


async def fill(outbox: SendQueue, data: bytes) -> tuple[int, SessionClosed]:
    """The number of frames that fit into the queue, and the error that ends the session."""
    count = 0
    while True:
        try:
            await outbox.put(data, "s", f"c{count}")
        except SessionClosed as told:
            return count, told
        count += 1


@pytest.mark.parametrize(
    ("size", "most"),
    [(10, limits.SOCKET_QUEUE_MESSAGES), (64 * 1024, limits.SOCKET_QUEUE_BYTES // (64 * 1024))],
)
async def test_a_stalled_reader_holds_back_a_bounded_number_of_messages(size: int, most: int) -> None:
    outbox, reader = SendQueue(stall_seconds=0.05), Reader()
    outbox.sent["s"] = "start"
    draining = asyncio.create_task(outbox.drain(reader.send))
    count, told = await fill(outbox, b"x" * size)
    assert count <= most + 1
    assert (told.code, told.reason) == (1013, "too slow; cursor=start")
    reader.may.set()
    await outbox.flush(5.0)
    assert outbox.sent["s"] != "start"
    draining.cancel()


async def test_queued_messages_are_sent_in_order_and_the_cursor_follows() -> None:
    outbox, reader = SendQueue(), Reader()
    reader.may.set()
    draining = asyncio.create_task(outbox.drain(reader.send))
    said = [str(number).encode() for number in range(3 * limits.SOCKET_QUEUE_MESSAGES)]
    for number, data in enumerate(said):
        await outbox.put(data, "s", f"c{number}")
    await outbox.flush(5.0)
    assert reader.taken == said
    assert outbox.sent == {"s": f"c{len(said) - 1}"}
    draining.cancel()
