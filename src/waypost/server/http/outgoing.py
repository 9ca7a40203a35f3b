"""What a connection sends, gathered: the head of an answer and its body leave in one call to the system, not in two; and answers
that are made in quick succession leave together.

Such a call costs as much as finding the answer. Each also wakes the client, where that is on the same machine and asleep: of
eight answers that leave one behind the other, seven find it awake. It stands where uvicorn keeps its transport, and knows
nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from typing import Any

from waypost import limits


class Departures:
    """The connections of a loop that have something to send, until the loop goes on to others. Where answers take long each
    leaves when it is made: so none waits for longer than a quick one takes, and the one that is being made."""

    __slots__ = ("_before", "_began", "_clock", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.perf_counter) -> None:
        self._loop = loop
        self._clock = clock
        self._waiting: list[Outgoing] = []
        self._began = 0.0  # when the first of those who wait came
        self._before = 0.0  # when the last answer was made

    def leave(self, outgoing: Outgoing) -> None:
        """With others, or at once."""
        now = self._clock()
        since, self._before = now - self._before, now
        if self._waiting:
            self._waiting.append(outgoing)
            if now - self._began > limits.DEPARTURE_SECONDS:
                self._go()
        elif since > limits.DEPARTURE_SECONDS:
            outgoing.send()
        else:
            self.plan(outgoing)

    def plan(self, outgoing: Outgoing) -> None:
        """When the loop goes on to others."""
        self._waiting.append(outgoing)
        if len(self._waiting) == 1:
            self._began = self._clock()
            self._loop.call_soon(self._go)

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for outgoing in waiting:
            outgoing.send()


_departures: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Departures] = weakref.WeakKeyDictionary()


def departures_of(loop: asyncio.AbstractEventLoop) -> Departures:
    found = _departures.get(loop)
    if found is None:
        found = _departures[loop] = Departures(loop)
    return found


class Outgoing:
    """A transport that holds back what is written until the loop goes on to others: whoever streams is not held up. Never more
    than `OUTGOING_BYTES`: beyond it the transport says when it has enough."""

    __slots__ = ("_departures", "_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, departures: Departures) -> None:
        self._transport = transport
        self._departures = departures
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """A part of what is to be sent."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > limits.OUTGOING_BYTES:
            self.send()
        elif len(self._parts) == 1:
            self._departures.plan(self)

    def write_whole(self, data: bytes) -> None:
        """An answer that is all there."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > limits.OUTGOING_BYTES:
            self.send()
        else:
            self._departures.leave(self)

    def send(self) -> None:
        """To whoever is still there."""
        parts = self._parts
        if parts:
            self._parts, self._size = [], 0
            if not self._transport.is_closing():
                self._transport.write(b"".join(parts) if len(parts) > 1 else parts[0])

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.send()
        self._transport.close()
