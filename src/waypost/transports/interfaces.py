"""Network interfaces of LAN transports: those that are named, else those that are up and can multicast."""

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
except ImportError:  # not on Windows: interfaces are named by address and prefix there
    fcntl = None  # type: ignore[assignment]

_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_UP_AND_RUNNING = 0x01 | 0x40
_LOOPBACK, _MULTICAST = 0x08, 0x1000
_NAME_BYTES = 15
_IF_INET6 = Path("/proc/net/if_inet6")


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # empty if only the address is known
    address: ipaddress.IPv4Address
    network: ipaddress.IPv4Network
    index: int = 0
    v6: tuple[ipaddress.IPv6Address, ...] = ()

    @property
    def broadcast(self) -> str:
        return str(self.network.broadcast_address)

    def is_up(self, descriptor: int) -> bool:
        """Whether the link is up and has a carrier, read through any open socket. True if the system does not say."""
        if fcntl is None or sys.platform != "linux" or not self.name:
            return True
        return _read_flags(self.name, descriptor) & _UP_AND_RUNNING == _UP_AND_RUNNING

    def is_on_link(self, address: str) -> bool:
        """Whether a source address is on this link (THREATS L2)."""
        try:
            source = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(source, ipaddress.IPv6Address) and source.ipv4_mapped is not None:
            source = source.ipv4_mapped  # the form of IPv4 addresses on dual-stack sockets
        if isinstance(source, ipaddress.IPv4Address):
            return source in self.network
        return source.is_link_local or source.is_loopback or source in self.v6


def find_interface(text: str) -> Interface:
    """Find by name (`eth0`), by an IPv4 address of it, or by address and prefix (`192.168.1.5/24`)."""
    try:
        given = ipaddress.IPv4Interface(text)
    except ValueError:
        return _named_interface(text)
    for name in _names():
        found = _find(name)
        if found is not None and found.address == given.ip:
            return found
    if "/" in text:
        return Interface(name="", address=given.ip, network=given.network)
    raise _unknown(text)


def find_multicast_interfaces() -> tuple[str, ...]:
    """The names of all interfaces that are up, can multicast and have an IPv4 address, without loopback; if there is none, or
    the system does not say, the address of the default route."""
    names = _names() if fcntl is not None and sys.platform == "linux" else []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = {name: _read_flags(name, sock.fileno()) for name in names}
    wanted = _UP_AND_RUNNING | _MULTICAST
    found = (name for name in names if flags[name] & (wanted | _LOOPBACK) == wanted and _find(name) is not None)
    return tuple(found) or (find_outbound_address(),)


def _read_flags(name: str, descriptor: int) -> int:
    """The flags of an interface, read through any open socket; 0 if it is gone."""
    try:
        answer = fcntl.ioctl(descriptor, _SIOCGIFFLAGS, struct.pack("256s", name.encode()[:_NAME_BYTES]))
    except OSError:
        return 0
    return int(struct.unpack("H", answer[16:18])[0])


def find_outbound_address() -> str:
    """The address with prefix of the default route; loopback if there is none. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # a documentation address: connecting a UDP socket only selects the route
            return f"{sock.getsockname()[0]}/24"
        except OSError:
            return "127.0.0.1/8"


def find_interfaces(texts: Iterable[str]) -> tuple[Interface, ...]:
    found = tuple(find_interface(text) for text in texts)
    if not found:
        raise ConfigurationError(
            "No network interface is named.",
            path="interfaces",
            hint=f"Name one of {', '.join(_names())}, or its address.",
        )
    return found


def _named_interface(name: str) -> Interface:
    found = _find(name) if name in _names() else None
    if found is None:
        raise _unknown(name)
    return found


def _find(name: str) -> Interface | None:
    """None if the interface has no IPv4 address, or the system does not say."""
    if fcntl is None or sys.platform != "linux":
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:

        def read_address(request: int) -> ipaddress.IPv4Address:
            answer = fcntl.ioctl(sock.fileno(), request, struct.pack("256s", name.encode()[:_NAME_BYTES]))
            return ipaddress.IPv4Address(answer[20:24])

        try:
            address, mask = read_address(_SIOCGIFADDR), read_address(_SIOCGIFNETMASK)
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
