"""A registry survives a flood on the LAN: memory, responses, and correct announcers (THREATS L3).

`python -m bench.announce` measures latencies under it; this test checks facts that hold on every machine.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import httpx2
import psutil
from zeroconf import DNSOutgoing, DNSText  # type: ignore[attr-defined]

from support.announce import announcement, key
from support.host_places import LanHosts, place
from support.ports import free_port
from support.server import RunningServer, running_server
from support.transports import PATIENCE_SECONDS, A, B
from waypost.model.json import dump_json
from waypost.protocols.announce.packets import SERVICE, write_txt_message

FLOOD = Path(__file__).parents[1] / "support" / "flood.py"
SECONDS, RATE = 10.0, 20_000
GROWTH_BYTES = 64 * 1024 * 1024
MDNS = ("224.0.0.251", 5353)


class Neighbour:
    """A correct announcer: one agent by UDP, one by mDNS, repeated like real agents."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        self._port = port
        now = time.time()
        self._by_udp, by_mdns = (
            dump_json(announcement(key(agent_id), seq=int(now * 1000), at=now, agent_id=agent_id))
            for agent_id in (A, B)
        )
        out = DNSOutgoing(0x8400)
        out.add_answer_at_time(DNSText(f"neighbour.{SERVICE}", 16, 0x8001, 120, write_txt_message(by_mdns, B)), 0)
        self._by_mdns = out.packets()[0]

    def speak(self) -> None:
        self._socket.sendto(self._by_udp, ("127.255.255.255", self._port))
        self._socket.sendto(self._by_mdns, MDNS)

    def close(self) -> None:
        self._socket.close()


def test_memory_and_answers_stay_bounded_at_twenty_thousand_packets_a_second() -> None:
    """L3. By UDP and mDNS at once, half of them each; on a host of its own, so that no other test is flooded."""
    with place(1) as where:
        flooded(where)


def flooded(where: LanHosts) -> None:
    port = free_port()
    flags = ("--udp", "--udp-interface", "lo", "--udp-port", str(port), "--mdns", "--mdns-interfaces", "lo")
    with running_server(*flags, "--trust-mode", "tofu", before=where.command(0)) as server:
        before = memory(server)
        floods = [
            subprocess.Popen(
                where.python(0, str(FLOOD), kind, str(port), str(SECONDS), str(RATE // 2)),
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in ("udp", "mdns")
        ]
        with where.entered(0), httpx2.Client(base_url=server.url, headers=server.headers, timeout=60) as client:
            neighbour, found = Neighbour(port), set[str]()
            for flood in floods:
                assert flood.stdout is not None
                flood.stdout.readline()  # it has begun
            latest = time.monotonic() + PATIENCE_SECONDS  # on a machine that has no time for anything
            while any(flood.poll() is None for flood in floods) or (len(found) < 2 and time.monotonic() < latest):
                assert client.get("/api/v1/agents", params={"limit": 5}).status_code == 200
                neighbour.speak()
                found |= {name for name in (A, B) if client.get(f"/api/v1/agents/urn:uuid:{name}").status_code == 200}
                time.sleep(0.1)
            neighbour.close()
            assert found == {A, B}, "whoever says little was not heard"
            sent = sum(int(flood.communicate(timeout=60)[0].split()[-1]) for flood in floods)
            growth = memory(server) - before
            assert growth < GROWTH_BYTES, f"{growth / 2**20:.0f} MiB more"
            read = client.get("/metrics").text
            dropped = float(
                next(line for line in read.splitlines() if line.startswith("waypost_lan_dropped ")).split()[1]
            )
            assert dropped > 1000, f"{dropped:.0f} of {sent} were dropped unread; the system dropped others"
            assert client.get("/healthz").status_code == 200


def memory(server: RunningServer) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)
