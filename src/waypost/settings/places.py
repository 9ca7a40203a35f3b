"""Where a service keeps what is its own, and whether an address is this machine's."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

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
