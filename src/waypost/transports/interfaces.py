"""The interfaces that a LAN transport uses: always named by whoever starts it, never all that the machine has."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from waypost.errors import ConfigurationError

try:
    import fcntl
except ImportError:  # a system without it has its interfaces told by address and prefix
    fcntl = None  # type: ignore[assignment]

_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_UP_AND_RUNNING = 0x01 | 0x40
_NAME_BYTES = 15
_IF_INET6 = Path("/proc/net/if_inet6")


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # may be empty: then the address alone chooses
    address: ipaddress.IPv4Address
    network: ipaddress.IPv4Network
    index: int = 0
    v6: tuple[ipaddress.IPv6Address, ...] = ()

    @property
    def broadcast(self) -> str:
        return str(self.network.broadcast_address)

    def carries(self, socket_number: int) -> bool:
        """Whether the link is up and its cable plugged in, asked through a socket that is on it. Where the system does not
        tell, it is taken to be."""
        if fcntl is None or sys.platform != "linux" or not self.name:
            return True
        asked = struct.pack("256s", self.name.encode()[:_NAME_BYTES])
        try:
            answer = fcntl.ioctl(socket_number, _SIOCGIFFLAGS, asked)
        except OSError:  # the interface is gone
            return False
        (flags,) = struct.unpack("H", answer[16:18])
        return bool(flags & _UP_AND_RUNNING == _UP_AND_RUNNING)

    def is_on_link(self, address: str) -> bool:
        """Whether a source can be a neighbour (THREATS L2)."""
        try:
            source = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(source, ipaddress.IPv6Address) and source.ipv4_mapped is not None:
            source = source.ipv4_mapped  # as a socket of both kinds tells it
        if isinstance(source, ipaddress.IPv4Address):
            return source in self.network
        return source.is_link_local or source.is_loopback or source in self.v6


def find_interface(text: str) -> Interface:
    """By name (`eth0`), by an IPv4 address of it, or by address and prefix (`192.168.1.5/24`)."""
    try:
        told = ipaddress.IPv4Interface(text)
    except ValueError:
        return _named_interface(text)
    for name in _names():
        found = _find(name)
        if found is not None and found.address == told.ip:
            return found
    if "/" in text:
        return Interface(name="", address=told.ip, network=told.network)
    raise _unknown(text)


def find_outbound_address() -> str:
    """The address, with a prefix, that this machine has towards others; its loopback where there are none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # an address of documentation: only the route is looked up
            return f"{asked.getsockname()[0]}/24"
        except OSError:
            return "127.0.0.1/8"


def find_interfaces(texts: Iterable[str]) -> tuple[Interface, ...]:
    found = tuple(find_interface(text) for text in texts)
    if not found:
        raise ConfigurationError(
            "No interface is named.", path="interfaces", hint=f"Name one of {', '.join(_names())}, or its address."
        )
    return found


def _named_interface(name: str) -> Interface:
    found = _find(name) if name in _names() else None
    if found is None:
        raise _unknown(name)
    return found


def _find(name: str) -> Interface | None:
    """None for one that has no IPv4 address, and where the system does not tell."""
    if fcntl is None or sys.platform != "linux":
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:

        def ask(what: int) -> ipaddress.IPv4Address:
            answer = fcntl.ioctl(asked.fileno(), what, struct.pack("256s", name.encode()[:_NAME_BYTES]))
            return ipaddress.IPv4Address(answer[20:24])

        try:
            address, mask = ask(_SIOCGIFADDR), ask(_SIOCGIFNETMASK)
        except OSError:
            return None
    network = ipaddress.IPv4Network(f"{address}/{mask}", strict=False)
    index = socket.if_nametoindex(name)
    return Interface(name=name, address=address, network=network, index=index, v6=tuple(_v6_addresses(name)))


def _v6_addresses(name: str) -> Iterator[ipaddress.IPv6Address]:
    if not _IF_INET6.exists():
        return
    for line in _IF_INET6.read_text().splitlines():
        address, *_, interface = line.split()
        if interface == name:
            yield ipaddress.IPv6Address(bytes.fromhex(address))


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _unknown(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"There is no interface {text[:64]!r} with an IPv4 address.",
        path="interfaces",
        hint=f"Name one of {', '.join(_names())}, its address, or address and prefix such as 192.168.1.5/24.",
    )
