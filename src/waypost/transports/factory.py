"""The transports of the LAN and the bus, by what an operator or a user says of them. mDNS and the bus are loaded when they are
wanted: they are extras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec

from waypost import limits
from waypost.protocols.announce.messages import TOPIC
from waypost.transports.bus.connection import BusCredentials
from waypost.transports.directory import AgentDirectory
from waypost.transports.interfaces import find_outbound_address
from waypost.transports.port import Transport, TransportClock
from waypost.transports.udp import UdpTransport


def has_mdns() -> bool:
    """Whether the extra `lan` is installed."""
    return find_spec("zeroconf") is not None


def make_mdns(
    interfaces: Sequence[str],
    clock: TransportClock,
    *,
    pointer: Callable[[str], str] | None = None,
    fetch: Callable[[str], Awaitable[bytes]] | None = None,
    directory: AgentDirectory | None = None,
) -> Transport:
    """Raises a ConfigurationError that names the extra where it is missing."""
    from waypost.transports.mdns.transport import MdnsTransport

    chosen = interfaces or [find_outbound_address()]
    return MdnsTransport(chosen, clock, pointer=pointer, fetch=fetch, directory=directory)


def make_udp(
    interface: str | None,
    clock: TransportClock,
    port: int = limits.UDP_PORT,
    *,
    ipv6: bool = False,
    directory: AgentDirectory | None = None,
) -> Transport:
    return UdpTransport([interface or find_outbound_address()], clock, port=port, ipv6=ipv6, directory=directory)


def make_bus(
    address: str,
    clock: TransportClock,
    *,
    topic: str = TOPIC,
    group: str | None = None,
    login: BusCredentials | None = None,
    directory: AgentDirectory | None = None,
) -> Transport:
    """Raises a ConfigurationError that names the extra where it is missing."""
    from waypost.transports.bus.transport import BusTransport

    return BusTransport(address, clock, topic=topic, group=group or "", login=login, directory=directory)
