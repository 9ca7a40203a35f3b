"""A network in memory: the reference implementation of a transport, with optional faults.

Each message is delivered as bytes, in an event loop callback of its own. Loss, duplication and reordering come from a seeded
generator, so that a failed test can be repeated.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Iterable

from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import AgentQuery, build_query, parse_message
from waypost.transports.directory import AgentDirectory, Subscriber
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.port import QUERY_SECONDS, Ack, MessageHandler, QueryHandler, SightingCallback, TransportClock

_ANY_AGENT = AgentQuery()


class MemoryNetwork:
    """`loss`, `duplication` and `reordering` are probabilities, and may be changed at any time."""

    def __init__(
        self,
        clock: TransportClock,
        *,
        seed: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        reordering: float = 0.0,
    ) -> None:
        self.clock = clock
        self.loss = loss
        self.duplication = duplication
        self.reordering = reordering
        self.sent = 0
        self._random = randomness.Random(seed)
        self._members: dict[str, MemoryTransport] = {}
        self._islands: tuple[frozenset[str], ...] = ()
        self._pending: list[tuple[str, str, bytes]] = []  # from, to, data
        self._tasks: set[asyncio.Task[None]] = set()

    def transport(
        self, address: str, *, name: str = "memory", directory: AgentDirectory | None = None
    ) -> MemoryTransport:
        """A new endpoint. It is connected from `open` to `close`."""
        return MemoryTransport(self, address, name, directory)

    def partition(self, *islands: Iterable[str]) -> None:
        """Split the network: only addresses of the same island reach each other."""
        self._islands = tuple(frozenset(island) for island in islands)

    def heal(self) -> None:
        self._islands = ()

    async def settle(self) -> None:
        """Wait until no message is in flight."""
        while self._pending or self._tasks:  # noqa: ASYNC110 - deliveries are callbacks
            await asyncio.sleep(0)

    def join(self, transport: MemoryTransport) -> None:
        self._members[transport.address] = transport

    def leave(self, transport: MemoryTransport) -> None:
        self._members.pop(transport.address, None)

    def send(self, source: str, message: JsonObject, to: str | None = None) -> None:
        """Send to one address, or to all including the sender."""
        data = dump_json(message)
        for address in (to,) if to is not None else tuple(self._members):
            copies = 0 if self._random.random() < self.loss else 1
            copies += copies and self._random.random() < self.duplication
            for _ in range(copies):
                self._pending.append((source, address, data))
                asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        is_reordered = self._random.random() < self.reordering
        source, to, data = self._pending.pop(self._random.randrange(len(self._pending)) if is_reordered else 0)
        member = self._members.get(to)
        if member is None or not self._reaches(source, to):
            return
        self.sent += 1
        task = asyncio.ensure_future(member.receive(data, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reaches(self, source: str, to: str) -> bool:
        return source == to or not self._islands or any({source, to} <= island for island in self._islands)


class MemoryTransport:
    def __init__(self, network: MemoryNetwork, address: str, name: str, directory: AgentDirectory | None) -> None:
        self.name = name
        self.address = address
        self._network = network
        self._dispatcher = Dispatcher(name, network.clock, randomness.Random(address), directory)

    async def open(self) -> None:
        self._network.join(self)

    async def close(self) -> None:
        self._network.leave(self)
        self._dispatcher.subscriptions.close()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        expires_at = self._dispatcher.local_agents.put(message, ttl, self._network.clock.now())
        self._network.send(self.address, {**message, "ttl": ttl})
        return Ack(True, expires_at)

    async def withdraw(self, agent_id: str) -> None:
        self._dispatcher.local_agents.remove(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        sent = self._dispatcher.begin_query(query)
        self._network.send(self.address, build_query(sent))
        return await self._dispatcher.collect(sent, timeout)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._dispatcher.subscriptions.subscribe(callback, query)
        self._network.send(self.address, build_query(query or _ANY_AGENT))
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        self._dispatcher.serve(on_query, on_message)

    def echoed_at(self) -> float | None:
        return self._dispatcher.echoed_at

    async def receive(self, data: bytes, source: str) -> None:
        for reply in await self._dispatcher.receive(parse_message(data), source):
            self._network.send(self.address, reply, source)
