"""The transports that `announce` and `browse` use, from their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import httpx2
import msgspec

from waypost import limits
from waypost.cli.session import Session
from waypost.client.http import tls_context
from waypost.client.identity import TrustFile
from waypost.client.registry_transport import http_address, make_registry_transport, pointer_fetcher, pointer_url
from waypost.errors import FetchFailed
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.protocols.announce.messages import TOPIC
from waypost.settings import ConnectionSettings, Settings
from waypost.transports.bus.connection import bus_credentials_of
from waypost.transports.directory import AgentDirectory
from waypost.transports.factory import has_mdns, make_bus, make_mdns, make_udp
from waypost.transports.port import Transport, TransportClock

Function = TypeVar("Function", bound=Callable[..., Any])
RegistryAddress = tuple[ConnectionSettings, bool]  # of a registry, and whether to use a WebSocket
_PROBE_SECONDS = 1.0
_LAN_TRANSPORTS = ("mdns", "udp")  # one machine must not fill the directory


class TransportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The transport options; None and () are not given."""

    mdns: bool | None = None
    udp: bool | None = None
    interface: tuple[str, ...] = ()
    udp_port: int = limits.UDP_PORT
    bus: tuple[str, ...] = ()
    bus_topic: str | None = None
    registry: tuple[str, ...] = ()

    @property
    def is_named(self) -> bool:
        return bool(self.mdns or self.udp or self.bus or self.registry)

    def addresses(self, session: Session) -> list[RegistryAddress]:
        """The named registries; without any transport option, the service on this machine if it answers."""
        if self.registry:
            return [_address(session, url) for url in self.registry]
        address = session.connection()
        if address.named or (not self.is_named and _answers(address)):
            return [(address, False)]
        return []


class TransportFactory(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the chosen transports. With `trust`, announcements are verified with its pinned keys, and new keys are pinned."""

    options: TransportOptions
    settings: Settings
    clock: TransportClock
    addresses: list[RegistryAddress]
    trust: TrustFile | None = None

    def transports(self, *, mdns: bool, udp: bool) -> list[Transport]:
        """`mdns` and `udp` are the defaults if the options do not say."""
        chosen = self.options
        made: list[Transport] = []
        if mdns if chosen.mdns is None else chosen.mdns:
            made.append(self._mdns())
        if udp if chosen.udp is None else chosen.udp:
            for each in chosen.interface or (None,):
                directory = self._directory("udp")
                made.append(
                    make_udp(each, self.clock, chosen.udp_port, ipv6=self.settings.udp_ipv6, directory=directory)
                )
        topic = chosen.bus_topic or self.settings.bus_topic
        login = bus_credentials_of(self.settings)
        made += [
            make_bus(each, self.clock, topic=topic, login=login, directory=self._directory("bus"))
            for each in chosen.bus
        ]
        return made + [self._registry(*address) for address in self.addresses]

    def _mdns(self) -> Transport:
        known = [address for address, _ in self.addresses]
        return make_mdns(
            self.options.interface,
            self.clock,
            pointer=pointer_url(known[0]) if known else None,
            fetch=pointer_fetcher(known, self._fetch),
            directory=self._directory("mdns"),
        )

    def _registry(self, address: ConnectionSettings, is_socket: bool) -> Transport:
        directory = self._directory("ws" if is_socket else "http")
        return make_registry_transport(address, self.clock, is_socket=is_socket, directory=directory)

    def _directory(self, name: str) -> AgentDirectory | None:
        if self.trust is None:
            return None
        most = limits.DIRECTORY_AGENTS_PER_SOURCE if name in _LAN_TRANSPORTS else None
        return AgentDirectory(name, pins=self.trust.keys_of, bound=self.trust.take, most_of_source=most)

    async def _fetch(self, url: str) -> bytes:
        """Fetch with the SSRF guard: anybody can send a pointer."""
        found = await OutboundClient(OutboundOptions.of(self.settings)).fetch(url, "card")
        if not found.is_success:
            raise FetchFailed(
                f"The pointer answers with status {found.status}.", path="mdns", hint="Contact its operator."
            )
        return found.body


def transport_options(function: Function) -> Function:
    """`--mdns`, `--udp`, `--interface`, `--udp-port`, `--bus`, `--bus-topic`, `--registry`."""
    options = (
        click.option("--mdns/--no-mdns", default=None, help="Use mDNS.  [default: if the extra lan is installed]"),
        click.option("--udp/--no-udp", default=None, help="Use UDP broadcast."),
        click.option(
            "--interface",
            multiple=True,
            metavar="NAME|ADDRESS",
            help="The interface for both. Repeatable.  [default: the one with the default route]",
        ),
        click.option(
            "--udp-port",
            type=click.IntRange(1, 65535),
            default=limits.UDP_PORT,
            show_default=True,
            help="The port for UDP broadcast.",
        ),
        click.option(
            "--bus", multiple=True, metavar="URL", help="A bus to use, such as nats://127.0.0.1:4222. Repeatable."
        ),
        click.option("--bus-topic", metavar="TOPIC", help=f"The topic on the bus.  [default: {TOPIC}]"),
        click.option(
            "--registry",
            multiple=True,
            metavar="URL",
            help="A registry to use too; ws:// or wss:// for a WebSocket. Repeatable.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def uses_mdns_by_default(options: TransportOptions) -> bool:
    """Whether no transport is named and mDNS is installed."""
    return not options.is_named and has_mdns()


def _address(session: Session, url: str) -> RegistryAddress:
    plain, is_socket = http_address(url)
    return msgspec.structs.replace(session, server=plain).connection(), is_socket


def _answers(address: ConnectionSettings) -> bool:
    try:
        return httpx2.get(
            f"{address.base_url}/healthz", timeout=_PROBE_SECONDS, trust_env=False, verify=tls_context(address)
        ).is_success
    except httpx2.HTTPError:
        return False
