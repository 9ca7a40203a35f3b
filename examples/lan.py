"""Announce an agent on the LAN and find it from a second program, without any server.

Start: python examples/lan.py [INTERFACE]          (default: lo; on a real network: eth0, wlan0, …)

It uses UDP broadcast. With the extra `lan`, `Announcer.load(AGENT)` uses mDNS, which other tools see, too.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from waypost import Announcer, Finder
from waypost.net.clock import SystemClock
from waypost.transports.udp import UdpTransport

AGENT = {
    "agent_name": "data-processor",
    "capabilities": {"metrics": "2.0"},
    "transport": {"type": "tcp", "endpoint": "127.0.0.1:9000"},
}


def transport(interface: str) -> UdpTransport:
    return UdpTransport([interface], SystemClock())


async def main(interface: str = "lo") -> None:
    with tempfile.TemporaryDirectory() as folder:  # the key of the agent and its sequence numbers
        announcer = Announcer.load(AGENT, [transport(interface)], data=Path(folder))
        async with announcer, Finder([transport(interface)]) as finder:
            for name, state in announcer.states.items():
                print(f"{name}: {state.state} {state.reason}")
            for found in await finder.find("metrics@^2.0", seconds=5):
                print(f"found {found.agent_id} by {', '.join(found.transports)}: {found.trust}")
    print("withdrawn")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
