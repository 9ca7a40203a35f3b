"""Which resolvers the settings name. Knows how they are written, asks none of them."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from waypost.errors import ConfigurationError
from waypost.lazy import lazy_pattern

SYSTEM_RESOLVER: Final = "system"
_PORTS: Final = {"plain": 53, "tls": 853, "https": 443}
_HOST: Final = lazy_pattern(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z", re.IGNORECASE
)


class DnsServer(msgspec.Struct, frozen=True, kw_only=True):
    """One resolver: over UDP and TCP (`plain`), TLS or HTTPS. `name` is whom its certificate must name."""

    kind: Literal["plain", "tls", "https"]
    host: str
    port: int
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        at = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        if self.kind == "plain":
            return at
        if self.kind == "https":
            return f"https://{at}{self.path}"
        return f"tls://{at}" + (f"#{self.name}" if self.name != self.host else "")

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_trusted_path(self) -> bool:
        """Nobody between here and there can change an answer (D4)."""
        return self.kind != "plain" or self.is_loopback


def parse_resolvers(text: str) -> tuple[DnsServer, ...] | None:
    """In their order; None for those that the machine itself uses."""
    return None if text == SYSTEM_RESOLVER else tuple(map(_parse_server, text.split(",")))


def require_trusted_paths(text: str) -> None:
    """D4: the word of a resolver counts where nobody can put words into its mouth."""
    servers = parse_resolvers(text) or ()
    if not servers or not all(server.is_trusted_path for server in servers):
        raise ConfigurationError(
            "trust_ad takes the word of a resolver that others could speak for.",
            path="trust_ad",
            hint="Name one on this machine, or over TLS or HTTPS, with the setting resolver; or leave trust_ad out.",
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
            f"{text!r} is not the address of a resolver.",
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
    number = int(text or _PORTS[kind])
    if not 0 < number < 65536:
        raise ValueError
    return number


def _parse_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if not _HOST.match(text):
            raise
        return text.lower()
