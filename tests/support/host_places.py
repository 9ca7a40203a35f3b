"""Hosts for the processes of one test: network namespaces joined by a LAN and a backbone, or loopback if namespaces are
not available."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from support.netns import INTERFACE, Lan, is_available, lan


class LanHosts:
    """`interface` is the LAN. Services listen on `far_address`, which is independent of it."""

    def __init__(self, net: Lan | None) -> None:
        self.net = net
        self.interface = "lo" if net is None else INTERFACE

    def far_address(self, host: int) -> str:
        return "127.0.0.1" if self.net is None else self.net.far_address(host)

    def entered(self, host: int) -> AbstractContextManager[None]:
        """Create sockets of this thread in the namespace of the host."""
        return nullcontext() if self.net is None else self.net.entered(host)

    def command(self, host: int, *words: str) -> list[str]:
        return list(words) if self.net is None else self.net.command(host, *words)

    def python(self, host: int, *words: str) -> list[str]:
        return self.command(host, sys.executable, *words)


@contextmanager
def place(hosts: int) -> Iterator[LanHosts]:
    if not is_available():
        yield LanHosts(None)
        return
    with lan(hosts, backbone=True) as net:
        yield LanHosts(net)
