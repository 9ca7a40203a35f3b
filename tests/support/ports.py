"""Free ports for servers that need a port number before they start.

An ephemeral port that was just freed may be assigned to any other connection before the server binds it. These ports are
below the ephemeral range, and each is reserved for one process of the test run.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from waypost.net.url import DENIED_PORTS

HOST = "127.0.0.1"
_LOWEST, _HIGHEST = 15_000, 32_767
_TRIES = 1000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that is free for TCP and UDP, reserved for this process, and not denied as a database port."""
    usual = [port for port in range(_LOWEST, _lowest_given() or _HIGHEST) if port not in DENIED_PORTS]
    drawn = random.SystemRandom().sample(usual, _TRIES)
    return next(port for port in drawn if _is_mine(port) and _is_free(port))


def _lowest_given() -> int:
    """The first ephemeral port of the system, if there are ports below it; else 0."""
    if not _RANGE.exists():
        return 0
    lowest = int(_RANGE.read_text().split()[0])
    return lowest if lowest > _LOWEST + 1000 else 0


def _is_mine(port: int) -> bool:
    """An abstract socket name, which the system frees when this process ends."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0waypost-test-port-{port}")
    except OSError:
        mark.close()
        return False
    mark.detach()  # open until the process ends
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        try:
            stream.bind((HOST, port))
            datagrams.bind(("", port))
        except OSError:
            return False
    return True
