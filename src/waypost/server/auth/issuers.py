"""The keys of external issuers: from files, which are reloaded when they change, and from URLs, which are fetched regularly.

A token with an unknown key causes at most one fetch per minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from waypost import limits
from waypost.errors import ConfigurationError, FetchFailed, WaypostError
from waypost.files import WatchedFile
from waypost.model.credentials import DISCOVERY_PATH, Issuer, check_key_source, is_url
from waypost.model.json import parse_object
from waypost.registry.ports import Clock
from waypost.trust.jose import JoseKey, Jws, UnknownKey, parse_jwks
from waypost.trust.jwt import ExternalIssuerVerifier, VerifiedToken

log = logging.getLogger("waypost.server")

FetchKeys: TypeAlias = Callable[[str], Awaitable[bytes]]


class RemoteKeySet:
    """The JWKS at one URL. If the issuer is unreachable, the last keys stay valid for JWKS_KEEP_SECONDS."""

    def __init__(self, url: str, fetch: FetchKeys, now: Callable[[], float]) -> None:
        self._url = url
        self._fetch = fetch
        self._now = now
        self._keys: tuple[JoseKey, ...] = ()
        self._fetched_at = float("-inf")
        self._attempted_at = float("-inf")
        self._lock = asyncio.Lock()

    def keys(self) -> tuple[JoseKey, ...]:
        return self._keys if self._now() - self._fetched_at <= limits.JWKS_KEEP_SECONDS else ()

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_stale(self) -> bool:
        return self._now() - self._fetched_at > limits.JWKS_FRESH_SECONDS

    async def _locate(self) -> str:
        return self._url

    async def refresh(self) -> None:
        """Fetch, unless that was tried a short while ago. Concurrent callers wait for the same response."""
        async with self._lock:
            now = self._now()
            if now - self._attempted_at < limits.JWKS_REFRESH_SECONDS:
                return
            self._attempted_at = now
            try:
                self._keys = parse_jwks(await self._fetch(await self._locate()))
                self._fetched_at = self._now()
            except WaypostError as error:
                log.warning("cannot fetch the keys at %s: %s", self._url, error)


class DiscoveredKeySet(RemoteKeySet):
    """The JWKS that the OpenID Connect configuration of an issuer names. Both documents are fetched at each refresh."""

    def __init__(self, url: str, issuer: str, fetch: FetchKeys, now: Callable[[], float]) -> None:
        super().__init__(url, fetch, now)
        self._issuer = issuer

    async def _locate(self) -> str:
        configuration = parse_object(await self._fetch(self._url), max_bytes=limits.JWKS_BYTES)
        if configuration.get("issuer") != self._issuer:
            # The document of another issuer, such as one for many tenants, must not provide keys for this one (§4.3).
            raise FetchFailed(
                "The configuration names another issuer.",
                path="issuers",
                hint=f"Set `issuer` exactly as {self._url} writes it, or set `jwks`.",
            )
        address = configuration.get("jwks_uri")
        if not isinstance(address, str) or not is_url(address):
            raise FetchFailed("The configuration has no jwks_uri.", path="issuers", hint="Set `jwks`.")
        check_key_source(address)
        return address


def _make_key_set(source: str, issuer: Issuer, fetch: FetchKeys, now: Callable[[], float]) -> RemoteKeySet:
    if source.endswith(DISCOVERY_PATH):
        return DiscoveredKeySet(source, issuer.issuer, fetch, now)
    return RemoteKeySet(source, fetch, now)


class IssuerKeys:
    def __init__(self, issuer: Issuer, others: Sequence[str], fetch: FetchKeys, clock: Clock) -> None:
        now = clock.now
        self.issuer = issuer
        self._verifier = ExternalIssuerVerifier(issuer, others)
        self._clock = clock
        self._files = [
            WatchedFile(Path(source), "jwks", parse_jwks, now) for source in issuer.key_sources if not is_url(source)
        ]
        self.fetched = [_make_key_set(source, issuer, fetch, now) for source in issuer.key_sources if is_url(source)]
        self._secret = None
        if issuer.secret is not None:
            self._secret = WatchedFile(Path(issuer.secret), "jwt_secret", parse_secret, now)

    def verify(self, token: str, signed: Jws) -> VerifiedToken:
        keys = [key for source in (*(file.value() for file in self._files), *self._fetched_keys()) for key in source]
        secret = None if self._secret is None else self._secret.value()
        return self._verifier.verify(token, signed, keys, secret, self._clock.wall())

    def _fetched_keys(self) -> list[tuple[JoseKey, ...]]:
        return [source.keys() for source in self.fetched]

    async def verify_or_refresh(self, token: str, signed: Jws) -> VerifiedToken:
        try:
            return self.verify(token, signed)
        except UnknownKey:
            if not self.fetched:
                raise
        await asyncio.gather(*(source.refresh() for source in self.fetched))
        return self.verify(token, signed)


class Issuers:
    def __init__(self, issuers: Sequence[Issuer], fetch: FetchKeys, clock: Clock) -> None:
        prefixes = [issuer.prefix for issuer in issuers]
        self._by_name = {issuer.issuer: IssuerKeys(issuer, prefixes, fetch, clock) for issuer in issuers}

    def find(self, name: object) -> IssuerKeys | None:
        return self._by_name.get(name) if isinstance(name, str) else None

    async def refresh(self) -> None:
        """Fetch the key sets that are stale or were never fetched."""
        stale = [source for keys in self._by_name.values() for source in keys.fetched if source.is_stale]
        await asyncio.gather(*(source.refresh() for source in stale))

    def unavailable(self) -> tuple[str, ...]:
        """The URLs without current keys."""
        return tuple(source.url for keys in self._by_name.values() for source in keys.fetched if not source.keys())

    async def keep_fresh(self) -> None:
        """Fetch regularly, so that a key its issuer removed is dropped here too. Runs until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(limits.JWKS_REFRESH_SECONDS)


def parse_secret(data: bytes) -> bytes:
    """The bytes of the file without the final line end."""
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < limits.SECRET_BYTES:
        raise ConfigurationError(
            f"The secret has {len(secret)} bytes; HS256 needs at least {limits.SECRET_BYTES}.",
            path="jwt_secret",
            hint="Make one with `openssl rand -base64 48`.",
        )
    return secret
