"""The data folder and its files, and checks of addresses that settings name."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from waypost.errors import ConfigurationError
from waypost.model.names import parse_authority

ADMIN_TOKEN_FILE = "admin.token"

TOKEN_KEY_FILE = "keys/token.pem"

# Entries of the data folder. A new one belongs in one of these tuples: backups, checks and file modes depend on them.
DATABASES = ("waypost.sqlite3", "meeting.db")
INDEX_FOLDER = "index"  # of the search, in the data folder of a service or in the replica of a node
REPLICA_FOLDER = "replica"  # of a node: what it copied from PostgreSQL
SMALL_FILES = (ADMIN_TOKEN_FILE, "cluster.key", "keys", "capabilities", "dns", "announced", "checkpoints")
DERIVED_FILES = ("index", "models", "replica")  # made again when they are missing
RUNTIME_FILES = (
    "waypost.lock",
    "workers.sock",
    *(f"{name}{suffix}" for name in DATABASES for suffix in ("-wal", "-shm", "-journal")),
)
DATA_ENTRIES = (*DATABASES, *SMALL_FILES, *DERIVED_FILES, *RUNTIME_FILES)


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The default data folder by the XDG base directory specification, which ignores a relative XDG_DATA_HOME."""
    home = Path((os.environ if environ is None else environ).get("XDG_DATA_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".local" / "share") / "waypost"


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


DEFAULT_PORT = 8440


def parse_server(text: str) -> str:
    """The URL of a service: as written, or from `host:port` or `host`.

    Without a scheme, a service on this machine is reached by http, any other by https: a token must not cross a network
    unencrypted unless the caller asks for it.
    """
    if "://" in text:
        return check_url(text, "server")
    authority = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    host = parse_authority(authority.partition("/")[0])
    if host is None:
        return check_url(text, "server")
    if not is_loopback(host):
        return check_url(f"https://{authority}", "server")
    has_port = authority.removesuffix("/").rpartition(":")[2].isdecimal()
    return check_url(f"http://{authority}" if has_port else f"http://{authority.rstrip('/')}:{DEFAULT_PORT}", "server")


def check_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        _ = parts.port  # raises if it is not a number
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigurationError(
            f"{url!r} is not the address of a service.",
            path=name,
            hint="Write it like 127.0.0.1:8440 or https://agents.example.net.",
        )
    return url


def check_host(text: str, name: str) -> None:
    if parse_authority(text) is None:
        raise ConfigurationError(
            f"{text!r} is not a host name.", path=name, hint="Write it like agents.example.net, without a scheme."
        )


def check_cidr(text: str, name: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a range of addresses.",
            path=name,
            hint="Write it like 10.0.0.0/8, 127.0.0.1/32 or fd00::/8.",
        ) from None
