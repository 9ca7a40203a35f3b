"""The transports that `announce` and `browse` use, from their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import httpx2
import msgspec

from waypost import limits
from waypost.cli.options import WholeNumber
from waypost.cli.output import Printer
from waypost.cli.session import Session
from waypost.client.http import tls_context
from waypost.client.identity import TrustFile
from waypost.client.registry_transport import http_address, make_registry_transport, pointer_fetcher, pointer_url
from waypost.errors import FetchFailed
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.protocols.announce.messages import TOPIC
from waypost.settings import ConnectionSettings, Settings
from waypost.transports.directory import AgentDirectory
from waypost.transports.factory import TRANSPORTS, TransportContext
from waypost.transports.interfaces import find_interfaces, find_multicast_interfaces
from waypost.transports.port import Transport, TransportClock

Function = TypeVar("Function", bound=Callable[..., Any])
RegistryAddress = tuple[ConnectionSettings, bool]  # of a registry, and whether to use a WebSocket
_PROBE_SECONDS = 1.0


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


def note_interfaces(printer: Printer, options: TransportOptions, transports: list[Transport]) -> None:
    """Say which interfaces mDNS uses if the user named none, and that it is missing if the user named no transport."""
    if any(transport.name == "mdns" for transport in transports):
        if not options.interface:
            printer.note(f"mDNS on {', '.join(find_multicast_interfaces())}")
    elif options.mdns is None and not options.is_named and not TRANSPORTS["mdns"].is_installed:
        used = ", ".join(transport.name for transport in transports)
        printer.note(f"Without mDNS, which needs `pip install 'waypost[lan]'`: {used} only.")


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
        if chosen.interface:
            find_interfaces(chosen.interface)  # one that does not exist is an error now, not on each attempt
        transports: list[Transport] = []
        if mdns if chosen.mdns is None else chosen.mdns:
            transports.append(self._make("mdns", mdns_interfaces=chosen.interface))
        if udp if chosen.udp is None else chosen.udp:
            for interface in chosen.interface or (None,):
                transports.append(self._make("udp", udp_interface=interface, udp_port=chosen.udp_port))
        topic = chosen.bus_topic or self.settings.bus_topic
        transports += [self._make("bus", bus=url, bus_topic=topic, bus_group=None) for url in chosen.bus]
        return transports + [self._registry(*address) for address in self.addresses]

    def _make(self, name: str, **options: Any) -> Transport:
        registries = [address for address, _ in self.addresses]
        context = TransportContext(
            clock=self.clock,
            pointer=pointer_url(registries[0]) if registries else None,
            fetch=pointer_fetcher(registries, self._fetch),
            make_directory=self._directory,
        )
        return TRANSPORTS[name].make(msgspec.structs.replace(self.settings, **options), context)

    def _registry(self, address: ConnectionSettings, is_socket: bool) -> Transport:
        directory = self._directory("ws" if is_socket else "http")
        return make_registry_transport(address, self.clock, is_socket=is_socket, directory=directory)

    def _directory(self, name: str) -> AgentDirectory | None:
        if self.trust is None:
            return None
        is_lan = name in TRANSPORTS and TRANSPORTS[name].is_lan  # one machine must not fill the directory
        capacity = limits.DIRECTORY_AGENTS_PER_SOURCE if is_lan else None
        return AgentDirectory(name, find_pin=self.trust.keys_of, on_pin=self.trust.bind, capacity_per_source=capacity)

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
            help="The interface for both. Repeatable.  [default: for mDNS all that can multicast, for UDP the default route]",
        ),
        click.option(
            "--udp-port",
            type=WholeNumber(1, 65535),
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
    return not options.is_named and TRANSPORTS["mdns"].is_installed


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
