"""The keys of outside issuers: from files, which are read again when they change, and from addresses, which are asked again
from time to time. A token can cause a look for a key that is not known, once in a minute, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from waypost import limits
from waypost.errors import ConfigurationError, WaypostError
from waypost.model.credentials import Issuer, is_url
from waypost.server.watched_file import WatchedFile
from waypost.trust.jose import JoseKey, Jws, UnknownKey, parse_jwks
from waypost.trust.jwt import ExternalIssuerVerifier, VerifiedToken

log = logging.getLogger("waypost.server")

FetchKeys: TypeAlias = Callable[[str], Awaitable[bytes]]


class RemoteKeySet:
    """The key set at one address. What was fetched last holds while the issuer is away, but not for ever."""

    def __init__(self, url: str, fetch: FetchKeys, now: Callable[[], float]) -> None:
        self._url = url
        self._fetch = fetch
        self._now = now
        self._held: tuple[JoseKey, ...] = ()
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._turn = asyncio.Lock()

    def keys(self) -> tuple[JoseKey, ...]:
        return self._held if self._now() - self._fetched_at <= limits.JWKS_KEEP_SECONDS else ()

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_stale(self) -> bool:
        return self._now() - self._fetched_at > limits.JWKS_FRESH_SECONDS

    async def refresh(self) -> None:
        """Ask again, unless that was tried a short while ago. Whoever comes meanwhile waits for the same answer."""
        async with self._turn:
            now = self._now()
            if now - self._tried_at < limits.JWKS_REFRESH_SECONDS:
                return
            self._tried_at = now
            try:
                self._held = parse_jwks(await self._fetch(self._url))
                self._fetched_at = self._now()
            except WaypostError as error:
                log.warning("the keys at %s could not be fetched: %s", self._url, error)


class IssuerKeys:
    """One issuer with its keys."""

    def __init__(self, issuer: Issuer, others: Sequence[str], fetch: FetchKeys, now: Callable[[], float]) -> None:
        self.issuer = issuer
        self._verifier = ExternalIssuerVerifier(issuer, others)
        self._now = now
        self._files = [
            WatchedFile(Path(source), "jwks", parse_jwks, now) for source in issuer.jwks if not is_url(source)
        ]
        self.fetched = [RemoteKeySet(source, fetch, now) for source in issuer.jwks if is_url(source)]
        self._secret = None
        if issuer.secret is not None:
            self._secret = WatchedFile(Path(issuer.secret), "jwt_secret", parse_secret, now)

    def verify(self, token: str, signed: Jws) -> VerifiedToken:
        keys = [key for source in (*(file.value() for file in self._files), *self._fetched_keys()) for key in source]
        secret = None if self._secret is None else self._secret.value()
        return self._verifier.verify(token, signed, keys, secret, self._now())

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
    def __init__(self, issuers: Sequence[Issuer], fetch: FetchKeys, now: Callable[[], float]) -> None:
        prefixes = [issuer.prefix for issuer in issuers]
        self._by_name = {issuer.issuer: IssuerKeys(issuer, prefixes, fetch, now) for issuer in issuers}

    def find(self, name: object) -> IssuerKeys | None:
        return self._by_name.get(name) if isinstance(name, str) else None

    async def refresh(self) -> None:
        """Fetch what was never fetched, or is no longer fresh."""
        stale = [source for keys in self._by_name.values() for source in keys.fetched if source.is_stale]
        await asyncio.gather(*(source.refresh() for source in stale))

    def silent(self) -> tuple[str, ...]:
        """Addresses that have given no keys."""
        return tuple(source.url for keys in self._by_name.values() for source in keys.fetched if not source.keys())

    async def keep_fresh(self) -> None:
        """For as long as the service runs: a key that its issuer took back is forgotten here too."""
        while True:
            await self.refresh()
            await asyncio.sleep(limits.JWKS_REFRESH_SECONDS)


def parse_secret(data: bytes) -> bytes:
    """The bytes of the file without its last line end."""
    secret = data.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < limits.SECRET_BYTES:
        raise ConfigurationError(
            f"The secret has {len(secret)} bytes; HS256 needs {limits.SECRET_BYTES} at least.",
            path="jwt_secret",
            hint="Make one with `openssl rand -base64 48`.",
        )
    return secret
