"""The table of transports that a registry listens on. A new transport implements `port.Transport` and adds a row here.

Transports of extras are imported when they are made.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import msgspec

from waypost.settings import Settings
from waypost.transports.directory import AgentDirectory
from waypost.transports.interfaces import find_multicast_interfaces, find_outbound_address
from waypost.transports.port import Transport, TransportClock

log = logging.getLogger("waypost.lan")


class TransportContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a transport is made of, besides the settings."""

    clock: TransportClock
    pointer: Callable[[str], str] | None = None  # the URL of an agent's message that does not fit into a packet
    fetch: Callable[[str], Awaitable[bytes]] | None = None  # follows pointers of others; must guard against SSRF
    make_directory: Callable[[str], AgentDirectory | None] = lambda transport: None


class TransportType(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of transport. `make` raises a ConfigurationError that names the extra if `package` is missing."""

    make: Callable[[Settings, TransportContext], Transport]
    is_enabled: Callable[[Settings], bool]
    is_lan: bool = False  # anyone on the link can send: the agents of one machine are limited
    package: str | None = None

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None


def _make_mdns(settings: Settings, context: TransportContext) -> Transport:
    from waypost.transports.mdns.transport import MdnsTransport

    interfaces = settings.mdns_interfaces or find_multicast_interfaces()
    log.info("mDNS uses %s", ", ".join(interfaces))
    return MdnsTransport(
        interfaces,
        context.clock,
        pointer=context.pointer,
        fetch=context.fetch,
        directory=context.make_directory("mdns"),
    )


def _make_udp(settings: Settings, context: TransportContext) -> Transport:
    from waypost.transports.udp import UdpTransport

    return UdpTransport(
        [settings.udp_interface or find_outbound_address()],
        context.clock,
        port=settings.udp_port,
        ipv6=settings.udp_ipv6,
        directory=context.make_directory("udp"),
    )


def _make_bus(settings: Settings, context: TransportContext) -> Transport:
    from waypost.transports.bus import BusTransport, bus_credentials_of

    return BusTransport(
        settings.bus or "",
        context.clock,
        topic=settings.bus_topic,
        group=settings.bus_group or (_cluster_group(settings) if settings.is_cluster else ""),
        shares_announcements=settings.is_cluster,
        credentials=bus_credentials_of(settings),
        directory=context.make_directory("bus"),
    )


def _cluster_group(settings: Settings) -> str:
    """The same in all nodes of a cluster, which have one base URL."""
    return f"waypost-{hashlib.sha256(settings.public_url().encode()).hexdigest()[:16]}"


TRANSPORTS: dict[str, TransportType] = {
    "mdns": TransportType(make=_make_mdns, is_enabled=lambda settings: settings.mdns, is_lan=True, package="zeroconf"),
    "udp": TransportType(make=_make_udp, is_enabled=lambda settings: settings.udp, is_lan=True),
    "bus": TransportType(make=_make_bus, is_enabled=lambda settings: settings.bus is not None, package="nats"),
}


def make_transports(settings: Settings, context: TransportContext) -> list[Transport]:
    """The transports that the settings enable."""
    return [kind.make(settings, context) for kind in TRANSPORTS.values() if kind.is_enabled(settings)]
