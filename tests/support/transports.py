"""Test beds for the transport contract: each creates connected ends of one transport on a manual clock."""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from support.announce import announcement, key
from support.bus import nats_server
from support.netns import own_loopback
from support.ports import free_port
from support.toy_transport import ToyTransport
from waypost.app import build
from waypost.model.json import JsonObject
from waypost.net.clock import ManualClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.server.http.server import HttpServer, bind_socket
from waypost.settings import Settings
from waypost.transports.bus import BusTransport
from waypost.transports.http import HttpTransport
from waypost.transports.mdns.transport import MdnsTransport
from waypost.transports.memory import MemoryNetwork
from waypost.transports.port import Sighting, Transport
from waypost.transports.udp import UdpTransport
from waypost.transports.websocket import WebSocketTransport

A = "3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d"
B = "7b0c6a52-41f1-4c66-9a0e-0f5d2ce0a511"
C = "d2b7c9a4-92a4-4b8e-8a53-1c6f0f6a7e22"
PATIENCE_SECONDS = 60.0


class Bed:
    """Ends of one network. `make` returns the transport of a name, not yet open."""

    def __init__(self, clock: ManualClock, make: Callable[[str], Transport], *, relays: bool = True) -> None:
        self.clock = clock
        self.relays = relays  # an end that serves can answer for agents that it did not announce
        self._make = make
        self._open: list[Transport] = []

    async def open(self, name: str) -> Transport:
        transport = self._make(name)
        await transport.open()
        self._open.append(transport)
        return transport

    async def close(self) -> None:
        for transport in reversed(self._open):
            await transport.close()

    def message(self, agent_id: str = A, **members: Any) -> JsonObject:
        """A message signed now, with an increasing sequence number."""
        return signed(self.clock, agent_id, **members)


def signed(clock: ManualClock, agent_id: str = A, *, signer: str = "", **members: Any) -> JsonObject:
    now = clock.now()
    _Sequence.last = max(_Sequence.last + 1, int(now * 1000) - 100_000)
    return announcement(key(signer or agent_id), seq=_Sequence.last, at=now, agent_id=agent_id, **members)


class _Sequence:
    last = 0


class Watched:
    """Records the callbacks of a subscription."""

    def __init__(self) -> None:
        self.sightings: list[Sighting] = []

    def __call__(self, sighting: Sighting) -> None:
        self.sightings.append(sighting)

    def kinds(self, agent_id: str = A) -> list[str]:
        return [each.kind for each in self.sightings if each.agent_id == agent_id]


async def eventually(holds: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def query_until_found(
    end: Transport, query: AgentQuery, wanted: set[str], seconds: float = 1.0
) -> list[JsonObject]:
    """The result of a query, repeated while an expected agent is missing: a busy machine is slow."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = await end.query(query, timeout=seconds)
        if wanted <= {message["agent"]["agent_id"] for message in found} or time.monotonic() > deadline:
            return found


async def wait_for_nothing(seconds: float = 0.4) -> None:
    """Wait long enough for an unwanted event to happen."""
    await asyncio.sleep(seconds)


def signed_members(message: JsonObject | None) -> JsonObject:
    """A message without the unsigned members that a transport may add (ANN-8)."""
    assert message is not None
    return {name: value for name, value in message.items() if name not in ("ttl", "matched", "query_id")}


@asynccontextmanager
async def memory_bed() -> AsyncIterator[Bed]:
    clock = ManualClock(time.time())
    network = MemoryNetwork(clock)
    bed = Bed(clock, network.transport)
    try:
        yield bed
    finally:
        await bed.close()


@asynccontextmanager
async def udp_bed() -> AsyncIterator[Bed]:
    """Broadcast on the loopback interface, on a free port."""
    clock = ManualClock(time.time())
    port = free_port()
    bed = Bed(clock, lambda name: UdpTransport(["lo"], clock, port=port, random=random.Random(name)))
    try:
        yield bed
    finally:
        await bed.close()


@asynccontextmanager
async def mdns_bed() -> AsyncIterator[Bed]:
    """Multicast on a private loopback interface, or under a private service type if there is none."""
    clock = ManualClock(time.time())
    service = f"_wp-{secrets.token_hex(4)}._tcp.local."
    bed = Bed(
        clock, lambda name: MdnsTransport(["lo"], clock, service=service, random=random.Random(name)), relays=False
    )
    with own_loopback():
        try:
            yield bed
        finally:
            await bed.close()


@asynccontextmanager
async def bus_bed() -> AsyncIterator[Bed]:
    """A private NATS server."""
    clock = ManualClock(time.time())
    with nats_server() as server:
        bed = Bed(clock, lambda name: BusTransport(server.url, clock, random=random.Random(name)))
        try:
            yield bed
        finally:
            await bed.close()


@asynccontextmanager
async def registry_bed(make: Callable[[str, ManualClock], Transport]) -> AsyncIterator[Bed]:
    """Clients of one registry in this process, on a real socket and a manual clock. `make` gets its URL."""
    clock = ManualClock(time.time())
    with tempfile.TemporaryDirectory(prefix="waypost-test-") as folder:
        settings = Settings(
            data=Path(folder), store="memory", embedder="none", open=True, trust_mode="tofu", health_checks=False
        )
        bound = bind_socket("127.0.0.1", 0)
        application = build(settings, clock=clock, port=bound.getsockname()[1])
        await application.start()
        started = asyncio.Event()
        server = HttpServer(application.app, on_start=started.set, on_exit=application.make_exit_handler(), signals=())
        serving = asyncio.ensure_future(server.serve(sockets=[bound]))
        await started.wait()
        url = application.base_url
        bed = Bed(clock, lambda name: make(url, clock), relays=False)
        try:
            yield bed
        finally:
            await bed.close()
            application.make_exit_handler()()
            server.should_exit = True
            await serving
            await application.stop()


@asynccontextmanager
async def toy_bed() -> AsyncIterator[Bed]:
    clock = ManualClock(time.time())
    with tempfile.TemporaryDirectory(prefix="waypost-test-") as folder:
        bed = Bed(clock, lambda name: ToyTransport(Path(folder), clock))
        try:
            yield bed
        finally:
            await bed.close()


def http_bed() -> AbstractAsyncContextManager[Bed]:
    return registry_bed(
        lambda url, clock: HttpTransport(httpx2.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS), clock)
    )


def socket_bed() -> AbstractAsyncContextManager[Bed]:
    return registry_bed(lambda url, clock: WebSocketTransport(url, clock, random=random.Random(url)))


BEDS: dict[str, Callable[[], AbstractAsyncContextManager[Bed]]] = {
    "bus": bus_bed,
    "http": http_bed,
    "memory": memory_bed,
    "mdns": mdns_bed,
    "toy": toy_bed,
    "udp": udp_bed,
    "ws": socket_bed,
}
