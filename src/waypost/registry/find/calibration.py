"""The thresholds of match words for each class of callers, measured on the agents that all of the class may see.

`search/ranking/match.py` says what is measured. There are three classes: everybody, callers with a token, and admins. A private
agent is no background, so the thresholds are a function of the agents that a class shares: nothing hidden changes them. A
measurement is two dozen searches, between which other requests run. It is repeated only while there are queries and after
visible changes, and at most once a minute unless half of the catalogue has changed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from waypost.model.principal import INTERNAL, PUBLIC
from waypost.model.query import Query
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.jobs.periodic import cancel_all
from waypost.registry.ports import Clock
from waypost.search.ranking.match import (
    BACKGROUND_QUESTIONS,
    DEFAULT_THRESHOLDS,
    MatchThresholds,
    calibrate_thresholds,
)

_MIN_AGENTS: Final = 10  # fewer visible agents say nothing: the defaults are used
_REPEAT_SECONDS: Final = 60.0
_REPEAT_PROVISIONAL_SECONDS: Final = 5.0  # while sentence vectors are computed
_CHANGED_SHARE: Final = 0.5  # of the agents: after so many changes it is measured again at once
_SHARED: Final = frozenset((PUBLIC, INTERNAL))

Audience = frozenset[str] | None


class _Measurement(msgspec.Struct, frozen=True):
    thresholds: MatchThresholds
    generation: int  # of the catalogue, for this class
    agents: int
    at: float  # of the event loop's clock
    is_provisional: bool  # sentence vectors were missing


class MatchCalibration:
    def __init__(self, catalog: Catalog, index: LiveIndex, clock: Clock) -> None:
        self._catalog = catalog
        self._index = index
        self._clock = clock
        self._measured: dict[Audience, _Measurement] = {}  # one for each class
        self._tasks: dict[Audience, asyncio.Task[None]] = {}

    async def thresholds(self, audience: Audience) -> MatchThresholds:
        """Those of the last measurement. Only the first query of a class waits for one."""
        shared = None if audience is None else audience & _SHARED
        known = self._measured.get(shared)
        if known is not None and not self._is_due(known, shared):
            return known.thresholds
        # Counting agents would delay the first queries after a start.
        agents = self._catalog.count(shared) if self._catalog.is_loaded else 0
        if agents < _MIN_AGENTS:
            return DEFAULT_THRESHOLDS
        task = self._tasks.get(shared)
        if task is None:
            task = self._tasks[shared] = asyncio.create_task(self._measure(shared, agents), name="calibrate matches")
        if known is None:
            await asyncio.shield(task)
            known = self._measured[shared]
        return known.thresholds

    def _is_due(self, known: _Measurement, shared: Audience) -> bool:
        age = asyncio.get_running_loop().time() - known.at
        if known.is_provisional and age >= _REPEAT_PROVISIONAL_SECONDS:
            return True
        changes = self._catalog.generation(shared) - known.generation
        return changes > 0 and (changes >= known.agents * _CHANGED_SHARE or age >= _REPEAT_SECONDS)

    async def _measure(self, shared: Audience, agents: int) -> None:
        try:
            await self._index.wait()
            ranker = self._index.ranker
            generation, is_provisional = self._catalog.generation(shared), False
            best_scores: list[float] = []
            for text in BACKGROUND_QUESTIONS:
                query, now = Query(text=text, limit=1, diversity=False), self._clock.now()
                hits = ranker.rank(query, shared, alive=self._catalog.is_alive, now=now).hits
                best_scores.append(hits[0].score if hits else 0.0)
                is_provisional = is_provisional or any(hit.is_provisional for hit in hits)
                await asyncio.sleep(0)
            thresholds, at = calibrate_thresholds(best_scores, agents), asyncio.get_running_loop().time()
            self._measured[shared] = _Measurement(thresholds, generation, agents, at, is_provisional)
        finally:
            del self._tasks[shared]

    async def stop(self) -> None:
        await cancel_all(list(self._tasks.values()))
