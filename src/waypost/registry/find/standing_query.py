"""Standing queries: a watcher is told only of agents that fit a query.

The agents of a batch of events are ranked among themselves, as they are now, by the ranker of every search. A withdrawal is
reported for agents that this watcher was told of. Sentence vectors of a new agent are computed shortly after its event, so a
watcher that has caught up waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from waypost import limits
from waypost.model.query import Match
from waypost.registry.change_log import WatchEvent

_POLL_SECONDS: Final = 0.1
_REMOVALS: Final = ("withdrawn", "expired")


class StandingQuery:
    """The events of agents that fit. One for each watcher."""

    def __init__(
        self,
        match_agents: Callable[[Sequence[str]], Awaitable[dict[str, Match]]],
        lacks_vectors: Callable[[Sequence[str]], bool],
        max_reported: int = limits.STANDING_QUERY_AGENTS,
    ) -> None:
        """`match_agents` returns the match of those agents that fit, `lacks_vectors` whether some are not embedded yet."""
        self._match_agents = match_agents
        self._lacks_vectors = lacks_vectors
        self._max_reported = max_reported
        self._reported: dict[str, Match] = {}

    async def select(self, events: Sequence[WatchEvent], *, is_behind: bool) -> list[WatchEvent]:
        if not is_behind:
            await asyncio.sleep(limits.STANDING_QUERY_PAUSE_SECONDS)
        changed = list(dict.fromkeys(each.event.id for each in events if each.type not in _REMOVALS))
        if changed and not is_behind:
            await self._wait_for_vectors(changed)
        matches = await self._match_agents(changed) if changed else {}
        found = (self._judge(each, matches) for each in events)
        return [each for each in found if each is not None]

    async def _wait_for_vectors(self, ids: Sequence[str]) -> None:
        for _ in range(int(limits.STANDING_QUERY_VECTOR_SECONDS / _POLL_SECONDS)):
            if not self._lacks_vectors(ids):
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _judge(self, item: WatchEvent, matches: dict[str, Match]) -> WatchEvent | None:
        agent_id = item.event.id
        match = self._reported.pop(agent_id, None) if item.type in _REMOVALS else matches.get(agent_id)
        if match is None:
            self._reported.pop(agent_id, None)
            return None
        if item.type not in _REMOVALS:
            if len(self._reported) >= self._max_reported:
                del self._reported[next(iter(self._reported))]
            self._reported[agent_id] = match
        return msgspec.structs.replace(item, match=match)
