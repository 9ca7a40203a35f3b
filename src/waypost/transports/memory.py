"""A network in memory: the reference of what a transport does, with the faults of a real one to be switched on.

Messages cross it as bytes, one call of the event loop each. Loss, duplicates and disorder are drawn from a seed, so that a
test that failed fails again.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Iterable

from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.messages import AgentQuery, build_query, parse_message
from waypost.transports.directory import AgentDirectory
from waypost.transports.dispatcher import Dispatcher
from waypost.transports.port import QUERY_SECONDS, Ack, MessageHandler, QueryHandler, SightingCallback, TransportClock
from waypost.transports.subscriptions import Subscriber

EVERYBODY = AgentQuery()


class MemoryNetwork:
    """Where transports meet. `loss`, `duplication` and `reordering` are chances from 0 to 1, and may be changed at any time."""

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
        self._working: set[asyncio.Task[None]] = set()

    def transport(
        self, address: str, *, name: str = "memory", directory: AgentDirectory | None = None
    ) -> MemoryTransport:
        """A new end of the network; it takes part from `open` to `close`."""
        return MemoryTransport(self, address, name, directory)

    def partition(self, *islands: Iterable[str]) -> None:
        """Addresses of different islands no longer reach each other; those that are named nowhere reach nobody."""
        self._islands = tuple(frozenset(island) for island in islands)

    def heal(self) -> None:
        self._islands = ()

    async def settle(self) -> None:
        """Until nothing is on its way any more."""
        while self._pending or self._working:
            turn = asyncio.Event()
            asyncio.get_running_loop().call_soon(turn.set)
            await turn.wait()

    # --- For the transports ----------------------------------------------------------------------

    def join(self, transport: MemoryTransport) -> None:
        self._members[transport.address] = transport

    def leave(self, transport: MemoryTransport) -> None:
        self._members.pop(transport.address, None)

    def send(self, source: str, message: JsonObject, to: str | None = None) -> None:
        """To one address, or to all of them, the sender included."""
        data = dump_json(message)
        for address in (to,) if to is not None else tuple(self._members):
            copies = 0 if self._random.random() < self.loss else 1
            copies += copies and self._random.random() < self.duplication
            for _ in range(copies):
                self._pending.append((source, address, data))
                asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        jumps = self._random.random() < self.reordering
        source, to, data = self._pending.pop(self._random.randrange(len(self._pending)) if jumps else 0)
        member = self._members.get(to)
        if member is None or not self._reaches(source, to):
            return
        self.sent += 1
        task = asyncio.ensure_future(member.receive(data, source))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _reaches(self, source: str, to: str) -> bool:
        return source == to or not self._islands or any({source, to} <= island for island in self._islands)


class MemoryTransport:
    def __init__(self, network: MemoryNetwork, address: str, name: str, directory: AgentDirectory | None) -> None:
        self.name = name
        self.address = address
        self._network = network
        self._station = Dispatcher(name, network.clock, randomness.Random(address), directory)

    async def open(self) -> None:
        self._network.join(self)

    async def close(self) -> None:
        self._network.leave(self)
        self._station.listening.close()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        until = self._station.own.put(message, ttl, self._network.clock.now())
        self._network.send(self.address, {**message, "ttl": ttl})
        return Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._station.own.drop(agent_id)

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        asked = self._station.ask(query)
        self._network.send(self.address, build_query(asked))
        return await self._station.collect(asked, timeout)

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._station.listening.subscribe(callback, query)
        self._network.send(self.address, build_query(query or EVERYBODY))
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        self._station.serve(answer, heard)

    def echoed_at(self) -> float | None:
        return self._station.echoed_at

    async def receive(self, data: bytes, source: str) -> None:
        for reply in await self._station.receive(parse_message(data), source):
            self._network.send(self.address, reply, source)
