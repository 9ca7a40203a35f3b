"""A thousand agents on one LAN: the time until a listener knows all of them, and the cost.

The LAN is the loopback interface, with hosts as processes that speak from addresses of their own. The reference is a bare
zeroconf: as many services with a TXT record of the same size, registered and browsed as its documentation shows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import psutil
from zeroconf import ServiceInfo, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.protocols.announce.packets import write_txt_message
from waypost.transports.directory import AgentDirectory
from waypost.transports.mdns.transport import MdnsTransport
from waypost.transports.port import Sighting
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import new_private_key

HOSTS = 4
TTL_SECONDS = 10
PATIENCE_SECONDS = 20.0  # whoever is not known then is told as missing
WINDOW_SECONDS = 11.0  # in which packets and processor time are counted: more than a ttl, so that repeats are in it
_GROUP, _PORT = "224.0.0.251", 5353


def message(number: int) -> JsonObject:
    now = time.time()
    agent: JsonObject = {
        "agent_id": str(uuid.uuid4()),
        "agent_name": f"agent-{number}",
        "capabilities": {"metrics": "2.0", "logs": "1.1"},
        "transport": {"type": "tcp", "endpoint": f"10.0.0.12:{9000 + number}"},
        "metadata": {"__seq": int(now * 1000), "__iat": to_rfc3339(now)},
    }
    return sign_announcement(agent, new_private_key("ed25519", secrets.token_bytes(32)))


# --- One host -------------------------------------------------------------------------------------


async def announce_ours(address: str, service: str, count: int) -> None:
    transport = MdnsTransport([f"{address}/8"], SystemClock(), ipv6=False, service=service)
    await transport.open()
    messages = [message(number) for number in range(count)]
    _wait_for_the_word()
    await asyncio.gather(*(_repeat(transport, each) for each in messages))


async def _repeat(transport: MdnsTransport, said: JsonObject) -> None:
    """Repeat like an announcer: at half of the TTL, and more often at first."""
    begun = TTL_SECONDS / 2
    while True:
        ack = await transport.announce(said, TTL_SECONDS)
        await asyncio.sleep(min(begun, ((ack.expires_at or 0) - time.time()) / 2) * random.uniform(0.9, 1.1))
        begun *= 2


async def announce_bare(address: str, service: str, count: int) -> None:
    made = AsyncZeroconf(interfaces=[address])
    await made.zeroconf.async_wait_for_start()
    infos = []
    for number in range(count):
        said = message(number)
        text = write_txt_message(dump_json(said), str(said["agent"]["agent_id"]))
        name = f"agent-{address.replace('.', '-')}-{number}"
        infos.append(
            ServiceInfo(
                service,
                f"{name}.{service}",
                port=9000,
                server=f"{name}.local.",
                addresses=[socket.inet_aton(address)],
                properties=text,
                host_ttl=TTL_SECONDS,
                other_ttl=TTL_SECONDS,
            )
        )
    _wait_for_the_word()
    await asyncio.gather(*await asyncio.gather(*(made.async_register_service(info) for info in infos)))
    await _stay()
    await made.async_close()


def _wait_for_the_word() -> None:
    """Start all hosts at once."""
    print("ready", flush=True)
    sys.stdin.readline()


async def _stay() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


# --- Who listens ----------------------------------------------------------------------------------


async def listen_ours(service: str, count: int) -> None:
    known: dict[str, float] = {}
    transport = MdnsTransport(
        ["127.0.0.1/8"], SystemClock(), ipv6=False, service=service, directory=AgentDirectory("mdns")
    )

    def seen(sighting: Sighting) -> None:
        known.setdefault(sighting.agent_id, time.monotonic())

    await transport.open()
    await transport.subscribe(seen)
    await _until(known, count)


async def listen_bare(service: str, count: int) -> None:
    known: dict[str, float] = {}
    made = AsyncZeroconf(interfaces=["127.0.0.1"])
    asked: set[asyncio.Task[None]] = set()

    async def resolve(name: str) -> None:
        info = AsyncServiceInfo(service, name)
        if await info.async_request(made.zeroconf, 3000) and info.text:
            known.setdefault(name, time.monotonic())

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Added:
            task = asyncio.ensure_future(resolve(name))
            asked.add(task)
            task.add_done_callback(asked.discard)

    browser = AsyncServiceBrowser(made.zeroconf, service, handlers=[changed])
    await _until(known, count)
    await browser.async_cancel()


async def _until(known: dict[str, float], count: int) -> None:
    """Print the seconds from the start signal until all agents are known, and go on listening."""
    _print({"listening": True})
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    began = time.monotonic()
    while len(known) < count and time.monotonic() - began < PATIENCE_SECONDS:
        await asyncio.sleep(0.02)
    _print({"known": len(known), "seconds": max(known.values(), default=began) - began})
    await asyncio.Event().wait()


def _print(value: Any) -> None:
    print(json.dumps(value), flush=True)


# --- The run --------------------------------------------------------------------------------------


class Counting(threading.Thread):
    """Packets and bytes that cross the link."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.packets = self.bytes = 0
        self._ended = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind((_GROUP, _PORT))
        joined = struct.pack("4s4s", socket.inet_aton(_GROUP), socket.inet_aton("127.0.0.1"))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)

    def run(self) -> None:
        while not self._ended:
            if select.select([self._socket], [], [], 0.1)[0]:
                self.bytes += len(self._socket.recv(65535))
                self.packets += 1
        self._socket.close()

    def end(self) -> None:
        self._ended = True
        self.join()


def measure(kind: str, count: int) -> dict[str, float]:
    """`kind`: ours or bare."""
    service = f"_wp-{secrets.token_hex(4)}._tcp.local."
    each = count // HOSTS
    roles = [["announce", f"127.0.0.{10 + host}", str(each)] for host in range(HOSTS)]
    started = [_process(kind, service, *role) for role in (["listen", "127.0.0.1", str(each * HOSTS)], *roles)]
    try:
        for process in started:
            _line(process)
        counting = Counting()
        counting.start()
        before = [_cpu(process) for process in started]
        began = time.monotonic()
        for process in started:
            _say(process)
        told = json.loads(_line(started[0]))
        time.sleep(max(0.0, began + WINDOW_SECONDS - time.monotonic()))
        spent = [_cpu(process) - was for process, was in zip(started, before, strict=True)]
        counting.end()
    finally:
        for process in started:
            _end(process)
    known = max(1, told["known"])
    return {
        "known": told["known"],
        "seconds": told["seconds"] if told["known"] == each * HOSTS else PATIENCE_SECONDS,
        "packets_per_agent": counting.packets / known,
        "bytes_per_agent": counting.bytes / known,
        "listener_cpu_ms_per_agent": 1000 * spent[0] / known,
        "host_cpu_ms_per_agent": 1000 * sum(spent[1:]) / known,
    }


def _process(kind: str, service: str, role: str, address: str, count: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "bench.announce.lan", kind, role, address, service, count]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(20)


def _cpu(process: subprocess.Popen[str]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kind", "role", "address", "service", "count"):
        parser.add_argument(name)
    asked = parser.parse_args()
    count = int(asked.count)
    if asked.role == "listen":
        listen = listen_ours if asked.kind == "ours" else listen_bare
        asyncio.run(listen(asked.service, count))
    else:
        announce = announce_ours if asked.kind == "ours" else announce_bare
        asyncio.run(announce(asked.address, asked.service, count))


if __name__ == "__main__":
    main()
