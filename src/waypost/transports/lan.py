"""The transports of the LAN and the bus, by what an operator or a user says of them. mDNS and the bus are loaded when they are
wanted: they are extras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec

from waypost import limits
from waypost.transports.bus_login import BusLogin
from waypost.transports.directory import Directory
from waypost.transports.interfaces import find_way_out
from waypost.transports.port import Clock, Transport
from waypost.transports.udp import UdpTransport
from waypost.wire.announce_bus import TOPIC


def has_mdns() -> bool:
    """Whether the extra `lan` is installed."""
    return find_spec("zeroconf") is not None


def make_mdns(
    interfaces: Sequence[str],
    clock: Clock,
    *,
    pointer: Callable[[str], str] | None = None,
    fetch: Callable[[str], Awaitable[bytes]] | None = None,
    directory: Directory | None = None,
) -> Transport:
    """Raises a ConfigurationError that names the extra where it is missing."""
    from waypost.transports.mdns import MdnsTransport

    chosen = interfaces or [find_way_out()]
    return MdnsTransport(chosen, clock, pointer=pointer, fetch=fetch, directory=directory)


def make_udp(
    interface: str | None,
    clock: Clock,
    port: int = limits.UDP_PORT,
    *,
    ipv6: bool = False,
    directory: Directory | None = None,
) -> Transport:
    return UdpTransport([interface or find_way_out()], clock, port=port, ipv6=ipv6, directory=directory)


def make_bus(
    address: str,
    clock: Clock,
    *,
    topic: str = TOPIC,
    group: str | None = None,
    login: BusLogin | None = None,
    directory: Directory | None = None,
) -> Transport:
    """Raises a ConfigurationError that names the extra where it is missing."""
    from waypost.transports.bus import BusTransport

    return BusTransport(address, clock, topic=topic, group=group or "", login=login, directory=directory)
