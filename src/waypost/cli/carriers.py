"""The transports that `announce` and `browse` use, from their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import httpx
import msgspec

from waypost import limits
from waypost.cli.session import Session
from waypost.client.registries import plain_address, transport_of
from waypost.settings import Connection
from waypost.transports.lan import has_mdns, make_bus, make_mdns, make_udp
from waypost.transports.port import Clock, Transport
from waypost.wire.announce_bus import TOPIC

Function = TypeVar("Function", bound=Callable[..., Any])
_PROBE_SECONDS = 1.0


class Carriers(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of transports; None and () are not said."""

    mdns: bool | None = None
    udp: bool | None = None
    interface: tuple[str, ...] = ()
    udp_port: int = limits.UDP_PORT
    bus: tuple[str, ...] = ()
    bus_topic: str = TOPIC
    registry: tuple[str, ...] = ()

    @property
    def is_named(self) -> bool:
        return bool(self.mdns or self.udp or self.bus or self.registry)

    def lan(self, clock: Clock, *, mdns: bool, udp: bool) -> list[Transport]:
        """Those of the LAN, and buses. `mdns` and `udp`: where nothing was said."""
        made: list[Transport] = []
        if mdns if self.mdns is None else self.mdns:
            made.append(make_mdns(self.interface, clock))
        if udp if self.udp is None else self.udp:
            made += [make_udp(each, clock, self.udp_port) for each in self.interface or (None,)]
        made += [make_bus(each, clock, topic=self.bus_topic) for each in self.bus]
        return made

    def registries(self, session: Session, clock: Clock) -> list[Transport]:
        """Those that were named; else, where nothing was, the service of this machine if it answers."""
        if self.registry:
            return [_registry(session, url, clock) for url in self.registry]
        address = session.connection()
        if address.named or (not self.is_named and _answers(address)):
            return [transport_of(address, clock)]
        return []


def carrier_options(function: Function) -> Function:
    """`--mdns`, `--udp`, `--interface`, `--udp-port`, `--bus`, `--bus-topic`, `--registry`."""
    options = (
        click.option("--mdns/--no-mdns", default=None, help="Use mDNS.  [default: if the extra lan is installed]"),
        click.option("--udp/--no-udp", default=None, help="Use UDP broadcast."),
        click.option(
            "--interface",
            multiple=True,
            metavar="NAME|ADDRESS",
            help="The interface for both.  [default: the one that leads out]",
        ),
        click.option(
            "--udp-port",
            type=click.IntRange(1, 65535),
            default=limits.UDP_PORT,
            show_default=True,
            help="The port for UDP broadcast.",
        ),
        click.option("--bus", multiple=True, metavar="URL", help="A bus to use, such as nats://127.0.0.1:4222."),
        click.option("--bus-topic", default=TOPIC, show_default=True, metavar="TOPIC", help="The topic on the bus."),
        click.option(
            "--registry", multiple=True, metavar="URL", help="A registry to use too; ws:// or wss:// for a WebSocket."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def default_mdns(carriers: Carriers) -> bool:
    """mDNS by itself: where nothing else was asked for, and it is installed."""
    return not carriers.is_named and has_mdns()


def _registry(session: Session, url: str, clock: Clock) -> Transport:
    plain, is_socket = plain_address(url)
    return transport_of(msgspec.structs.replace(session, server=plain).connection(), clock, is_socket=is_socket)


def _answers(address: Connection) -> bool:
    try:
        return httpx.get(f"{address.base_url}/healthz", timeout=_PROBE_SECONDS, trust_env=False).is_success
    except httpx.HTTPError:
        return False
