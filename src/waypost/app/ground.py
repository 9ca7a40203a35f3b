"""What everything stands on: the settings, the clock, the address, the keys and the token of the data folder."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost.app.secret_files import read_admin_token, read_key
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.registry.ports import Clock
from waypost.settings import TOKEN_KEY_FILE, Settings
from waypost.trust import tokens
from waypost.workers.board import Place

_IDENTITY_KEY = "keys/identity.pem"

Mint = Callable[[str, tuple[str, ...], int, str], tuple[str, str]]  # subject, scopes, seconds, id: token, until when


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    clock: Clock
    port: int | None  # that was bound
    place: Place | None  # of this process among those of the service
    started_at: float
    base_url: str
    host: str  # by which others know the service
    identity_key: Ed25519PrivateKey
    token_key: Ed25519PrivateKey
    admin_token: str

    @property
    def writes(self) -> bool:
        """Of several processes one writes, and the others follow it."""
        return self.place is None or self.place.writes

    @property
    def mint(self) -> Mint:
        return _minter(self.settings, self.token_key, self.clock)


def make_ground(
    settings: Settings, clock: Clock | None, port: int | None, place: Place | None, started_at: float | None
) -> Ground:
    clock = clock or SystemClock()
    base_url = settings.public_url(port)
    return Ground(
        settings=settings,
        clock=clock,
        port=port,
        place=place,
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
    mint = _minter(settings, read_key(settings.data / TOKEN_KEY_FILE), clock or SystemClock())
    return mint(subject, scopes, ttl_seconds, secrets.token_hex(8))


def _minter(settings: Settings, key: Ed25519PrivateKey, clock: Clock) -> Mint:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int, token_id: str) -> tuple[str, str]:
        token = tokens.mint(
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
