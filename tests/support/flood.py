"""A process that floods the loopback interface with datagrams: `python flood.py udp|mdns PORT SECONDS RATE`.

Of every four packets one is a validly signed announcement of an unknown agent, one a fragment of an incomplete message, one
truncated, one random. Used by tests and the benchmark; it prints a line at the start, and the number of packets at the end.
"""

from __future__ import annotations

import random
import socket
import sys
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.announce import announcement, key
from waypost.model.json import dump_json
from waypost.protocols.announce.packets import SERVICE, write_txt_message

_DIFFERENT = 1000


def udp_packets(drawn: random.Random) -> list[bytes]:
    packets = []
    for _ in range(_DIFFERENT):
        said = _announcement(drawn)[1]
        fragment = b"\xad\x01" + drawn.randbytes(8) + b"\x00\x10" + drawn.randbytes(500)
        packets += [said, fragment, said[: len(said) // 2], drawn.randbytes(400)]
    return packets


def mdns_packets(drawn: random.Random) -> list[bytes]:
    from zeroconf import DNSOutgoing, DNSText  # type: ignore[attr-defined]

    packets = []
    for number in range(_DIFFERENT):
        agent_id, said = _announcement(drawn)
        out = DNSOutgoing(0x8400)
        text = DNSText(f"n{number}.{SERVICE}", 16, 0x8001, 10, write_txt_message(said, agent_id))
        out.add_answer_at_time(text, 0)
        packet = out.packets()[0]
        circle = packet[:12] + b"\xc0\x0c" + packet[14:]
        packets += [packet, circle, packet[: len(packet) // 2], drawn.randbytes(400)]
    return packets


def _announcement(drawn: random.Random) -> tuple[str, bytes]:
    agent_id = str(uuid.UUID(int=drawn.getrandbits(128), version=4))
    now = time.time()
    return agent_id, dump_json(announcement(key("flood"), seq=int(now * 1000), at=now, agent_id=agent_id))


def flood(kind: str, port: int, seconds: float, rate: int) -> int:
    drawn = random.Random()
    packets = mdns_packets(drawn) if kind == "mdns" else udp_packets(drawn)
    to = ("224.0.0.251", 5353) if kind == "mdns" else ("127.255.255.255", port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        print("begun", flush=True)
        began, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < seconds:
            for _ in range(50):
                sender.sendto(packets[sent % len(packets)], to)
                sent += 1
            time.sleep(max(0.0, sent / rate - elapsed))
    return sent


if __name__ == "__main__":
    print(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
