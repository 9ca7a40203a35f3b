"""The keys that this service holds for the domains it answers for: one file each, for its owner alone.

A key here says that the service may sign for the domain, not that it answers for it now: who asks has looked that up in the
registry. The service's own name has the service's own key.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from waypost.errors import ConfigurationError, InvalidKey, InvalidParameter
from waypost.model.names import parse_domain
from waypost.private_files import create_atomic
from waypost.server.watched_file import file_stamp
from waypost.trust.keys.private_key import (
    SEED_BYTES,
    PrivateKey,
    from_native_private,
    load_private_key,
    new_private_key,
)

log = logging.getLogger("waypost.server")

HOSTED_KEYS_FOLDER = "keys/hosted"
_KEY_TYPE = "ed25519"  # the only kind that ADP has (ADP-26)
_Stamp = tuple[int, int, int]


def hosted_key_path(data: Path, domain: str) -> Path:
    """Where the key of a domain is. The name is checked first: it becomes a path."""
    return data / HOSTED_KEYS_FOLDER / f"{parse_domain(domain, 'domain')}.pem"


class HostedKeys:
    def __init__(self, data: Path, own: object, own_host: str) -> None:
        self._data = data
        self._own = own if isinstance(own, PrivateKey) else from_native_private(own)
        self._own_host = own_host.lower().rstrip(".")
        self._read: dict[str, tuple[_Stamp, PrivateKey | None]] = {}

    def key_of(self, domain: str) -> PrivateKey | None:
        """The key to sign with for a domain; None when there is none, or none that can be used."""
        if domain.lower().rstrip(".") == self._own_host:
            return self._own
        try:
            path = hosted_key_path(self._data, domain)
        except InvalidParameter:
            return None
        stamp = file_stamp(path)
        if stamp is None:
            self._read.pop(path.name, None)
            return None
        kept = self._read.get(path.name)
        if kept is None or kept[0] != stamp:
            kept = self._read[path.name] = (stamp, _load_key_file(path))
        return kept[1]

    def changed_at(self, domain: str) -> float:
        """When the key of a domain became what it is; 0 for one that is not a file of its own."""
        try:
            stamp = file_stamp(hosted_key_path(self._data, domain))
        except InvalidParameter:
            return 0.0
        return 0.0 if stamp is None else stamp[0] / 1e9

    def ensure(self, domain: str) -> PrivateKey | None:
        """The key of a domain, made when there is none. One that is there stays, whatever it is."""
        path = hosted_key_path(self._data, domain)
        if domain.lower().rstrip(".") != self._own_host and not path.exists():
            _create_key_file(path)
        return self.key_of(domain)


def _load_key_file(path: Path) -> PrivateKey | None:
    try:
        key = load_private_key(path.read_bytes(), str(path))
    except (OSError, InvalidKey) as error:
        log.warning("the key %s of a hosted domain cannot be used: %s", path.name, error)
        return None
    if key.public.kind != _KEY_TYPE:
        log.warning("the key %s of a hosted domain is %s; ADP takes %s only", path.name, key.public.kind, _KEY_TYPE)
        return None
    return key


def _create_key_file(path: Path) -> None:
    """Whole or not at all, and never over one that another process made meanwhile."""
    try:
        create_atomic(path, new_private_key(_KEY_TYPE, secrets.token_bytes(SEED_BYTES[_KEY_TYPE])).pem())
    except OSError as error:
        raise ConfigurationError(
            f"The key {path.name} cannot be written: {error.strerror}.",
            path="data",
            hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
        ) from None
