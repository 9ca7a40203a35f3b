"""Which addresses this service connects to on behalf of others. Knows numbers, not names; opens nothing.

Denied is what the IANA special-purpose registries list, whatever is no global unicast, and the addresses at which clouds hand
out credentials. An address that carries another one inside (mapped, NAT64, 6to4, Teredo …) is judged by that one too.
"""

from __future__ import annotations

import csv
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import Final, TypeAlias

from waypost.errors import AddressDenied

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_REGISTRIES: Final = ("iana-ipv4-special-registry-1.csv", "iana-ipv6-special-registry-1.csv")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
# Never lifted, whatever the settings say: who gets an answer here is given the keys of the machine.
_METADATA: Final = _networks(
    "169.254.169.0/24",  # AWS, Google, Azure, Oracle, OpenStack, DigitalOcean
    "169.254.170.0/24",  # AWS containers
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's wire server
    "192.0.0.192/32",  # Oracle, of old
    "fd00:ec2::/32",  # AWS
    "fd20:ce::254/128",  # Google
    "fe80::a9fe:a9fe/128",  # OpenStack
)
_UNROUTABLE: Final = _networks("0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "240.0.0.0/4")
# These stand for the address inside and for nothing else.
_EMBEDDED_ONLY: Final = _networks("::ffff:0:0/96", "64:ff9b::/96")
_LAST_32_BITS: Final = _networks("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # the upper half of the interface identifier


class AddressPolicy:
    """The rule of one deployment. `allow` lifts private ranges; `own` is where this service itself listens."""

    def __init__(self, allow: Iterable[str] = (), own: Iterable[tuple[str, int]] = ()) -> None:
        self._allowed = tuple(map(ipaddress.ip_network, allow))
        self._own = tuple(own)

    def loopback(self) -> list[Address]:
        """What `localhost` stands for here: those loopback addresses that are allowed, else the usual one."""
        usual = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
        return [address for address in usual if self.find_reason(address) is None] or usual[:1]

    def check(self, address: Address, port: int) -> None:
        """Raises AddressDenied, with the reason in its details."""
        reason = self.find_reason(address) or ("own" if self._is_own(address, port) else None)
        if reason is not None:
            raise address_denied(reason)

    def find_reason(self, address: Address) -> str | None:
        """Why an address is denied; None when it is not."""
        inner = list(_embedded_ipv4(address))
        if _contains(_EMBEDDED_ONLY, address):
            return self._judge(inner[0])
        return next((reason for one in (address, *inner) if (reason := self._judge(one)) is not None), None)

    def _judge(self, address: Address) -> str | None:
        if _contains(_METADATA, address):
            return "metadata"
        if _contains(_UNROUTABLE, address):
            return "reserved"
        if _contains(_LOOPBACK, address):
            named = (network for network in self._allowed if _within(network, _LOOPBACK))
            return None if _contains(named, address) else "loopback"
        if _is_special(address) and not _contains(self._allowed, address):
            return "private"
        return None

    def _is_own(self, address: Address, port: int) -> bool:
        real = next(_embedded_ipv4(address), address) if _contains(_EMBEDDED_ONLY, address) else address
        return any(
            port == own_port and (_is_wildcard(host) or _same(host, real)) and _is_local(real)
            for host, own_port in self._own
        )


def address_denied(reason: str) -> AddressDenied:
    if reason == "own":
        return AddressDenied(
            "This is the address of this service itself.",
            path="url",
            hint="Register its agents where they are.",
            details={"reason": reason},
        )
    never = reason in ("metadata", "reserved")
    return AddressDenied(
        f"This address is not one to connect to ({reason}).",
        path="url",
        hint="It cannot be allowed." if never else "Name its range in the setting allow_cidrs, if that is meant.",
        details={"reason": reason},
    )


@cache
def _special_networks() -> tuple[Network, ...]:
    folder = resources.files("waypost.net") / "data"
    return tuple(network for name in _REGISTRIES for network in _parse_registry((folder / name).read_text("utf-8")))


def _parse_registry(text: str) -> Iterator[Network]:
    """The first column of a registry: one block or several, perhaps with the number of a footnote."""
    for row in csv.DictReader(text.splitlines()):
        for block in (row["Address Block"] or "").split(","):
            if "/" in block:
                yield ipaddress.ip_network(block.split("[")[0].strip())


def _is_special(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return True
    return _contains(_special_networks(), address)


def _embedded_ipv4(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address may lead to."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if _contains((*_EMBEDDED_ONLY, *_LAST_32_BITS), address) and number > 1:
        yield last
    if address in _LOCAL_NAT64:  # RFC 6052 §2.2: after 48 bits, around the eight that are zero
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
        return True  # bound by a name: whichever address of this machine it stands for


def _is_local(address: Address) -> bool:
    """Is it an address of this machine? The system is asked which way it would go; nothing is sent."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(ipaddress.ip_address(probe.getsockname()[0]) == address)
    except OSError:
        return False
