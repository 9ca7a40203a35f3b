"""What all parts of a service share: settings, clock, address, and the keys and the token of the data folder."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.app.workers import WorkerSlot
from waypost.errors import ConfigurationError
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.private_files import create_atomic
from waypost.registry.ports import Clock
from waypost.settings import ADMIN_TOKEN_FILE, TOKEN_KEY_FILE, Settings
from waypost.trust import jwt

_IDENTITY_KEY = "keys/identity.pem"
_MIN_TOKEN_CHARS = 32  # a shorter one could be guessed

# (subject, scopes, TTL in seconds, token id) -> (token, end of validity)
MintToken = Callable[[str, tuple[str, ...], int, str], tuple[str, str]]


class AppContext(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    clock: Clock
    port: int | None  # the bound port
    slot: WorkerSlot | None  # of this process, if the service has a worker table
    started_at: float
    base_url: str
    host: str  # the host name of the base URL
    identity_key: Ed25519PrivateKey
    token_key: Ed25519PrivateKey
    admin_token: str

    @property
    def writes(self) -> bool:
        """One process of a service writes; the others follow it."""
        return self.slot is None or self.slot.writes

    @property
    def checks_health(self) -> bool:
        return self.settings.health_checks and self.writes

    @property
    def mint(self) -> MintToken:
        return _make_mint(self.settings, self.token_key, self.clock)


def make_context(
    settings: Settings, clock: Clock | None, port: int | None, slot: WorkerSlot | None, started_at: float | None
) -> AppContext:
    clock = clock or SystemClock()
    base_url = settings.public_url(port)
    return AppContext(
        settings=settings,
        clock=clock,
        port=port,
        slot=slot,
        started_at=clock.now() if started_at is None else started_at,
        base_url=base_url,
        host=urlsplit(base_url).hostname or "localhost",
        identity_key=read_key(settings.data / _IDENTITY_KEY),
        token_key=read_key(settings.data / TOKEN_KEY_FILE),
        admin_token=read_admin_token(settings.data),
    )


def mint_locally(
    settings: Settings, subject: str, scopes: tuple[str, ...], ttl_seconds: int, *, clock: Clock | None = None
) -> tuple[str, str]:
    """A token signed with the key in the data folder, without a running service."""
    mint = _make_mint(settings, read_key(settings.data / TOKEN_KEY_FILE), clock or SystemClock())
    return mint(subject, scopes, ttl_seconds, secrets.token_hex(8))


def _make_mint(settings: Settings, key: Ed25519PrivateKey, clock: Clock) -> MintToken:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int, token_id: str) -> tuple[str, str]:
        token = jwt.mint(
            key,
            issuer=settings.issuer,
            audience=settings.audience,
            subject=subject,
            scopes=scopes,
            ttl_seconds=ttl_seconds,
            now=clock.now(),
            token_id=token_id,
        )
        return token, to_rfc3339(int(clock.now()) + ttl_seconds)

    return mint


# --- Secrets in the data folder -------------------------------------------------------------------


def read_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file, made if the file is missing."""
    pem = _read_or_make(path, lambda: jwt.new_token_key_pem(secrets.token_bytes(32)))
    try:
        return jwt.load_token_key(pem)
    except ValueError:
        raise ConfigurationError(
            f"{path.name} in the data folder is not an Ed25519 key.",
            path="data",
            hint="Remove the file; the next start makes a new key.",
        ) from None


def read_admin_token(data: Path) -> str:
    content = _read_or_make(data / ADMIN_TOKEN_FILE, _new_admin_token)
    token = content.decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS:
        raise ConfigurationError(
            f"{ADMIN_TOKEN_FILE} in the data folder is too short to be safe.",
            path="data",
            hint="Remove the file; the next start makes a new token.",
        )
    return token


def _new_admin_token() -> bytes:
    return f"wp_{secrets.token_urlsafe(32)}\n".encode()


def _read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """A secret file with mode 0600. It is created atomically and never replaces one that another process made meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable_folder(path, error) from None
    try:
        create_atomic(path, make())
        return path.read_bytes()
    except OSError as error:
        raise _unusable_folder(path, error) from None


def _unusable_folder(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {path.parent} cannot be used: {error.strerror}.",
        path="data",
        hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
    )
