"""Free text over a registry (AF-21): substrings, which no index answers, so texts are looked through off the event loop.

Folded texts are kept, bounded by bytes, and answers are kept until something the caller sees changes; walking the pages of a
search scans once. Scans go one at a time, so that many of them cannot starve everything else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import cast

from waypost import limits
from waypost.cache import LruCache
from waypost.model.json import dump_json
from waypost.model.names import slug
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
from waypost.model.record import AgentRecord
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import find_instant
from waypost.protocols.agent_framework.codec import summary_from_record
from waypost.protocols.dialects import get_codec
from waypost.registry.catalog.catalog import NO_ENTRY, position_of
from waypost.registry.registry import Registry
from waypost.server.api.agent_framework.directory import (
    AfAgent,
    AfLevel,
    AfPage,
    AfQuery,
    AfSearchText,
    VisibleAgent,
    default_level,
    make_agent,
    page_window,
    search_text,
)
from waypost.server.renderer import Renderer, add_trust_metadata

_CHUNK = 1000  # agents looked through before other work gets its turn

_TEXT_OVERHEAD = 250  # bytes of memory beside the text, per agent

_ScanKey = tuple[frozenset[str] | None, int, tuple[str, ...], tuple[str, ...], AfLevel]


class TextScan:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._texts: OrderedDict[str, tuple[str, AfSearchText]] = OrderedDict()  # by id: etag and text
        self._size = 0
        self._answers: LruCache[_ScanKey, tuple[str, ...]] = LruCache(limits.AF_SCAN_CACHE)
        self._turn = asyncio.Lock()

    async def find(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: AfLevel
    ) -> Sequence[str]:
        """Ids of the agents that the audience sees and that hold every term."""
        question = self._question(tokens, tags, terms, level)
        known = self._answers.get(question)
        if known is not None:
            return known
        async with self._turn:
            question = self._question(tokens, tags, terms, level)  # while waiting, somebody may have asked the same
            known = self._answers.get(question)
            if known is not None:
                return known
            found = await self._look_through(tokens, tags, terms, level)
            if len(found) <= limits.AF_SCAN_IDS:
                self._answers.put(question, found)
            return found

    def _question(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: AfLevel
    ) -> _ScanKey:
        return (tokens, self._registry.entries.generation(tokens), tags, terms, level)

    async def _look_through(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: AfLevel
    ) -> tuple[str, ...]:
        found: list[str] = []
        after = None
        while True:
            entries, _ = self._registry.entries.page(tokens, limit=_CHUNK, after=after, tags=tags)
            texts = await self._texts_of(entries)
            found += await asyncio.to_thread(_matching_ids, texts, terms, level)
            if len(entries) < _CHUNK:
                return tuple(found)
            after = position_of(entries[-1])

    async def _texts_of(self, entries: Sequence[CatalogEntry]) -> dict[str, AfSearchText]:
        texts: dict[str, AfSearchText] = {}
        missing: list[str] = []
        for entry in entries:
            held = self._texts.get(entry.id)
            if held is not None and held[0] == entry.etag:
                texts[entry.id] = held[1]
            else:
                missing.append(entry.id)
        if missing:
            found = await self._registry.registrations(missing, sources=False, cached=False)
            made = await asyncio.to_thread(_fold_all, found)
            for registration in found:
                self._keep(registration.id, registration.etag, made[registration.id])
            texts.update(made)
        return texts

    def _keep(self, agent_id: str, etag: str, text: AfSearchText) -> None:
        before = self._texts.pop(agent_id, None)
        if before is not None:
            self._size -= _text_size(before[1])
        self._texts[agent_id] = (etag, text)
        self._size += _text_size(text)
        while self._size > limits.AF_TEXT_CACHE_BYTES:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._size -= _text_size(dropped)


def _fold_all(registrations: Sequence[Registration]) -> dict[str, AfSearchText]:
    return {
        registration.id: search_text(summary_from_record(registration.record), registration.record.description)
        for registration in registrations
    }


def _matching_ids(texts: Mapping[str, AfSearchText], terms: tuple[str, ...], level: AfLevel) -> list[str]:
    return [agent_id for agent_id, text in texts.items() if text.contains(terms, level)]


def _text_size(text: AfSearchText) -> int:
    return len(text.summary) + len(text.description) + _TEXT_OVERHEAD


# ---- The AF directory over the registry: pages in work proportional to the page, whatever the size of the registry.
#
# Renderings are kept as bytes, bounded, until content or visibility changes; a renewed lease does not touch them. Free text is
# matched against folded texts, off the event loop (`af_scan`).

_MAX_RANKED = 1000  # hits that sort=relevance puts in front; the rest follows in the usual order

_AGENT_OVERHEAD = 400  # bytes of memory beside the renderings, per agent

# Who sees what at which generation, and what of it is asked for: the same question has the same answer.
_PageKey = tuple[frozenset[str] | None, int, bool, AfQuery]


class RegistryDirectory:
    ranked = True

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._catalogue = registry.entries
        self._renderer = renderer
        self._summaries = _AfRenderCache(limits.SUMMARY_CACHE_BYTES)
        self._wholes = _AfRenderCache(limits.RENDERING_CACHE_BYTES // 4)
        self._pages: LruCache[_PageKey, AfPage] = LruCache(limits.AF_PAGE_CACHE)
        self._scan = TextScan(registry)

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        tokens = audience(principal)
        generation = self._catalogue.generation(tokens)
        question = (tokens, generation, principal.is_anonymous, query)
        kept = self._pages.get(question)
        if kept is not None:
            return kept
        page = await self._page(principal, query)
        if (
            not query.needs_full and len(page.agents) <= limits.PAGE_MAX
        ):  # what is kept is bounded in number and in size
            self._pages.put(question, page)
        return page

    async def _page(self, principal: Principal, query: AfQuery) -> AfPage:
        tokens, level = audience(principal), _level(principal)
        generation = self._catalogue.fingerprint(tokens)
        visible = self._catalogue.count(tokens) if query.limit is None else 0
        offset, limit, paged = page_window(query, visible)
        modified = self._catalogue.last_modified(tokens)
        entries, total = await self._entries(principal, query, offset, limit)
        agents = await self._agents(entries, whole=query.needs_full and level == "full")
        return AfPage([VisibleAgent(agent, level) for agent in agents], total, paged, generation, modified)

    async def find(self, principal: Principal, key: str) -> VisibleAgent | None:
        entry = self._find(principal, key)
        if entry is None:
            return None
        found = await self._agents((entry,), whole=True)
        return VisibleAgent(found[0], _level(principal)) if found else None

    def card(self, registration: Registration) -> VisibleAgent:
        """The card of an origin, whole: that is what it is published for."""
        return VisibleAgent(self._whole(registration), "full")

    # --- Which agents ----------------------------------------------------------------------------

    def _find(self, principal: Principal, key: str) -> CatalogEntry | None:
        """AF-14: the published id first, then the canonical id, an alias or a hash. Hidden is unknown."""
        now = self._registry.clock.now()
        tokens = audience(principal)
        for entry in self._catalogue.candidates(key):
            is_shown = default_level(principal, entry.status, entry.expires_at, now) != "none"
            is_seen = tokens is None or not tokens.isdisjoint(entry.scopes)
            if is_shown and is_seen and entry is not NO_ENTRY:
                return entry
        return None

    async def _entries(
        self, principal: Principal, query: AfQuery, offset: int, limit: int
    ) -> tuple[Sequence[CatalogEntry], int]:
        tokens = audience(principal)
        ids: Sequence[str] | None = None
        if query.id is not None:
            ids = self._exactly(query.id)
        if query.terms:
            scanned = await self._scan.find(tokens, query.tags, query.terms, _level(principal))
            ids = scanned if ids is None else [agent_id for agent_id in ids if agent_id in set(scanned)]
        if query.by_relevance and ids:
            return await self._by_relevance(principal, query, ids, offset, limit)
        return self._catalogue.page(tokens, limit=limit, offset=offset, tags=query.tags, ids=ids)

    def _exactly(self, key: str) -> list[str]:
        """The agent whose canonical or published id is exactly this."""
        entry = self._catalogue.find_named(key)
        return [entry.id] if entry is not None and key in (entry.id, slug(entry.id)) else []

    async def _by_relevance(
        self, principal: Principal, query: AfQuery, ids: Sequence[str], offset: int, limit: int
    ) -> tuple[list[CatalogEntry], int]:
        ranking = await self._registry.rank(
            Query(text=query.text, required_tags=query.tags, limit=_MAX_RANKED), principal
        )
        entries, total = self._catalogue.page(audience(principal), limit=len(ids), tags=query.tags, ids=ids)
        rank = {hit.id: place for place, hit in enumerate(ranking.hits)}
        entries = sorted(entries, key=lambda entry: rank.get(entry.id, _MAX_RANKED))
        return entries[offset : offset + limit], total

    # --- As bytes --------------------------------------------------------------------------------

    async def _agents(self, entries: Sequence[CatalogEntry], *, whole: bool) -> list[AfAgent]:
        kept = self._wholes if whole else self._summaries
        found = kept.find_each(entries)
        if None not in found:
            return cast(list[AfAgent], found)
        missing = [entry for entry, agent in zip(entries, found, strict=True) if agent is None]
        made = await (self._made_whole(missing) if whole else self._made_summaries(missing))
        pairs = zip(entries, found, strict=True)
        return [shown for entry, agent in pairs if (shown := agent or made.get(entry.id)) is not None]

    async def _made_whole(self, entries: Sequence[CatalogEntry]) -> dict[str, AfAgent]:
        made: dict[str, AfAgent] = {}
        for registration in await self._registry.registrations([entry.id for entry in entries]):
            made[registration.id] = agent = self._whole(registration)
            self._wholes.put(registration.id, registration.etag, registration.changed_at, agent)
        return made

    async def _made_summaries(self, entries: Sequence[CatalogEntry]) -> dict[str, AfAgent]:
        made: dict[str, AfAgent] = {}
        for registration in await self._registry.registrations([entry.id for entry in entries], sources=False):
            made[registration.id] = agent = _summary(registration.record)
            self._summaries.put(registration.id, registration.etag, registration.changed_at, agent)
        return made

    def _whole(self, registration: Registration) -> AfAgent:
        now = self._registry.clock.now()
        context = self._renderer.context(registration, now)
        document = get_codec("af").encode(registration.record, context).document
        add_trust_metadata(document, registration)
        updated = find_instant(registration.record.updated_at)
        changed = registration.changed_at
        if updated is not None and changed < updated <= now:
            changed = updated
        return make_agent(document, canonical_id=registration.id, changed_at=changed, has_a2a_card=True)


def _summary(record: AgentRecord) -> AfAgent:
    summary = summary_from_record(record)
    return AfAgent(id=summary["id"], canonical_id=record.id, summary=dump_json(summary))


class _AfRenderCache:
    """Rendered agents by id, true for one content and time of change, bounded by bytes. What came first goes first: a page
    finds fifty of them, and to move each for having been found would take longer than to find it."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[str, tuple[str, float, AfAgent]] = OrderedDict()

    def find_each(self, entries: Sequence[CatalogEntry]) -> list[AfAgent | None]:
        kept = self._kept.get
        return [
            held[2]
            if (held := kept(entry.id)) is not None and held[0] == entry.etag and held[1] == entry.changed_at
            else None
            for entry in entries
        ]

    def put(self, agent_id: str, etag: str, changed_at: float, agent: AfAgent) -> None:
        before = self._kept.pop(agent_id, None)
        if before is not None:
            self._size -= _agent_size(before[2])
        self._kept[agent_id] = (etag, changed_at, agent)
        self._size += _agent_size(agent)
        while self._size > self._most:
            _, (_, _, dropped) = self._kept.popitem(last=False)
            self._size -= _agent_size(dropped)


def _agent_size(agent: AfAgent) -> int:
    return len(agent.summary) + len(agent.full) + _AGENT_OVERHEAD


def _level(principal: Principal) -> AfLevel:
    return "summary" if principal.is_anonymous else "full"
