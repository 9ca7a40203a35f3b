"""Strict URL parser for outgoing requests. Pure: no lookup, no connection.

URL parsers disagree about user names, backslashes, tabs, odd numbers and unusual dots, and each disagreement is a way around
a filter. A URL that is not in the one canonical form is rejected, not repaired.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.net.address_policy import Address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_FIRST_UNPRIVILEGED_PORT: Final = 1024
# Unprivileged ports of databases, container engines and mail servers, which a stray GET must not reach.
# fmt: off
DENIED_PORTS: Final = frozenset((
    1433, 1521, 1723, 1883, 2049, 2181, 2375, 2376, 2379, 2380, 3128, 3306, 3389, 4045, 5060, 5061, 5432, 5672, 5900, 5984,
    5985, 5986, 6000, 6379, 6443, 6660, 6665, 6666, 6667, 6668, 6669, 6697, 8009, 8500, 9042, 9092, 9200, 9300, 10080, 10250,
    10255, 11211, 15672, 26379, 27017, 27018,
))
# fmt: on

_URL = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?]*)(?P<target>[/?].*)?\Z", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>0|[1-9][0-9]{0,4}))?\Z")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_TARGET = re.compile(r"[!-\"$-\[\]-~]*\Z")  # printable ASCII without space, # and backslash
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")


class FetchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The destination of a request. `address` is set if the host is an IP address; then no name is resolved."""

    scheme: str
    host: str  # lower case, without brackets
    port: int
    target: str = "/"  # path and query
    address: Address | None = None

    @property
    def authority(self) -> str:
        """For the Host header: with the port unless it is the default of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def parse_url(text: str, *, https_only: bool = False) -> FetchTarget:
    """Raises InvalidParameter unless the text is an http or https URL in canonical form."""
    if len(text) > limits.FETCH_URL_CHARS:
        raise _invalid_url(f"has {len(text)} characters; the limit is {limits.FETCH_URL_CHARS}", "Shorten it.")
    match = _URL.match(text)
    if match is None or (scheme := match["scheme"].lower()) not in _DEFAULT_PORTS:
        raise _invalid_url("is not an http or https URL", "Use https:// or http://.")
    if https_only and scheme != "https":
        raise _invalid_url("is not an https URL", "Use https://.")
    host, port = _parse_authority(match["authority"], scheme)
    target = match["target"] or "/"
    if not _TARGET.match(target):
        raise _invalid_url("has invalid characters in its path or query", "Percent-encode them.")
    return FetchTarget(
        scheme=scheme,
        host=host.strip("[]"),
        port=port,
        target=target if target.startswith("/") else f"/{target}",
        address=_parse_host(host),
    )


def join_url(base: FetchTarget, reference: str) -> str:
    """The absolute URL of a redirect's Location: a URL, `//host…` or `/path`. Other forms are rejected."""
    if "://" in reference.split("?", 1)[0]:
        return reference
    if reference.startswith("//"):
        return f"{base.scheme}:{reference}"
    if reference.startswith("/"):
        return f"{base.origin}{reference}"
    raise _invalid_url("redirects to a relative path", "Redirect to an absolute URL.")


def is_same_site(one: FetchTarget, other: FetchTarget) -> bool:
    """Whether the hosts are equal or one is a subdomain of the other. Siblings are not the same site."""
    if one.host == other.host:
        return True
    if one.address is not None or other.address is not None:
        return False
    shorter, longer = sorted((one.host, other.host), key=len)
    return "." in shorter and longer.endswith(f".{shorter}")


def origin_of(url: str) -> str | None:
    """The origin of a URL, written like `FetchTarget.origin`; None for a URL that would be rejected."""
    try:
        return parse_url(url).origin
    except InvalidParameter:
        return None


def _parse_authority(authority: str, scheme: str) -> tuple[str, int]:
    if "@" in authority:
        raise _invalid_url("contains user information", "Remove everything before the @.")
    match = _AUTHORITY.match(authority)
    if match is None:
        raise _invalid_url(
            "has an invalid host name", "Write it in ASCII (xn-- for other scripts), like agents.example.com."
        )
    port = int(match["port"]) if match["port"] is not None else _DEFAULT_PORTS[scheme]
    is_web_port = port in _DEFAULT_PORTS.values() or _FIRST_UNPRIVILEGED_PORT <= port <= 65535
    if not is_web_port or port in DENIED_PORTS:
        raise _invalid_url(
            f"has port {port}, which is not allowed", "Use 443, 80, or a port from 1024 that serves HTTP."
        )
    return match["host"].lower(), port


def _parse_host(host: str) -> Address | None:
    """The IP address if the host is one; None for a name."""
    if host.startswith("["):
        address = _find_address(host[1:-1])
        if not isinstance(address, ipaddress.IPv6Address) or _shortest_text(address) != host[1:-1]:
            raise _invalid_url("has an IPv6 address that is not in its shortest form", "Write it like [2001:db8::1].")
        return address
    labels = host.split(".")
    if _NUMBER.match(labels[-1]):
        address = _find_address(host)
        if address is None or str(address) != host:
            raise _invalid_url(
                "has a host that is neither a name nor an IPv4 address", "Write four decimal numbers, like 192.0.2.1."
            )
        return address
    if len(host) > 253 or not all(map(_LABEL.match, labels)):
        raise _invalid_url("has an invalid host name", "Write it like agents.example.com, without a final dot.")
    return None


def _shortest_text(address: ipaddress.IPv6Address) -> str:
    """The same text on every version: Python 3.13 writes the IPv4 address inside a mapped one with dots."""
    if address.ipv4_mapped is None:
        return str(address)
    number = int(address.ipv4_mapped)
    return f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"


def _find_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _invalid_url(problem: str, hint: str) -> InvalidParameter:
    return InvalidParameter(f"The URL {problem}.", path="url", hint=hint)
