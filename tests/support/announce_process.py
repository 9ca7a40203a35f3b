"""One end of the announce protocol in a separate process, controlled by JSON lines on stdin and stdout:

    python announce_process.py '{"interface": "eth0", "udp_port": 49353, "service": "…", "bus": "nats://…", "registry": "http://…"}'

It opens a transport for each given name and subscribes to all of them, on a manual clock. `End` is the interface for tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from waypost.client.registry_transport import pointer_fetcher, pointer_url, registry_transport
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.settings import load_connection_settings
from waypost.transports.bus import BusTransport
from waypost.transports.mdns.transport import MdnsTransport
from waypost.transports.port import Sighting, Transport
from waypost.transports.udp import UdpTransport

PATIENCE_SECONDS = 90.0


class MovedClock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


def make_transports(told: dict[str, Any], clock: MovedClock) -> dict[str, Transport]:
    url, token = told["registry"], told.get("token")
    address = load_connection_settings({"server": url, "token": token})
    return {
        "udp": UdpTransport([told["interface"]], clock, port=told["udp_port"]),
        "mdns": MdnsTransport(
            [told["interface"]], clock, pointer=pointer_url(address), fetch=pointer_fetcher([address])
        ),
        "bus": BusTransport(told["bus"], clock),
        "http": registry_transport(url, token, clock=clock),
        "ws": registry_transport(url.replace("http", "ws", 1), token, clock=clock),
    }


class Worker:
    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._clock = MovedClock()
        self._transports = make_transports(told, self._clock)
        self._seen: list[dict[str, Any]] = []

    async def run(self) -> None:
        for transport in self._transports.values():
            await transport.open()
            await transport.subscribe(self._take)
        _print({"ready": True})
        lines = asyncio.StreamReader(limit=1 << 20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            asked = json.loads(line)
            _print(await getattr(self, f"do_{asked.pop('do')}")(**asked))
        for transport in self._transports.values():
            await transport.close()

    def _take(self, sighting: Sighting) -> None:
        message = sighting.message or {}
        told = {"on": sighting.transport, "kind": sighting.kind, "id": sighting.agent_id, "at": sighting.at}
        self._seen.append({**told, "agent": message.get("agent"), "source": sighting.source})

    async def do_announce(self, on: str, message: dict[str, Any], ttl: int) -> dict[str, Any]:
        ack = await self._transports[on].announce(message, ttl)
        return {"accepted": ack.accepted, "reason": ack.reason, "expires_at": ack.expires_at}

    async def do_query(
        self, on: str, capability: str = "*", agent_id: str | None = None, seconds: float = 1.0
    ) -> list[dict[str, Any]]:
        query = AgentQuery(requirements=(parse_capability_requirement(capability),), agent_id=agent_id)
        return await self._transports[on].query(query, seconds)

    async def do_seen(self) -> list[dict[str, Any]]:
        return self._seen

    async def do_advance(self, seconds: float) -> float:
        self._clock.ahead += seconds
        return self._clock.ahead

    async def do_exchange(self, data: str, to: str, seconds: float) -> list[str]:
        """Send one datagram from a new socket, and return the replies."""
        loop = asyncio.get_running_loop()
        back: list[str] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            own.sendto(data.encode(), (to, self._told["udp_port"]))
            try:
                async with asyncio.timeout(seconds):
                    back.append((await loop.sock_recv(own, 65535)).decode())
            except TimeoutError:
                pass
        return back


def _print(value: Any) -> None:
    print(json.dumps(value), flush=True)


class End:
    """Controls such a process from a test."""

    def __init__(self, before: Sequence[str], told: dict[str, Any], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*before, sys.executable, str(Path(__file__)), json.dumps(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._log = log
        self._rest = b""

    def ready(self) -> None:
        assert self._line() == {"ready": True}

    def __call__(self, do: str, **members: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **members}).encode() + b"\n")
        self._process.stdin.flush()
        return self._line()

    def announce(self, on: str, message: dict[str, Any], ttl: int = 60) -> bool:
        return bool(self("announce", on=on, message=message, ttl=ttl)["accepted"])

    def kinds(self, agent_id: str, on: str | None = None) -> list[str]:
        return [each["kind"] for each in self("seen") if each["id"] == agent_id and on in (None, each["on"])]

    def kill(self) -> None:
        """Kill without cleanup, like a power failure."""
        self._process.kill()
        self._process.wait(60)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(60)
        self._process.stdout.close()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                assert selector.select(max(0.0, deadline - time.monotonic())), self._log.read_text()
                data = os.read(self._process.stdout.fileno(), 1 << 20)
                assert data, self._log.read_text()
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


if __name__ == "__main__":
    asyncio.run(Worker(json.loads(sys.argv[1])).run())
