"""Parser of the setting `resolver`. Light: it runs at every start."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost.errors import ConfigurationError

SYSTEM_RESOLVER: Final = "system"
_PORTS: Final = {"plain": 53, "tls": 853, "https": 443}
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z", re.IGNORECASE
)


class DnsServer(msgspec.Struct, frozen=True, kw_only=True):
    """A resolver over UDP and TCP (`plain`), TLS or HTTPS. Its certificate must be valid for `name`."""

    kind: Literal["plain", "tls", "https"]
    host: str
    port: int
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        if self.kind == "plain":
            return address
        if self.kind == "https":
            return f"https://{address}{self.path}"
        return f"tls://{address}" + (f"#{self.name}" if self.name != self.host else "")

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_trusted_path(self) -> bool:
        """Whether nobody on the path can change an answer (D4)."""
        return self.kind != "plain" or self.is_loopback


def parse_resolvers(text: str) -> tuple[DnsServer, ...] | None:
    """In order; None for `system`, the resolvers of this machine."""
    return None if text == SYSTEM_RESOLVER else tuple(map(_parse_server, text.split(",")))


def require_trusted_paths(text: str) -> None:
    """D4: the AD bit counts only if nobody on the path can forge it."""
    servers = parse_resolvers(text) or ()
    if not servers or not all(server.is_trusted_path for server in servers):
        raise ConfigurationError(
            "trust_ad needs a resolver on this machine, or one over TLS or HTTPS: others could forge the AD bit.",
            path="trust_ad",
            hint="Name such a resolver in the setting resolver, or remove trust_ad.",
        )


def make_plain_server(host: str, port: int = _PORTS["plain"]) -> DnsServer:
    return DnsServer(kind="plain", host=host, port=port)


def _parse_server(text: str) -> DnsServer:
    stripped = text.strip()
    try:
        if stripped.startswith("https://"):
            return _parse_https_server(stripped)
        if stripped.startswith("tls://"):
            return _parse_tls_server(stripped.removeprefix("tls://"))
        host, port = _split_host_port(stripped)
        return make_plain_server(str(ipaddress.ip_address(host)), _parse_port(port, "plain"))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a resolver.",
            path="resolver",
            hint="Write it like 192.0.2.53:53, [2001:db8::53]:53, tls://192.0.2.53#dns.example or "
            "https://dns.example/dns-query, or `system`.",
        ) from None


def _parse_tls_server(text: str) -> DnsServer:
    """`192.0.2.53#dns.example`, `192.0.2.53:853`, `dns.example`."""
    address, _, name = text.partition("#")
    host, port = _split_host_port(address)
    return DnsServer(kind="tls", host=_parse_host(host), port=_parse_port(port, "tls"), name=_parse_host(name or host))


def _parse_https_server(text: str) -> DnsServer:
    parts = urlsplit(text)
    if parts.username or parts.password or parts.query or parts.fragment or not parts.hostname:
        raise ValueError
    host = _parse_host(parts.hostname)
    port = _PORTS["https"] if parts.port is None else parts.port
    return DnsServer(
        kind="https", host=host, port=_parse_port(str(port), "https"), name=host, path=parts.path or "/dns-query"
    )


def _split_host_port(text: str) -> tuple[str, str]:
    """`192.0.2.53`, `192.0.2.53:53`, `[2001:db8::53]:53`, `2001:db8::53`."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, ""


def _parse_port(text: str, kind: str) -> int:
    port = int(text or _PORTS[kind])
    if not 0 < port < 65536:
        raise ValueError
    return port


def _parse_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if not _HOST.match(text):
            raise
        return text.lower()
