"""The private keys of hosted domains, one file each with mode 0600.

A key here means that the service may sign for the domain; whether it currently hosts the domain is in the registry. The
service's own host has the service's own key.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import NamedTuple, Protocol

from waypost.errors import ConfigurationError, InvalidKey, InvalidParameter
from waypost.files import create_atomic, file_stamp
from waypost.model.names import parse_domain
from waypost.trust.keys.private_key import (
    SEED_BYTES,
    PrivateKey,
    load_private_key,
    new_private_key,
)

log = logging.getLogger("waypost.server")

HOSTED_KEYS_FOLDER = "keys/hosted"
_KEY_TYPE = "ed25519"  # the only algorithm of ADP (ADP-26)
_Stamp = tuple[int, int, int]


def hosted_key_path(data: Path, domain: str) -> Path:
    """The file of a domain's key. The name is validated because it becomes part of a path."""
    return data / HOSTED_KEYS_FOLDER / f"{parse_domain(domain, 'domain')}.pem"


class ReplacedKey(NamedTuple):
    """An earlier key of the service, and until when it is published."""

    key: PrivateKey
    until: int


class OwnKeys(Protocol):
    """The identity key of the service, which can be rotated while it runs."""

    def current(self) -> PrivateKey: ...

    def replaced(self) -> list[ReplacedKey]: ...

    @property
    def changed_at(self) -> float: ...


class HostedKeys:
    def __init__(self, data: Path, own: OwnKeys, own_host: str) -> None:
        self._data = data
        self._own = own
        self._own_host = own_host.lower().rstrip(".")
        self._cache: dict[str, tuple[_Stamp, PrivateKey | None]] = {}

    def replaced_keys_of(self, domain: str) -> list[ReplacedKey]:
        """Earlier keys that are published beside the current one. Only the service's own host has some."""
        return self._own.replaced() if self._is_own(domain) else []

    def _is_own(self, domain: str) -> bool:
        return domain.lower().rstrip(".") == self._own_host

    def key_of(self, domain: str) -> PrivateKey | None:
        """The key to sign with for a domain; None if there is no usable key."""
        if self._is_own(domain):
            return self._own.current()
        try:
            path = hosted_key_path(self._data, domain)
        except InvalidParameter:
            return None
        stamp = file_stamp(path)
        if stamp is None:
            self._cache.pop(path.name, None)
            return None
        cached = self._cache.get(path.name)
        if cached is None or cached[0] != stamp:
            cached = self._cache[path.name] = (stamp, _load_key_file(path))
        return cached[1]

    def changed_at(self, domain: str) -> float:
        """When the key file of a domain was last changed; 0 if there is none."""
        if self._is_own(domain):
            return self._own.changed_at
        try:
            stamp = file_stamp(hosted_key_path(self._data, domain))
        except InvalidParameter:
            return 0.0
        return 0.0 if stamp is None else stamp[0] / 1e9

    def ensure(self, domain: str) -> PrivateKey | None:
        """The key of a domain, generated if there is no file. An existing file is never replaced."""
        path = hosted_key_path(self._data, domain)
        if not self._is_own(domain) and not path.exists():
            _create_key_file(path)
        return self.key_of(domain)


def _load_key_file(path: Path) -> PrivateKey | None:
    try:
        key = load_private_key(path.read_bytes(), str(path))
    except (OSError, InvalidKey) as error:
        log.warning("cannot use the key %s of a hosted domain: %s", path.name, error)
        return None
    if key.public.kind != _KEY_TYPE:
        log.warning(
            "cannot use the key %s of a hosted domain: it is %s, and ADP needs %s",
            path.name,
            key.public.kind,
            _KEY_TYPE,
        )
        return None
    return key


def _create_key_file(path: Path) -> None:
    """Atomically, and never over a file that another process created meanwhile."""
    try:
        create_atomic(path, new_private_key(_KEY_TYPE, secrets.token_bytes(SEED_BYTES[_KEY_TYPE])).key_file())
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write the key {path.name}: {error.strerror}.",
            path="data",
            hint="Choose a writable folder with --data or WAYPOST_DATA.",
        ) from None
