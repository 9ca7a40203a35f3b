"""What a setting may name as the address of a service, and as a range of addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from waypost.errors import ConfigurationError


def check_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        _ = parts.port  # raises when it is not a number
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"{url!r} is not the address of a service.", path=name, hint="Write it like http://127.0.0.1:8440."
        )
    return url


def check_range_of_addresses(text: str, name: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a range of addresses.",
            path=name,
            hint="Write it like 10.0.0.0/8, 127.0.0.1/32 or fd00::/8.",
        ) from None
