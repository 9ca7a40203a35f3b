"""A toy transport, added the way a new one would be: this module, and one row in the table of transports.

Its ends are Unix datagram sockets in one folder; a broadcast goes to every socket there.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import AgentQuery, build_query, parse_message
from waypost.settings import Settings
from waypost.transports.directory import AgentDirectory, Subscriber
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.factory import TransportContext, TransportType
from waypost.transports.port import QUERY_SECONDS, Ack, MessageHandler, QueryHandler, SightingCallback, TransportClock

_NUMBERS: Final[Iterator[int]] = count()
_LARGEST_MESSAGE: Final = 1 << 16


class ToyTransport:
    name = "toy"

    def __init__(self, folder: Path, clock: TransportClock, directory: AgentDirectory | None = None) -> None:
        self._folder = folder
        self._path = folder / f"{next(_NUMBERS)}.sock"
        self._clock = clock
        self._dispatcher = Dispatcher(self.name, clock, random.Random(str(self._path)), directory)
        self._socket: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    async def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink()
        self._dispatcher.subscriptions.close()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        expires_at = self._dispatcher.local_agents.put(message, ttl, self._clock.now())
        self._broadcast({**message, "ttl": ttl})
        return Ack(True, expires_at)

    async def withdraw(self, agent_id: str) -> None:
        self._dispatcher.local_agents.remove(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        sent = self._dispatcher.begin_query(query)
        self._broadcast(build_query(sent))
        return await self._dispatcher.collect(sent, timeout)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._dispatcher.subscriptions.subscribe(callback, query)
        self._broadcast(build_query(query or AgentQuery()))
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        self._dispatcher.serve(on_query, on_message)

    def _broadcast(self, message: JsonObject) -> None:
        for path in self._folder.glob("*.sock"):
            self._send(message, str(path))

    def _send(self, message: JsonObject, to: str) -> None:
        if self._socket is not None:
            with suppress(OSError):  # that end is closed, or its queue is full
                self._socket.sendto(dump_json(message), to)

    def _read(self) -> None:
        assert self._socket is not None
        with suppress(BlockingIOError):
            data, source = self._socket.recvfrom(_LARGEST_MESSAGE)
            task = asyncio.ensure_future(self._receive(data, source))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _receive(self, data: bytes, source: str) -> None:
        for reply in await self._dispatcher.receive(parse_message(data), source):
            self._send(reply, source)


def toy_folder(settings: Settings) -> Path:
    return settings.data / "toy"


def _make(settings: Settings, context: TransportContext) -> ToyTransport:
    return ToyTransport(toy_folder(settings), context.clock, context.make_directory("toy"))


ROW: Final = TransportType(make=_make, is_enabled=lambda settings: toy_folder(settings).is_dir(), is_lan=True)
