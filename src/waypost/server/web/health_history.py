"""How the health of endpoints changed since this process started, for the pages of agents. Bounded; nothing is stored."""

from __future__ import annotations

from collections import deque

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.model.health import HEALTH_WORDS, Health
from waypost.model.registration import Registration
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry


class HealthPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the health stayed the same. `until` is None for the current one."""

    state: str
    word: str
    since: float
    until: float | None


class HealthHistory:
    def __init__(self, registry: Registry) -> None:
        self._kept: LruCache[str, deque[Health]] = LruCache(limits.PAGE_HEALTH_AGENTS)
        registry.subscribe(self._on_change)

    def _on_change(self, committed: CommittedChange) -> None:
        registration = committed.registration
        if registration is not None and registration.health is not None:
            self._remember(registration.id, registration.health)

    def _remember(self, agent_id: str, health: Health) -> deque[Health]:
        kept = self._kept.get(agent_id)
        if kept is None:
            kept = deque(maxlen=limits.PAGE_HEALTH_CHANGES)
            self._kept.put(agent_id, kept)
        if not kept or (kept[-1].state, kept[-1].since) != (health.state, health.since):
            kept.append(health)
        return kept

    def of(self, registration: Registration) -> list[HealthPeriod]:
        """The periods of an agent, newest first; none if it was never checked."""
        if registration.health is None:
            return []
        kept = list(self._remember(registration.id, registration.health))
        ends = [*(each.since for each in kept[1:]), None]
        return [
            HealthPeriod(state=each.state, word=HEALTH_WORDS.get(each.state, each.state), since=each.since, until=until)
            for each, until in reversed(list(zip(kept, ends, strict=True)))
        ]
