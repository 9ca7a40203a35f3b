"""The keys with which a zone signs its records and entries (dns-aid.md §7), from the one place that follows from its name.

A pointer to keys, in a record or a signature, would be as forged as the rest of it: none is followed.
"""

from __future__ import annotations

from typing import Final

from waypost.domains.journal import Journal, code_of
from waypost.domains.ports import DomainFetcher
from waypost.errors import AddressDenied, FetchFailed, InvalidParameter, RateLimited, WaypostError
from waypost.trust.domains import registrable_of
from waypost.trust.jose import JoseKey, parse_jwks

_PATH: Final = "/.well-known/dns-aid-jwks.json"
_HOST: Final = "dns-aid."


def zones_of(name: str) -> list[str]:
    """The zones that a name may be in, the closest first, none above what is somebody's own."""
    top = registrable_of(name)
    above = name.partition(".")[2] if name != top else name
    return list(dict.fromkeys((above, top)))


def places_of(zone: str) -> list[str]:
    """A host of its own, then the zone's, as before there was one."""
    return [f"https://{_HOST}{zone}{_PATH}", f"https://{zone}{_PATH}"]


class ZoneKeys:
    """Of one resolution: each zone is asked once."""

    def __init__(self, journal: Journal, fetcher: DomainFetcher) -> None:
        self._journal = journal
        self._fetcher = fetcher
        self._kept: dict[str, tuple[JoseKey, ...]] = {}

    async def of_zone(self, zone: str) -> tuple[JoseKey, ...]:
        if zone not in self._kept:
            self._kept[zone] = await self._fetch(zone)
        return self._kept[zone]

    async def of_record(self, owner: str) -> tuple[JoseKey, ...]:
        for zone in zones_of(owner):
            keys = await self.of_zone(zone)
            if keys:
                return keys
        return ()

    async def _fetch(self, zone: str) -> tuple[JoseKey, ...]:
        """None where there are none to be had, which is no sign of anything."""
        for url in places_of(zone):
            self._journal.fetches += 1
            try:
                fetched = await self._fetcher.fetch(url, "jwks")
                keys = parse_jwks(fetched.body) if fetched.is_success else ()
            except (FetchFailed, AddressDenied, InvalidParameter, RateLimited) as error:
                self._journal.tell("keys", "unknown", error.message, code=code_of(error, "denied"), url=url)
                continue
            except WaypostError as error:
                self._journal.tell("keys", "unknown", error.message, code="malformed", url=url)
                continue
            if keys:
                self._journal.tell("keys", "passed", url=url, keys=len(keys))
                return keys
            self._journal.tell("keys", "unknown", f"it answered with status {fetched.status}", code="status", url=url)
        return ()
