"""AI Catalogs: a catalog and those in it (ARD-8, ARD-11), and the list of a registry (ARD-31), with conditional requests and
bounds.

If any catalog has changed, all of them are read: only then is it known which entries are gone. A catalog that cannot be reached
makes a reading incomplete, and an incomplete reading removes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.documents import document_entry, split_json
from waypost.federation.kinds.port import UNREADABLE, PeerMissing, PeerPage, PeerProblem, PeerRefusal
from waypost.federation.kinds.requests import NOT_MODIFIED, PeerRequests
from waypost.federation.peers import Peer
from waypost.model.versions import compare_versions
from waypost.protocols.dialects import unpack_documents
from waypost.registry.ports import Clock, FetchResponse, OutboundSender
from waypost.responses.federation import FeedEntry
from waypost.time_slice import TimeSlice

CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_CATALOG_TYPES: Final = ("application/ai-catalog+json", "application/ai-catalog")
REGISTRY_TYPES: Final = ("application/ai-registry+json", "application/ai-registry")


class CatalogItem(msgspec.Struct):
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
    """The catalogs and pages of the last complete reading, each with its validator: an entity tag, or the time of its last
    change."""

    roots: tuple[str, ...]
    validators: dict[str, str] = {}
    registry: str = ""  # the base of the registry whose list was read, too

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
            return _unchanged_page(peer, known)
        crawl = _Crawl(self._requests, peer, self._clock.now())
        for url in roots:
            await crawl.read(url)
        return _page_of(peer, crawl, CatalogCursor(tuple(roots), crawl.validators))

    async def read_registry(self, peer: Peer, roots: Sequence[str], base: str, known: CatalogCursor | None) -> PeerPage:
        """The same, with the list of the registry that the catalogs name. `base` is the one whose list was read before, and
        the only one if there are no catalogs."""
        if known is not None and await self._is_unchanged(peer, known):
            return _unchanged_page(peer, known)
        crawl = _Crawl(self._requests, peer, self._clock.now())
        for url in roots:
            await crawl.read(url)
        listed = base
        if not roots:
            crawl.search_url = base
            await crawl.read_list(base)
        else:
            listed = await crawl.try_list(crawl.search_url, is_expected=crawl.search_url == base)
        return _page_of(peer, crawl, CatalogCursor(tuple(roots), crawl.validators, listed))

    async def has_list(self, peer: Peer, base: str) -> bool:
        """Whether a registry lists its agents (ARD-31)."""
        try:
            await split_json(parse_list, (await self._requests.crawl(peer, list_url(base))).body)
        except PeerRefusal:
            raise
        except PeerProblem:
            return False
        return True

    async def _is_unchanged(self, peer: Peer, known: CatalogCursor) -> bool:
        """Ask about each catalog until one has changed."""
        for url, validator in known.validators.items():
            if not validator:
                return False
            name = "If-None-Match" if validator.endswith('"') else "If-Modified-Since"
            try:
                response = await self._requests.crawl(peer, url, {name: validator})
            except PeerProblem:
                return False  # if it is one, reading everything names it; a page of a list may only have moved
            if response.status != NOT_MODIFIED:
                return False
        return bool(known.validators)


def _unchanged_page(peer: Peer, known: CatalogCursor) -> PeerPage:
    return PeerPage(entries=(), cursor=known.dump(), service_id=peer.url, is_last=True)


def _page_of(peer: Peer, crawl: _Crawl, cursor: CatalogCursor) -> PeerPage:
    return PeerPage(
        entries=list(crawl.entries.values()),
        cursor=cursor.dump() if crawl.is_complete else None,
        service_id=peer.url,
        is_last=True,
        starts_over=True,
        ends_snapshot=crawl.is_complete,
        bad=crawl.bad,
        search_url=crawl.search_url,
    )


class _Crawl:
    """One reading of catalogs."""

    def __init__(self, requests: PeerRequests, peer: Peer, now: float) -> None:
        self._requests = requests
        self._peer = peer
        self._now = now
        self._catalogs = 0
        self._bytes = 0
        self.entries: dict[str, FeedEntry] = {}
        self._versions: dict[str, CatalogItem] = {}
        self.validators: dict[str, str] = {}  # of each visited catalog
        self.bad = 0
        self.is_complete = True
        self.search_url = ""

    async def read(self, url: str) -> None:
        """Raises PeerProblem if the catalog cannot be read; those in it may be missing."""
        self.validators[url] = ""
        await self._fetch(url, limits.PEER_CATALOG_DEPTH)

    async def read_list(self, base: str) -> None:
        """The list of a registry, page by page. Raises PeerProblem."""
        token, tokens = "", set[str]()
        while True:
            url = list_url(base, token)
            response = await self._get(url)
            items, token = await split_json(parse_list, response.body)
            self.validators[url] = _validator(response)
            await self._walk(items, response.url, limits.PEER_CATALOG_DEPTH)
            if not token:
                return
            if token in tokens or len(tokens) > limits.PEER_CATALOG_ENTRIES:
                raise PeerProblem("The pages of its list go round in a circle.")
            tokens.add(token)

    async def try_list(self, base: str, *, is_expected: bool) -> str:
        """The same, but a registry need not have a list; `is_expected` if it had one. Returns `base` if it was read."""
        if not base:
            return ""
        known = len(self.validators)
        try:
            await self.read_list(base)
        except PeerMissing:
            return ""
        except PeerProblem:
            if is_expected or len(self.validators) > known:  # it broke off: what it lacks is not gone
                self.bad += 1
                self.is_complete = False
            return ""
        return base

    async def _get(self, url: str) -> FetchResponse:
        response = await self._requests.crawl(self._peer, url)
        self._bytes += len(response.body)
        if self._bytes > limits.PEER_CRAWL_BYTES:
            raise PeerProblem(f"Its catalogs have more than {limits.PEER_CRAWL_BYTES >> 20} MiB.")
        return response

    async def _fetch(self, url: str, depth: int) -> None:
        self._catalogs += 1
        response = await self._get(url)
        self.validators[url] = _validator(response)
        await self._walk(await _unpack(response.body, url), response.url, depth)

    async def _walk(self, documents: Sequence[bytes], base: str, depth: int) -> None:
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        for document in documents:
            await time_slice.step()
            try:
                entry = msgspec.json.decode(document, type=CatalogItem)
            except UNREADABLE:
                self.bad += 1
                continue
            if entry.media_type in _CATALOG_TYPES:
                await self._nest(entry, base, depth - 1)
            else:
                self._add(document, entry, base)

    async def _nest(self, entry: CatalogItem, base: str, depth: int) -> None:
        """A catalog in a catalog, inline or by its address. The tree is cut at a depth, and no address is read twice."""
        if depth < 1:
            return
        if bytes(entry.data) != b"null":
            try:
                await self._walk(await _unpack(bytes(entry.data), base), base, depth)
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

    def _add(self, document: bytes, members: CatalogItem, base: str) -> None:
        if members.media_type in REGISTRY_TYPES:  # a registry is a possible peer, not an agent
            self.search_url = self.search_url or self._own_search(find_address(base, members.url))
            return
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


def _is_newer(entry: CatalogItem, other: CatalogItem) -> bool:
    """ARD-7: the highest version is current; without versions, the newest."""
    versions = [each.version if isinstance(each.version, str) else None for each in (entry, other)]
    order = compare_versions(*versions)
    if order is not None and order != 0:
        return order > 0
    times = [each.updatedAt if isinstance(each.updatedAt, str) else "" for each in (entry, other)]
    return times[0] > times[1]


def _validator(response: FetchResponse) -> str:
    return response.headers.get("etag") or response.headers.get("last-modified") or ""


def list_url(base: str, token: str = "") -> str:
    query = f"pageSize={limits.ARD_PAGE_MAX}" + (f"&pageToken={quote(token, safe='')}" if token else "")
    return f"{base}/agents?{query}"


def parse_list(body: bytes) -> tuple[list[bytes], str]:
    """The entries of a page of a list (ARD-31), and the token of the next page; empty: there is none."""
    try:
        page = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        items = [bytes(each) for each in msgspec.json.decode(page["items"], type=list[msgspec.Raw])]
        token = msgspec.json.decode(page.get("pageToken", msgspec.Raw(b"null")), type=str | None)
    except (KeyError, *UNREADABLE):
        raise PeerProblem("Its list of agents has no items.") from None
    return items, token or ""


async def _unpack(body: bytes, url: str) -> list[bytes]:
    try:
        documents = await split_json(_unpack_catalog, body)
    except (WaypostError, *UNREADABLE):
        documents = None
    if documents is None:
        raise PeerProblem(f"{url} is not an AI Catalog.")
    return documents


def _unpack_catalog(body: bytes) -> list[bytes] | None:
    return unpack_documents(body) if is_catalog(body) else None


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
