"""The settings of commands and the SDK: the service to connect to, and the credentials to use."""

# No `from __future__ import annotations`: `read_rows` reads the annotations.
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from waypost.settings.locations import ADMIN_TOKEN_FILE, is_loopback
from waypost.settings.setting import Row, read_rows


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of these settings. Their values, with the defaults found, are `ConnectionSettings`."""

    server: Annotated[
        str | None,
        Row(
            "The service that a command or a `Client` connects to: a URL, HOST:PORT or HOST. Without a scheme it is https,"
            " and http on this machine.",
            default="http://127.0.0.1:PORT",
            metavar="URL|HOST:PORT",
        ),
    ] = None
    token: Annotated[
        str | None,
        Row(
            "The bearer token sent with each request.",
            default="DATA/admin.token, if the service is on this machine",
            metavar="TOKEN",
        ),
    ] = None
    timeout: Annotated[float, Row("How long to wait for an answer, in seconds.", minimum=0.001, metavar="SECONDS")] = (
        30.0
    )
    ca: Annotated[
        Path | None,
        Row(
            "A file of certificate authorities (PEM) that the service's certificate is verified with.",
            default="the public authorities",
            metavar="FILE",
        ),
    ] = None
    cert: Annotated[
        Path | None,
        Row(
            "The client certificate to present (PEM), with its key or next to `cert_key`.",
            default="none",
            metavar="FILE",
        ),
    ] = None
    cert_key: Annotated[
        Path | None,
        Row("The private key of the client certificate (PEM).", default="the key in `cert`", metavar="FILE"),
    ] = None


# A file in the working folder must not redirect a credential to another server.
CLIENT_SETTINGS = read_rows(ClientSettings, in_file=False)


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved connection: base URL and credentials."""

    base_url: str
    token: str | None
    timeout: float
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    named: bool = False  # by a flag or a variable, not found on this machine


def find_admin_token(data: Path, base_url: str) -> str | None:
    """The admin token of the service on this machine. It is never sent to another host."""
    if not is_loopback(urlsplit(base_url).hostname or ""):
        return None
    try:
        return (data / ADMIN_TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, ValueError):
        return None
