"""What is sent leaves whole, in order and soon; answers that are made in quick succession leave together."""

from __future__ import annotations

import asyncio

from waypost import limits
from waypost.server.http.outgoing import Departures, Outgoing, departures_of


class Transport(asyncio.Transport):
    """Notes what is written to any of them, in one list."""

    def __init__(self, name: str, sent: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._name = name
        self._sent = sent
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise RuntimeError("the handler is closed")
        self._sent.append((self._name, bytes(data)))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True


class Lines:
    """Some connections of one loop, and a clock that stands still."""

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.sent: list[tuple[str, bytes]] = []
        departures = Departures(asyncio.get_running_loop(), lambda: self.now)
        self.transports = {name: Transport(name, self.sent) for name in names}
        self.lines = {name: Outgoing(transport, departures) for name, transport in self.transports.items()}

    def answer(self, name: str, data: bytes = b"answer") -> None:
        self.lines[name].write_whole(data)


async def test_the_first_answer_after_a_while_leaves_at_once_and_those_behind_it_together() -> None:
    lines = Lines("a", "b", "c")
    lines.answer("a")
    assert lines.sent == [("a", b"answer")]
    for name in ("b", "c"):
        lines.now += limits.DEPARTURE_SECONDS / 4
        lines.answer(name)
    assert len(lines.sent) == 1
    await asyncio.sleep(0)
    assert lines.sent == [(name, b"answer") for name in "abc"]


async def test_nobody_waits_for_long() -> None:
    """Of answers that take their time each leaves when it is made; and those that wait go when one took longer."""
    lines = Lines(*"abcd")
    for number, name in enumerate("abcd", start=1):
        lines.now += 2 * limits.DEPARTURE_SECONDS
        lines.answer(name)
        assert len(lines.sent) == number
    lines.answer("a", b"quick")
    assert len(lines.sent) == 4
    lines.now += 2 * limits.DEPARTURE_SECONDS
    lines.answer("b", b"slow")
    assert lines.sent[4:] == [("a", b"quick"), ("b", b"slow")]


async def test_parts_and_answers_of_a_connection_leave_in_their_order() -> None:
    lines = Lines("a", "b")
    line = lines.lines["a"]
    line.write(b"head ")
    line.write(b"body ")
    lines.answer("b")
    lines.answer("a", b"next ")
    assert lines.sent == []
    line.write(b"last")
    await asyncio.sleep(0)
    assert lines.sent == [("a", b"head body next last"), ("b", b"answer")]
    line.write(b"again")
    await asyncio.sleep(0)
    assert lines.sent[2:] == [("a", b"again")]


async def test_no_more_is_held_back_than_is_allowed() -> None:
    lines = Lines("a")
    line = lines.lines["a"]
    line.write(b"small ")
    line.write_whole(b"x" * limits.OUTGOING_BYTES)
    assert lines.sent == [("a", b"small " + b"x" * limits.OUTGOING_BYTES)]
    line.write(b"y" * (limits.OUTGOING_BYTES + 1))
    assert len(lines.sent) == 2


async def test_whoever_is_gone_keeps_nothing_from_the_others() -> None:
    lines = Lines("a", "b", "c")
    for name in "abc":
        lines.lines[name].write(b"part")
    lines.transports["b"].close()
    await asyncio.sleep(0)
    assert lines.sent == [("a", b"part"), ("c", b"part")]


async def test_what_waits_leaves_before_a_connection_is_closed() -> None:
    lines = Lines("a")
    lines.lines["a"].write(b"last words")
    lines.lines["a"].close()
    assert lines.sent == [("a", b"last words")]
    assert lines.lines["a"].is_closing()


async def test_the_connections_of_a_loop_leave_together() -> None:
    loop = asyncio.get_running_loop()
    assert departures_of(loop) is departures_of(loop)
