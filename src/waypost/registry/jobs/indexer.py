"""A ranker that is made when it is opened. Until the index has caught up, changes wait here, in order.

A service answers reads of agents before it has loaded what searching needs; whoever searches waits for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from waypost import limits
from waypost.model.query import Query, Ranking
from waypost.model.registration import Registration
from waypost.registry.ports import Ranker, Store


class LazyRanker:
    """`make` is called by `load`, or by the first `open` or `follow`, in whatever thread that is."""

    def __init__(self, make: Callable[[], Ranker]) -> None:
        self._make = make
        self._made: Ranker | None = None
        self._waiting: list[Callable[[Ranker], None]] | None = []  # None: it has caught up

    @property
    def made(self) -> Ranker:
        """The ranker itself, for whoever brings it up to date."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def load(self) -> None:
        """Make it now, where that is no loss of time."""
        self._made = self.made

    @property
    def has_caught_up(self) -> bool:
        return self._waiting is None

    def caught_up(self) -> None:
        """From now on changes go straight to it; those that came meanwhile go first."""
        waiting, self._waiting = self._waiting, None
        for change in waiting or ():
            change(self.made)

    def open(self) -> int:
        return self.made.open()

    def follow(self) -> int:
        return self.made.follow()

    def clear(self) -> None:
        self.made.clear()

    def put(self, registration: Registration) -> None:
        if self._waiting is None:
            self.made.put(registration)
        else:
            self._waiting.append(lambda ranker: ranker.put(registration))

    def remove(self, agent_id: str, revision: int = 0) -> None:
        if self._waiting is None:
            self.made.remove(agent_id, revision)
        else:
            self._waiting.append(lambda ranker: ranker.remove(agent_id, revision))

    def rank(
        self,
        query: Query,
        audience: frozenset[str] | None,
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        return self.made.rank(query, audience, alive=alive, now=now, among=among)

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        return self.made.is_behind(audience)

    def prepare_for(self, audience: frozenset[str] | None) -> None:
        self.made.prepare_for(audience)

    @property
    def pending(self) -> int:
        return self.made.pending if self._waiting is None else len(self._waiting)

    @property
    def unsaved(self) -> int:
        return self.made.unsaved if self._waiting is None else 0

    def is_apart(self, *, at_rest: bool = False) -> bool:
        return self._waiting is None and self.made.is_apart(at_rest=at_rest)

    def lacking(self, limit: int) -> list[str]:
        return self.made.lacking(limit) if self._waiting is None else []

    def embed(self, registrations: Sequence[Registration]) -> None:
        self.made.embed(registrations)

    def maintain(self, revision: int, give_way: Callable[[], bool] = lambda: False, *, at_rest: bool = False) -> None:
        self.made.maintain(revision, give_way, at_rest=at_rest)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


# ---- Keeping the search index: caught up with the log at the start, folded in a lull, never in the way of an answer.
#
# Two threads of one interpreter take turns, so what a fold does in a stream of registrations it takes from them. It waits for
# a lull instead, until too much waits; whoever asks meanwhile prepares what is newest, and hurries it.

_COMPACT_AT = 1500  # changes in memory alone that bring a fold on, also without a lull

_COMPACT_FORCED_AT = 5000  # from here on it no longer gives way: a start after a kill has so many to take in again

_COMPACT_AT_QUERIED = 300  # more than a question prepares itself: then the rest is worth a fold

_REST = 8  # turns without a change, after which what is saved in several parts is joined: questions are quicker then

_TURNS = 8  # of `fold_in_time`, after which it folds all the same

_BREATH_SECONDS = 0.1

_STREAM = 2  # registrations in a breath: somebody registers many

_EMBEDDED_AT_ONCE = 16

_GIVE_WAY = 3

_GIVE_WAY_SECONDS = 2.0  # to a stream of registrations, for each few agents

_REBUILD_STEP = 5000  # agents that wait in memory while an index is built anew


class Indexer:
    def __init__(self, ranker: LazyRanker, store: Store) -> None:
        self._ranker = ranker
        self._store = store
        self._turns_waited = 0
        self._quiet_turns = 0
        self._seen_revision = 0
        self._folded_changes = 0  # those before the last fold
        self._seen_arrivals = 0
        self._seen_questions = 0
        self.questions = 0  # so far
        self.arrivals = 0  # registrations that came in, decided or not
        self.changes = 0

    async def catch_up(self, revision: int) -> None:
        """Bring the index from what it saved to what the store holds. A gap in the log means: build it anew."""
        indexed = await asyncio.to_thread(self._ranker.open)
        if indexed > revision or indexed + 1 < await self._store.oldest_event():
            indexed = 0
        if indexed == 0:
            await self._rebuild()
        else:
            await self._replay(indexed, revision)
        self._ranker.caught_up()

    async def _rebuild(self) -> None:
        self._ranker.clear()
        async for registrations in self._store.scan():
            for registration in registrations:
                self._ranker.made.put(registration)
            if self._ranker.made.unsaved >= _REBUILD_STEP:
                await asyncio.to_thread(self._ranker.maintain, 0)  # 0: a rebuild that is cut short begins anew

    async def _replay(self, indexed: int, revision: int) -> None:
        changed: set[str] = set()
        while indexed < revision:
            events = await self._store.events(indexed, limits.WATCH_BATCH)
            if not events:
                break
            changed.update(event.id for event in events if event.type != "renewed")
            indexed = events[-1].revision
        found = await self._store.fetch(sorted(changed), sources=False) if changed else {}
        for agent_id in changed:
            registration = found.get(agent_id)
            if registration is None:
                self._ranker.made.remove(agent_id, indexed)
            else:
                self._ranker.made.put(registration)

    async def fold(self, revision: int) -> None:
        """Fold at once."""
        if self._ranker.unsaved:
            await asyncio.to_thread(self._ranker.maintain, revision)

    async def compact_if_due(self, revision: int) -> None:
        """Fold in a lull, or when enough waits. Answers are complete either way, and a commit costs more than what it
        commits: in a stream of registrations each one must not bring one on."""
        self._turns_waited += 1
        lull, self._seen_revision = revision == self._seen_revision, revision
        unsaved = self._ranker.unsaved
        is_asked, self._seen_questions = self.questions != self._seen_questions, self.questions
        enough = _COMPACT_AT_QUERIED if is_asked else _COMPACT_AT
        self._quiet_turns = self._quiet_turns + 1 if lull else 0
        at_rest = self._quiet_turns >= _REST
        is_due = unsaved and (lull or unsaved >= enough or self._turns_waited >= _TURNS)
        if is_due or (lull and self._ranker.is_apart(at_rest=at_rest)):
            self._turns_waited = 0
            waiting_since = self.changes
            await asyncio.to_thread(self._ranker.maintain, revision, self._give_way, at_rest=at_rest)
            self._folded_changes = waiting_since

    def _give_way(self) -> bool:
        """In the thread that folds: wait while registrations stream in and nobody asks, unless too much waits already. True:
        they still do."""
        if self.arrivals == self._seen_arrivals:
            return False
        asked = self.questions
        while self.questions == asked and self.changes - self._folded_changes < _COMPACT_FORCED_AT:
            self._seen_arrivals = self.arrivals
            time.sleep(_BREATH_SECONDS)
            if self.arrivals - self._seen_arrivals < _STREAM:
                return False
        return True

    async def embed(self) -> None:
        """Make the vectors that agents lack, a few agents at a time: questions come in between. While these come it takes a
        quarter of a core, else a whole one; in a stream of registrations next to nothing."""
        loop = asyncio.get_running_loop()
        while ids := self._ranker.lacking(_EMBEDDED_AT_ONCE):
            found = await self._store.fetch(ids, sources=False)
            if not found:
                return  # all of these are gone, and the index is about to hear of it
            asked, began = self.questions + self.arrivals, loop.time()
            await asyncio.to_thread(self._ranker.embed, list(found.values()))
            if self.questions + self.arrivals != asked:
                await asyncio.sleep(_GIVE_WAY * (loop.time() - began))
                await self._lull(loop.time() + _GIVE_WAY_SECONDS)

    async def _lull(self, latest: float) -> None:
        """Wait until no registrations stream in, or until then."""
        seen = -_STREAM
        while self.arrivals - seen >= _STREAM and asyncio.get_running_loop().time() < latest:
            seen = self.arrivals
            await asyncio.sleep(_BREATH_SECONDS)
