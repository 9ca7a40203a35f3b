"""How a client reaches a service, as a value; and the admin token, which never leaves this machine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from waypost.settings.places import ADMIN_TOKEN_FILE, is_loopback


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client goes, and as whom."""

    base_url: str
    token: str | None
    timeout: float
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    named: bool = False  # by a flag or a variable, rather than found on this machine


def find_admin_token(data: Path, base_url: str) -> str | None:
    """The admin token of the service on this machine. It is never offered to another host."""
    if not is_loopback(urlsplit(base_url).hostname or ""):
        return None
    try:
        return (data / ADMIN_TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None
