"""Free text over a registry (AF-21): substrings, which no index answers, so texts are looked through off the event loop.

Folded texts are kept, bounded by bytes, and answers are kept until something the caller sees changes; walking the pages of a
search scans once. Scans go one at a time, so that many of them cannot starve everything else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from waypost import limits
from waypost.dialects.af import summary_of
from waypost.model.registration import Entry, Registration
from waypost.registry.catalogue import LISTED, position_of
from waypost.registry.engine import Registry
from waypost.registry.lru import Lru
from waypost.server.af_view import Level, Text, text_of

_CHUNK = 1000  # agents looked through before other work gets its turn
_OVERHEAD = 250  # bytes of memory beside the text, per agent

_Question = tuple[frozenset[str] | None, int, tuple[str, ...], tuple[str, ...], Level]


class TextScan:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._texts: OrderedDict[str, tuple[str, Text]] = OrderedDict()  # by id: etag and text
        self._size = 0
        self._answers: Lru[_Question, tuple[str, ...]] = Lru(limits.AF_SCANS)
        self._turn = asyncio.Lock()

    async def find(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: Level
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
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: Level
    ) -> _Question:
        return (tokens, self._registry.catalogue.generation(tokens), tags, terms, level)

    async def _look_through(
        self, tokens: frozenset[str] | None, tags: tuple[str, ...], terms: tuple[str, ...], level: Level
    ) -> tuple[str, ...]:
        found: list[str] = []
        after = None
        while True:
            entries, _ = self._registry.catalogue.page(tokens, limit=_CHUNK, after=after, tags=tags, statuses=LISTED)
            texts = await self._texts_of(entries)
            found += await asyncio.to_thread(_holding, texts, terms, level)
            if len(entries) < _CHUNK:
                return tuple(found)
            after = position_of(entries[-1])

    async def _texts_of(self, entries: Sequence[Entry]) -> dict[str, Text]:
        texts: dict[str, Text] = {}
        missing: list[str] = []
        for entry in entries:
            held = self._texts.get(entry.id)
            if held is not None and held[0] == entry.etag:
                texts[entry.id] = held[1]
            else:
                missing.append(entry.id)
        if missing:
            registrations = await self._registry.store.fetch(missing, sources=False)
            made = await asyncio.to_thread(_fold_all, registrations)
            for agent_id, text in made.items():
                self._keep(agent_id, registrations[agent_id].etag, text)
            texts.update(made)
        return texts

    def _keep(self, agent_id: str, etag: str, text: Text) -> None:
        before = self._texts.pop(agent_id, None)
        if before is not None:
            self._size -= _size_of(before[1])
        self._texts[agent_id] = (etag, text)
        self._size += _size_of(text)
        while self._size > limits.AF_TEXT_CACHE_BYTES:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._size -= _size_of(dropped)


def _fold_all(registrations: Mapping[str, Registration]) -> dict[str, Text]:
    return {
        agent_id: text_of(summary_of(registration.record), registration.record.description)
        for agent_id, registration in registrations.items()
    }


def _holding(texts: Mapping[str, Text], terms: tuple[str, ...], level: Level) -> list[str]:
    return [agent_id for agent_id, text in texts.items() if text.holds(terms, level)]


def _size_of(text: Text) -> int:
    return len(text.open) + len(text.closed) + _OVERHEAD
