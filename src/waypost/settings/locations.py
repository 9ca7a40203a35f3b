"""Where a service keeps what is its own, and whether an address is this machine's."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from waypost.errors import ConfigurationError

ADMIN_TOKEN_FILE = "admin.token"

TOKEN_KEY_FILE = "keys/token.pem"


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The default data folder, by the XDG base directory rule: a relative XDG_DATA_HOME does not count."""
    home = Path((os.environ if environ is None else environ).get("XDG_DATA_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "share") / "waypost"


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# ---- What a setting may name as the address of a service, and as a range of addresses.


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


def check_cidr(text: str, name: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a range of addresses.",
            path=name,
            hint="Write it like 10.0.0.0/8, 127.0.0.1/32 or fd00::/8.",
        ) from None
