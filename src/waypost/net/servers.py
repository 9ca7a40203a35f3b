"""Which resolvers the settings name. Knows how they are written, asks none of them."""

from __future__ import annotations

import ipaddress
from typing import Final

from waypost.errors import ConfigurationError

SYSTEM: Final = "system"
_PORT: Final = 53


def parse_servers(text: str) -> tuple[tuple[str, int], ...] | None:
    """Addresses and ports, in their order; None for those that the machine itself uses."""
    return None if text == SYSTEM else tuple(map(_parse_server, text.split(",")))


def _parse_server(text: str) -> tuple[str, int]:
    """`192.0.2.53`, `192.0.2.53:53`, `[2001:db8::53]:53`, `2001:db8::53`."""
    stripped = text.strip()
    host, port = stripped, ""
    if stripped.startswith("["):
        host, _, port = stripped[1:].partition("]")
        port = port.removeprefix(":")
    elif stripped.count(":") == 1:
        host, _, port = stripped.partition(":")
    try:
        number = int(port or _PORT)
        if not 0 < number < 65536:
            raise ValueError
        return str(ipaddress.ip_address(host)), number
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not the address of a resolver.",
            path="resolver",
            hint="Write it like 192.0.2.53:53 or [2001:db8::53]:53, or `system`.",
        ) from None
