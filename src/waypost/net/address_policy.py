"""Which IP addresses this service may connect to on behalf of others. Checks addresses, resolves no names.

Denied are special-purpose networks (IANA), everything that is not global unicast, and addresses at which clouds hand out
credentials. An address that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo …) is checked by that one too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import Final, TypeAlias

from waypost.errors import AddressDenied

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
# Cannot be allowed by a setting: these endpoints hand out the credentials of the machine.
_METADATA: Final = _networks(
    "169.254.169.0/24",  # AWS, Google, Azure, Oracle, OpenStack, DigitalOcean
    "169.254.170.0/24",  # AWS containers
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure wire server
    "192.0.0.192/32",  # Oracle, older endpoint
    "fd00:ec2::/32",  # AWS
    "fd20:ce::254/128",  # Google
    "fe80::a9fe:a9fe/128",  # OpenStack
)
_UNROUTABLE: Final = _networks("0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "240.0.0.0/4")
# Checked by the embedded address alone.
_EMBEDDED_ONLY: Final = _networks("::ffff:0:0/96", "64:ff9b::/96")
_LAST_32_BITS: Final = _networks("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # the upper half of the interface identifier


class AddressPolicy:
    """`allow` permits private networks; `own` are the addresses at which this service itself listens."""

    def __init__(self, allow: Iterable[str] = (), own: Iterable[tuple[str, int]] = ()) -> None:
        self._allowed = tuple(map(ipaddress.ip_network, allow))
        self._own = tuple(own)

    def loopback(self) -> list[Address]:
        """The addresses of `localhost`: the allowed ones of 127.0.0.1 and ::1, else 127.0.0.1."""
        addresses: list[Address] = [ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1")]
        return [address for address in addresses if self.find_reason(address) is None] or addresses[:1]

    def is_listed(self, address: Address) -> bool:
        """Whether a setting names the network of an address."""
        return _contains(self._allowed, address)

    def check(self, address: Address, port: int) -> None:
        """Raises AddressDenied with the reason in its details."""
        reason = self.find_reason(address) or ("own" if self._is_own(address, port) else None)
        if reason is not None:
            raise address_denied(reason)

    def find_reason(self, address: Address) -> str | None:
        """Why an address is denied; None if it is allowed."""
        embedded = list(_embedded_ipv4(address))
        if _contains(_EMBEDDED_ONLY, address):
            return self._reason(embedded[0])
        return next((reason for one in (address, *embedded) if (reason := self._reason(one)) is not None), None)

    def _reason(self, address: Address) -> str | None:
        if _contains(_METADATA, address):
            return "metadata"
        if _contains(_UNROUTABLE, address):
            return "reserved"
        if _contains(_LOOPBACK, address):
            allowed = (network for network in self._allowed if _within(network, _LOOPBACK))
            return None if _contains(allowed, address) else "loopback"
        if _is_special(address) and not _contains(self._allowed, address):
            return "private"
        return None

    def _is_own(self, address: Address, port: int) -> bool:
        effective = next(_embedded_ipv4(address), address) if _contains(_EMBEDDED_ONLY, address) else address
        return any(
            port == own_port and (_is_wildcard(host) or _same(host, effective)) and _is_local(effective)
            for host, own_port in self._own
        )


def address_denied(reason: str) -> AddressDenied:
    if reason == "own":
        return AddressDenied(
            "This is the address of this service itself.",
            path="url",
            hint="Name the address of the agent, or of the other registry.",
            details={"reason": reason},
        )
    fixed = reason in ("metadata", "reserved")
    return AddressDenied(
        f"This service does not connect to this address ({reason}).",
        path="url",
        hint="No setting allows it." if fixed else "To allow it, add its network to the setting allow_cidrs.",
        details={"reason": reason},
    )


@cache
def _special_networks() -> tuple[Network, ...]:
    """The table of the IANA registries (written by scripts/tables.py)."""
    lines = (resources.files("waypost.net") / "special_networks.txt").read_text("ascii").splitlines()
    return _networks(*(line for line in lines if not line.startswith("#")))


def _is_special(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return True
    return _contains(_special_networks(), address)


def _embedded_ipv4(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address may be routed to."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if _contains((*_EMBEDDED_ONLY, *_LAST_32_BITS), address) and number > 1:
        yield last
    if address in _LOCAL_NAT64:  # RFC 6052 §2.2: after 48 bits, around the eight zero bits
        yield ipaddress.IPv4Address(((number >> 64) & 0xFFFF) << 16 | ((number >> 40) & 0xFFFF))
    if address in _6TO4:
        yield ipaddress.IPv4Address((number >> 80) & 0xFFFFFFFF)
    if address in _TEREDO:
        yield ipaddress.IPv4Address((number >> 64) & 0xFFFFFFFF)
        yield ipaddress.IPv4Address(~number & 0xFFFFFFFF)
    if (number >> 32) & 0xFFFFFFFF in _ISATAP:
        yield last


def _contains(networks: Iterable[Network], address: Address) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _within(network: Network, outer: Iterable[Network]) -> bool:
    return any(network.version == one.version and network.subnet_of(one) for one in outer)  # type: ignore[arg-type]


def _is_wildcard(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


def _same(host: str, address: Address) -> bool:
    if host.lower() == "localhost":
        return address.is_loopback
    try:
        return ipaddress.ip_address(host.strip("[]")) == address
    except ValueError:
        return True  # listening on a name: any address of this machine may be meant


def _is_local(address: Address) -> bool:
    """Whether this machine has the address: the route to it starts there. Sends nothing."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(ipaddress.ip_address(probe.getsockname()[0]) == address)
    except OSError:
        return False
