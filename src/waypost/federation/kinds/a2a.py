"""A2A: lists of agent cards, of their addresses, and single cards.

There is no standard list. Read are: an array, or an object with such an array in `agents`, `cards` or `entries`. Its items are
cards, addresses of cards or of agents, or objects with such an address. A card that cannot be fetched makes a reading
incomplete, and an incomplete reading removes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.catalog import find_address
from waypost.federation.kinds.documents import document_entry, split_json
from waypost.federation.kinds.port import UNREADABLE, PeerMissing, PeerPage, PeerProblem, PeerRefusal
from waypost.federation.kinds.requests import PeerRequests
from waypost.federation.peers import Peer
from waypost.registry.ports import Clock, FetchResponse, OutboundSender
from waypost.responses.federation import FeedEntry

CARD_PATH: Final = "/.well-known/agent-card.json"
_LIST_PATHS: Final = ("/.well-known/agents.json", "/agents", CARD_PATH)
_LISTS: Final = ("agents", "cards", "entries")
_ADDRESSES: Final = ("cardUrl", "card_url", "agentCardUrl", "agent_card_url", "url")
_DIALECT: Final = "a2a"


class A2aCards:
    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._requests = PeerRequests(sender)
        self._clock = clock

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        response, items = await self._find_list(peer, cursor)
        if len(items) > min(peer.max_records, limits.PEER_CARDS):
            raise PeerProblem(f"It lists {len(items)} cards; at most {limits.PEER_CARDS} are read.")
        reading = _CardReading(self._requests, peer, self._clock.now())
        for start in range(0, len(items), limits.PEER_CARD_CONCURRENCY):
            part = items[start : start + limits.PEER_CARD_CONCURRENCY]
            await asyncio.gather(*(reading.add(item, response.url) for item in part))
        if items and not reading.entries:
            raise PeerProblem(f"None of the {len(items)} cards that it lists could be read.")
        return PeerPage(
            entries=list(reading.entries.values()),
            cursor=response.url,
            service_id=peer.url,
            is_last=True,
            starts_over=True,
            ends_snapshot=reading.is_complete,
            bad=reading.bad,
        )

    async def _find_list(self, peer: Peer, known: str | None) -> tuple[FetchResponse, list[bytes]]:
        """The list at the address of the peer; of a site, the first of the usual paths that has one."""
        is_site = urlsplit(peer.url).path in ("", "/")
        problem = PeerProblem("It has no list of A2A cards.")
        for url in (known,) if known else [peer.url + path for path in _LIST_PATHS] if is_site else (peer.url,):
            try:
                response = await self._requests.crawl(peer, url)
                return response, await split_json(parse_card_list, response.body)
            except PeerRefusal:
                raise
            except PeerMissing:
                continue
            except PeerProblem as failed:
                problem = failed
        raise problem


class _CardReading:
    def __init__(self, requests: PeerRequests, peer: Peer, now: float) -> None:
        self._requests = requests
        self._peer = peer
        self._now = now
        self._bytes = 0
        self.entries: dict[str, FeedEntry] = {}
        self.bad = 0
        self.is_complete = True

    async def add(self, item: bytes, base: str) -> None:
        url = _find_card_address(item, base)
        try:
            card = item if url is None else await self._fetch(url)
            entry = document_entry(self._peer, card, _DIALECT, self._now, url=url)
        except PeerMissing:
            self.bad += 1
        except PeerProblem:
            self.bad += 1
            self.is_complete = False
        except (WaypostError, *UNREADABLE):
            self.bad += 1
        else:
            self.entries.setdefault(entry.id, entry)

    async def _fetch(self, url: str) -> bytes:
        body = (await self._requests.crawl(self._peer, url)).body
        self._bytes += len(body)
        if self._bytes > limits.PEER_CRAWL_BYTES:
            raise PeerProblem(f"Its cards have more than {limits.PEER_CRAWL_BYTES >> 20} MiB.")
        return body


def parse_card_list(body: bytes) -> list[bytes]:
    """The items of a list, or a single card."""
    try:
        value: Any = msgspec.json.decode(body, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
        if isinstance(value, dict):
            if "skills" in value and "name" in value:
                return [body]
            value = next((_array(value[name]) for name in _LISTS if name in value), None)
        items = [bytes(each) for each in value or () if _is_item(bytes(each))]
    except UNREADABLE:
        value, items = None, []
    if value is None or len(items) < len(value):
        raise PeerProblem("It answered with something that is not a list of A2A cards.")
    return items


def _array(value: msgspec.Raw) -> Sequence[msgspec.Raw]:
    return msgspec.json.decode(value, type=list[msgspec.Raw])


def _is_item(item: bytes) -> bool:
    value = msgspec.json.decode(item)
    if isinstance(value, str):
        return True
    return isinstance(value, dict) and ("skills" in value or any(isinstance(value.get(n), str) for n in _ADDRESSES))


def _find_card_address(item: bytes, base: str) -> str | None:
    """The address of the card that an item names; None if the item is a card itself."""
    value = msgspec.json.decode(item)
    if isinstance(value, dict) and "skills" in value:
        return None
    named = value if isinstance(value, str) else next(value[n] for n in _ADDRESSES if isinstance(value.get(n), str))
    url = find_address(base, named)
    if url is None:
        return None
    return url if url.endswith(".json") or urlsplit(url).query else url.rstrip("/") + CARD_PATH
