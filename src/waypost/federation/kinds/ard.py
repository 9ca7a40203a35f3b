"""ARD registries and sites with catalogs: found as ARD-10 says, crawled (ARD-11), and asked by `POST {base}/search` (ARD-33).

A registry that lists its agents is read by that list (ARD-31), beside its catalogs or, if it has none, instead of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.catalog import (
    CATALOG_PATH,
    REGISTRY_TYPES,
    CatalogCrawler,
    CatalogItem,
    find_address,
    is_catalog,
    parse_catalog_cursor,
)
from waypost.federation.kinds.documents import document_entry, split_json
from waypost.federation.kinds.port import UNREADABLE, PeerMissing, PeerPage, PeerProblem, PeerRefusal, Question
from waypost.federation.kinds.requests import PeerRequests
from waypost.federation.peers import Peer
from waypost.registry.ports import Clock, FetchResponse, OutboundSender
from waypost.responses.federation import FeedEntry

_RELATION: Final = "ai-catalog"
_LINK: Final = re.compile(r"<([^>]*)>([^<]*)")
_REL: Final = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))', re.IGNORECASE)
_AGENTMAP: Final = re.compile(r"^\s*agentmap\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)

FindCatalogs = Callable[[str], Awaitable[Sequence[str]]]  # addresses of catalogs that the DNS of a domain names


async def find_none(domain: str) -> Sequence[str]:
    """Without a resolver."""
    return ()


class ArdRegistry:
    def __init__(self, sender: OutboundSender, clock: Clock, find_catalogs: FindCatalogs = find_none) -> None:
        self._requests = PeerRequests(sender)
        self._crawler = CatalogCrawler(self._requests, clock)
        self._clock = clock
        self._find_catalogs = find_catalogs

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        known = parse_catalog_cursor(cursor)
        if known is not None:
            return await self._crawler.read_registry(peer, known.roots, known.registry, known)
        base = peer.url.removesuffix("/search")
        try:
            roots = await self.find_roots(peer)
        except PeerRefusal:
            raise
        except PeerProblem:
            if await self._crawler.has_list(peer, base):
                return await self._crawler.read_registry(peer, (), base, None)
            if peer.ask and not peer.pull:
                return await self._probe_search(peer, base)
            raise
        return await self._crawler.read_registry(peer, roots, "", None)

    async def _probe_search(self, peer: Peer, base: str) -> PeerPage:
        """A registry of which nothing can be read. Its search is all that it must have (ARD-23)."""
        await ask_registry(self._requests, peer, base, Question(text="agent", limit=1), self._clock.now())
        return PeerPage(entries=(), cursor=None, service_id=peer.url, is_last=True, search_url=base)

    async def ask(self, peer: Peer, question: Question) -> Sequence[FeedEntry]:
        return await ask_registry(self._requests, peer, peer.search_url or peer.url, question, self._clock.now())

    async def find_roots(self, peer: Peer) -> tuple[str, ...]:
        """The catalogs of a site, found by Link header, HTML link, robots.txt, well-known path or DNS, in this order."""
        problem = PeerProblem("It has no AI Catalog.")
        async for found in self._ways(peer):
            for url in found:
                try:
                    if await split_json(is_catalog, (await self._requests.crawl(peer, url)).body):
                        return tuple(found)
                except PeerRefusal:
                    raise
                except PeerMissing:
                    continue
                except PeerProblem as failed:
                    problem = failed
        raise problem

    async def _ways(self, peer: Peer) -> AsyncIterator[list[str]]:
        page = await self._find_page(peer)
        if page is not None:
            if await split_json(is_catalog, page.body):
                yield [peer.url]
            yield _addresses(page.url, _linked(page.headers.get("link", "")))
            yield _addresses(page.url, await asyncio.to_thread(_linked_in_html, page))
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(peer.url))
        robots = await self._find_text(peer, f"{origin}/robots.txt")
        yield _addresses(origin, iter(_AGENTMAP.findall(robots)))
        for base in dict.fromkeys((peer.url, origin)):
            yield [base + CATALOG_PATH]
        yield list(await self._find_catalogs(urlsplit(peer.url).hostname or ""))

    async def _find_page(self, peer: Peer) -> FetchResponse | None:
        try:
            return await self._requests.crawl(peer, peer.url)
        except PeerRefusal:
            raise
        except PeerProblem:
            return None

    async def _find_text(self, peer: Peer, url: str) -> str:
        try:
            return (await self._requests.crawl(peer, url)).body.decode("utf-8", "replace")
        except PeerProblem:
            return ""


def _addresses(base: str, found: Iterator[str]) -> list[str]:
    known = (find_address(base, each) for each in found)
    return list(dict.fromkeys(address for address in known if address is not None))[: limits.PEER_CATALOG_ROOTS]


def _linked(header: str) -> Iterator[str]:
    """RFC 8288: the targets with the relation."""
    for target, parameters in _LINK.findall(header):
        found = _REL.search(parameters)
        if found is not None and _RELATION in (found[1] or found[2] or "").lower().split():
            yield target


def _linked_in_html(page: FetchResponse) -> Iterator[str]:
    if "html" not in page.headers.get("content-type", "").lower():
        return
    parser = _LinkParser()
    parser.feed(page.body[: limits.PEER_HTML_BYTES].decode("utf-8", "replace"))
    yield from parser.found


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and _RELATION in (given.get("rel") or "").lower().split() and given.get("href"):
            self.found.append(str(given["href"]))


# --- Asking ---------------------------------------------------------------------------------------


async def ask_registry(
    requests: PeerRequests, peer: Peer, base: str, question: Question, now: float
) -> list[FeedEntry]:
    """The entries that a registry finds. It asks no further registry (P-22)."""
    filters = question.filter if question.filter is not None else _filter_of(question)
    query = {"text": question.text, **({"filter": filters} if filters else {})}
    body = {"query": query, "federation": "none", "pageSize": min(question.limit, limits.ARD_PAGE_MAX)}
    response = await requests.ask(peer, f"{base}/search", msgspec.json.encode(body), question.path)
    try:
        documents = await split_json(_split_results, response.body)
    except (KeyError, *UNREADABLE):
        raise PeerProblem("Its answer to a question has no results.") from None
    found = (_result_entry(peer, each, now) for each in documents[: question.limit])
    return [entry for entry in found if entry is not None]


def _split_results(body: bytes) -> list[bytes]:
    results = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["results"]
    return [bytes(each) for each in msgspec.json.decode(results, type=list[msgspec.Raw])]


def _filter_of(question: Question) -> dict[str, list[str]]:
    """A superset: values of one path are alternatives. All filters are applied here again."""
    return {"tags": list(question.required_tags)} if question.required_tags else {}


def _result_entry(peer: Peer, result: bytes, now: float) -> FeedEntry | None:
    """An entry without the score and the source, which are the registry's. None if it cannot be read."""
    try:
        members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
        for name in ("score", "source"):
            members.pop(name, None)
        if msgspec.json.decode(result, type=CatalogItem).media_type in REGISTRY_TYPES:
            return None  # a possible peer, not an agent
        return document_entry(peer, msgspec.json.encode(members), "ard", now)
    except (WaypostError, *UNREADABLE):
        return None
