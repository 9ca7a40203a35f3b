"""AI Catalogs: a catalog and those in it (ARD-8, ARD-11), with conditional requests and bounds.

If any catalog has changed, all of them are read: only then is it known which entries are gone. A catalog that cannot be reached
makes a reading incomplete, and an incomplete reading removes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.documents import document_entry
from waypost.federation.kinds.port import UNREADABLE, PeerMissing, PeerPage, PeerProblem
from waypost.federation.kinds.requests import NOT_MODIFIED, PeerRequests
from waypost.federation.peers import Peer
from waypost.model.versions import compare_versions
from waypost.protocols.dialects import unpack_documents
from waypost.registry.ports import Clock, OutboundSender
from waypost.responses.federation import FeedEntry

CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_CATALOG_TYPES: Final = ("application/ai-catalog+json", "application/ai-catalog")
_REGISTRY_TYPES: Final = ("application/ai-registry+json", "application/ai-registry")


class _CatalogEntry(msgspec.Struct):
    type: Any = None
    mediaType: Any = None  # noqa: N815 - the name in the catalog
    url: Any = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    version: Any = None
    updatedAt: Any = None  # noqa: N815

    @property
    def media_type(self) -> str:
        kind = self.type or self.mediaType
        return kind.partition(";")[0].strip().lower() if isinstance(kind, str) else ""


class CatalogCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The catalogs of the last complete reading, each with its validator: an entity tag, or the time of its last change."""

    roots: tuple[str, ...]
    validators: dict[str, str] = {}

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()


def parse_catalog_cursor(cursor: str | None) -> CatalogCursor | None:
    try:
        return None if cursor is None else msgspec.json.decode(cursor, type=CatalogCursor)
    except msgspec.MsgspecError:
        return None


class AiCatalog:
    """The catalog at an address, or at the well-known path of a site."""

    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._crawler = CatalogCrawler(PeerRequests(sender), clock)

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        url = peer.url if peer.url.endswith(".json") else peer.url + CATALOG_PATH
        return await self._crawler.read(peer, (url,), parse_catalog_cursor(cursor))


class CatalogCrawler:
    def __init__(self, requests: PeerRequests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def read(self, peer: Peer, roots: Sequence[str], known: CatalogCursor | None) -> PeerPage:
        """All entries of these catalogs, or none if nothing has changed."""
        if known is not None and known.roots == tuple(roots) and await self._is_unchanged(peer, known):
            return PeerPage(entries=(), cursor=known.dump(), service_id=peer.url, is_last=True)
        crawl = _Crawl(self._requests, peer, self._clock.now())
        for url in roots:
            await crawl.read(url)
        return PeerPage(
            entries=list(crawl.entries.values()),
            cursor=CatalogCursor(tuple(roots), crawl.validators).dump() if crawl.is_complete else None,
            service_id=peer.url,
            is_last=True,
            starts_over=True,
            ends_snapshot=crawl.is_complete,
            bad=crawl.bad,
            search_url=crawl.search_url,
        )

    async def _is_unchanged(self, peer: Peer, known: CatalogCursor) -> bool:
        """Ask about each catalog until one has changed."""
        for url, validator in known.validators.items():
            if not validator:
                return False
            name = "If-None-Match" if validator.endswith('"') else "If-Modified-Since"
            response = await self._requests.crawl(peer, url, {name: validator})
            if response.status != NOT_MODIFIED:
                return False
        return bool(known.validators)


class _Crawl:
    """One reading of catalogs."""

    def __init__(self, requests: PeerRequests, peer: Peer, now: float) -> None:
        self._requests = requests
        self._peer = peer
        self._now = now
        self._catalogs = 0
        self._bytes = 0
        self.entries: dict[str, FeedEntry] = {}
        self._versions: dict[str, _CatalogEntry] = {}
        self.validators: dict[str, str] = {}  # of each visited catalog
        self.bad = 0
        self.is_complete = True
        self.search_url = ""

    async def read(self, url: str) -> None:
        """Raises PeerProblem if the catalog cannot be read; those in it may be missing."""
        self.validators[url] = ""
        await self._fetch(url, limits.PEER_CATALOG_DEPTH)

    async def _fetch(self, url: str, depth: int) -> None:
        self._catalogs += 1
        response = await self._requests.crawl(self._peer, url)
        self._bytes += len(response.body)
        if self._bytes > limits.PEER_CRAWL_BYTES:
            raise PeerProblem(f"Its catalogs have more than {limits.PEER_CRAWL_BYTES >> 20} MiB.")
        self.validators[url] = response.headers.get("etag") or response.headers.get("last-modified") or ""
        await self._walk(_unpack(response.body, url), response.url, depth)

    async def _walk(self, documents: Sequence[bytes], base: str, depth: int) -> None:
        for document in documents:
            try:
                entry = msgspec.json.decode(document, type=_CatalogEntry)
            except UNREADABLE:
                self.bad += 1
                continue
            if entry.media_type in _CATALOG_TYPES:
                await self._nest(entry, base, depth - 1)
            else:
                self._add(document, entry, base)

    async def _nest(self, entry: _CatalogEntry, base: str, depth: int) -> None:
        """A catalog in a catalog, inline or by its address. The tree is cut at a depth, and no address is read twice."""
        if depth < 1:
            return
        if bytes(entry.data) != b"null":
            try:
                await self._walk(_unpack(bytes(entry.data), base), base, depth)
            except PeerProblem:
                self.bad += 1
            return
        url = find_address(base, entry.url)
        if url is None:
            self.bad += 1
        elif url not in self.validators and self._catalogs < limits.PEER_CATALOGS:
            self.validators[url] = ""
            await self._fetch_nested(url, depth)

    async def _fetch_nested(self, url: str, depth: int) -> None:
        """One that is not there is empty; one that cannot be read now says nothing about its entries."""
        try:
            await self._fetch(url, depth)
        except PeerMissing:
            self.bad += 1
        except PeerProblem:
            self.bad += 1
            self.is_complete = False

    def _add(self, document: bytes, members: _CatalogEntry, base: str) -> None:
        if members.media_type in _REGISTRY_TYPES and not self.search_url:
            self.search_url = self._own_search(find_address(base, members.url))
        updated_at = members.updatedAt if isinstance(members.updatedAt, str) else None
        try:
            entry = document_entry(self._peer, document, "ard", self._now, updated_at)
        except (WaypostError, *UNREADABLE):
            self.bad += 1
            return
        if entry.id not in self.entries:
            if len(self.entries) >= min(self._peer.max_records, limits.PEER_CATALOG_ENTRIES):
                raise PeerProblem(f"It has more than {len(self.entries)} entries.")
        elif not _is_newer(members, self._versions[entry.id]):
            return
        self.entries[entry.id] = entry
        self._versions[entry.id] = members

    def _own_search(self, url: str | None) -> str:
        """The search of the registry behind this catalog, not one that the catalog lists."""
        if url is None or urlsplit(url).netloc != urlsplit(self._peer.url).netloc:
            return ""
        return url.rstrip("/").removesuffix("/search")


def _is_newer(entry: _CatalogEntry, other: _CatalogEntry) -> bool:
    """ARD-7: the highest version is current; without versions, the newest."""
    versions = [each.version if isinstance(each.version, str) else None for each in (entry, other)]
    order = compare_versions(*versions)
    if order is not None and order != 0:
        return order > 0
    times = [each.updatedAt if isinstance(each.updatedAt, str) else "" for each in (entry, other)]
    return times[0] > times[1]


def _unpack(body: bytes, url: str) -> list[bytes]:
    try:
        documents = unpack_documents(body) if is_catalog(body) else None
    except (WaypostError, *UNREADABLE):
        documents = None
    if documents is None:
        raise PeerProblem(f"{url} is not an AI Catalog.")
    return documents


def is_catalog(body: bytes) -> bool:
    """Other collections are lists of agents, too, but no catalogs."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return False
    return "specVersion" in members and "entries" in members


def find_address(base: str, url: object) -> str | None:
    """An absolute http address without a fragment."""
    if not isinstance(url, str) or not url.strip() or len(url) > limits.FETCH_URL_CHARS:
        return None
    try:
        address = urldefrag(urljoin(base, url.strip())).url
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    return address if parts.scheme in ("http", "https") and parts.hostname else None
