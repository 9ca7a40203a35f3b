"""The Agent Framework directory over the registry. The cost of a page depends on its size, not on that of the registry.

Renderings are cached until content or visibility changes; a renewed lease changes neither. `q` matches substrings (AF-21),
for which there is no index, so a thread scans folded texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waypost import limits
from waypost.cache import LruCache
from waypost.model.json import dump_json
from waypost.model.names import is_same_id, slug
from waypost.model.principal import Principal, audience
from waypost.model.query import Query
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

_SCAN_SIZE = 1000  # agents that are scanned before other requests run
_TEXT_OVERHEAD = 250  # bytes of memory per agent, in addition to the text
_AGENT_OVERHEAD = 400  # bytes of memory per agent, in addition to the renderings
_MAX_RANKED = 1000  # hits that sort=relevance puts first; the others follow in the usual order

# Audience, generation of what it sees, tags, terms, level.
_ScanKey = tuple[frozenset[str] | None, int, tuple[str, ...], tuple[str, ...], AfLevel]
# Audience, generation of what it sees, whether the caller is anonymous, query.
_PageKey = tuple[frozenset[str] | None, int, bool, AfQuery]


class _CachedText(NamedTuple):
    etag: str
    text: AfSearchText


class TextScan:
    """Substring search. Results are cached until something that the audience sees changes, so that reading all pages of
    a search needs one scan. Scans run one at a time, so that many of them cannot starve other requests."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._texts: LruCache[str, _CachedText] = LruCache(limits.AF_TEXT_CACHE_BYTES, _text_size)
        self._results: LruCache[_ScanKey, tuple[str, ...]] = LruCache(limits.AF_SCAN_CACHE)
        self._lock = asyncio.Lock()

    async def find(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: AfLevel
    ) -> Sequence[str]:
        """The ids of the agents that the audience sees and that contain every term."""

        def key() -> _ScanKey:
            return (tokens, self._registry.entries.generation(tokens), tags, terms, level)

        cached = self._results.get(key())
        if cached is not None:
            return cached
        async with self._lock:
            cached = self._results.get(scan_key := key())  # another request may have made the same scan meanwhile
            if cached is not None:
                return cached
            ids = await self._scan(tokens, tags, terms, level)
            if len(ids) <= limits.AF_SCAN_IDS:
                self._results.put(scan_key, ids)
            return ids

    async def _scan(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: AfLevel
    ) -> tuple[str, ...]:
        ids: list[str] = []
        after = None
        while True:
            entries, _ = self._registry.entries.page(tokens, limit=_SCAN_SIZE, after=after, tags=tags)
            texts = await self._texts_of(entries)
            ids += await asyncio.to_thread(_matching_ids, texts, terms, level)
            if len(entries) < _SCAN_SIZE:
                return tuple(ids)
            after = position_of(entries[-1])

    async def _texts_of(self, entries: Sequence[CatalogEntry]) -> dict[str, AfSearchText]:
        texts: dict[str, AfSearchText] = {}
        missing: list[str] = []
        for entry in entries:
            cached = self._texts.get(entry.id)
            if cached is not None and cached.etag == entry.etag:
                texts[entry.id] = cached.text
            else:
                missing.append(entry.id)
        if missing:
            registrations = await self._registry.registrations(missing, sources=False, cached=False)
            folded = await asyncio.to_thread(_fold_all, registrations)
            for registration in registrations:
                self._texts.put(registration.id, _CachedText(registration.etag, folded[registration.id]))
            texts.update(folded)
        return texts


def _text_size(cached: _CachedText) -> int:
    return len(cached.text.summary) + len(cached.text.description) + _TEXT_OVERHEAD


def _fold_all(registrations: Sequence[Registration]) -> dict[str, AfSearchText]:
    return {
        registration.id: search_text(summary_from_record(registration.record), registration.record.description)
        for registration in registrations
    }


def _matching_ids(texts: Mapping[str, AfSearchText], terms: tuple[str, ...], level: AfLevel) -> list[str]:
    return [agent_id for agent_id, text in texts.items() if text.contains(terms, level)]


class _CachedAgent(NamedTuple):
    etag: str
    changed_at: float
    agent: AfAgent


def _agent_size(cached: _CachedAgent) -> int:
    return len(cached.agent.summary) + len(cached.agent.full) + _AGENT_OVERHEAD


class RegistryDirectory:
    ranked = True

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._entries = registry.entries
        self._renderer = renderer
        self._summaries: LruCache[str, _CachedAgent] = LruCache(limits.SUMMARY_CACHE_BYTES, _agent_size)
        self._full: LruCache[str, _CachedAgent] = LruCache(limits.RENDERING_CACHE_BYTES // 4, _agent_size)
        self._pages: LruCache[_PageKey, AfPage] = LruCache(limits.AF_PAGE_CACHE)
        self._scan = TextScan(registry)

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        tokens = audience(principal)
        key = (tokens, self._entries.generation(tokens), principal.is_anonymous, query)
        cached = self._pages.get(key)
        if cached is not None:
            return cached
        page = await self._make_page(principal, query)
        if not query.needs_full and len(page.agents) <= limits.PAGE_MAX:  # bounds the size of a cached page
            self._pages.put(key, page)
        return page

    async def _make_page(self, principal: Principal, query: AfQuery) -> AfPage:
        tokens, level = audience(principal), _level(principal)
        generation = self._entries.fingerprint(tokens)
        visible = self._entries.count(tokens) if query.limit is None else 0
        offset, limit, is_paged = page_window(query, visible)
        last_modified = self._entries.last_modified(tokens)
        entries, total = await self._find_entries(principal, query, offset, limit)
        agents = await self._agents(entries, full=query.needs_full and level == "full")
        return AfPage([VisibleAgent(agent, level) for agent in agents], total, is_paged, generation, last_modified)

    async def find(self, principal: Principal, key: str) -> VisibleAgent | None:
        entry = self._find_entry(principal, key)
        agents = [] if entry is None else await self._agents((entry,), full=True)
        return VisibleAgent(agents[0], _level(principal)) if agents else None

    def card(self, registration: Registration) -> VisibleAgent:
        """The card of an origin, which is always full."""
        return VisibleAgent(self._render_full(registration), "full")

    # --- Entries ---------------------------------------------------------------------------------

    def _find_entry(self, principal: Principal, key: str) -> CatalogEntry | None:
        """AF-14: the entry of a published id, a canonical id, an alias or a hash; None if it is hidden or unknown."""
        now = self._registry.clock.now()
        tokens = audience(principal)
        for entry in self._entries.candidates(key):
            is_shown = default_level(principal, entry.status, entry.expires_at, now) != "none"
            is_visible = tokens is None or not tokens.isdisjoint(entry.scopes)
            if is_shown and is_visible and entry is not NO_ENTRY:
                return entry
        return None

    async def _find_entries(
        self, principal: Principal, query: AfQuery, offset: int, limit: int
    ) -> tuple[Sequence[CatalogEntry], int]:
        tokens = audience(principal)
        ids: Sequence[str] | None = None
        if query.id is not None:
            named = self._entries.find_named(query.id)
            is_its_id = named is not None and (query.id == slug(named.id) or is_same_id(query.id, named.id))
            ids = [named.id] if named is not None and is_its_id else []
        if query.terms:
            scanned = await self._scan.find(tokens, query.tags, query.terms, _level(principal))
            ids = scanned if ids is None else [agent_id for agent_id in ids if agent_id in set(scanned)]
        if query.by_relevance and ids:
            return await self._sort_by_relevance(principal, query, ids, offset, limit)
        return self._entries.page(tokens, limit=limit, offset=offset, tags=query.tags, ids=ids)

    async def _sort_by_relevance(
        self, principal: Principal, query: AfQuery, ids: Sequence[str], offset: int, limit: int
    ) -> tuple[list[CatalogEntry], int]:
        ranking = await self._registry.rank(
            Query(text=query.text, required_tags=query.tags, limit=_MAX_RANKED), principal
        )
        entries, total = self._entries.page(audience(principal), limit=len(ids), tags=query.tags, ids=ids)
        rank = {hit.id: place for place, hit in enumerate(ranking.hits)}
        entries = sorted(entries, key=lambda entry: rank.get(entry.id, _MAX_RANKED))
        return entries[offset : offset + limit], total

    # --- Renderings ------------------------------------------------------------------------------

    async def _agents(self, entries: Sequence[CatalogEntry], *, full: bool) -> list[AfAgent]:
        cache = self._full if full else self._summaries
        agents: dict[str, AfAgent] = {}
        for entry in entries:
            cached = cache.get(entry.id)
            if cached is not None and cached.etag == entry.etag and cached.changed_at == entry.changed_at:
                agents[entry.id] = cached.agent
        missing = [entry.id for entry in entries if entry.id not in agents]
        # Renderings are cached here, so that lists do not push the records of other requests out of their cache.
        found = await self._registry.registrations(missing, sources=full, cached=False) if missing else ()
        for registration in found:
            agents[registration.id] = agent = self._render_full(registration) if full else _render_summary(registration)
            cache.put(registration.id, _CachedAgent(registration.etag, registration.changed_at, agent))
        return [agents[entry.id] for entry in entries if entry.id in agents]

    def _render_full(self, registration: Registration) -> AfAgent:
        now = self._registry.clock.now()
        context = self._renderer.context(registration, now)
        document = get_codec("af").encode(registration.record, context).document
        add_trust_metadata(document, registration)
        updated_at = find_instant(registration.record.updated_at)
        changed_at = registration.changed_at
        if updated_at is not None and changed_at < updated_at <= now:
            changed_at = updated_at
        return make_agent(document, canonical_id=registration.id, changed_at=changed_at, has_a2a_card=True)


def _render_summary(registration: Registration) -> AfAgent:
    summary = summary_from_record(registration.record)
    return AfAgent(id=summary["id"], canonical_id=registration.record.id, summary=dump_json(summary))


def _level(principal: Principal) -> AfLevel:
    return "summary" if principal.is_anonymous else "full"
