"""When which endpoint is checked. Pure: time and chance are arguments, nobody is asked here.

Agents that name one endpoint share its checks. Each check draws the next time, so that many are spread; what stays dead is
asked ever more seldom.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import msgspec

from waypost import limits
from waypost.model.health import UNHEALTHY, Health, Standing, standing_of

_NEVER = float("-inf")


class Watched(msgspec.Struct, kw_only=True):
    """One endpoint, and the agents that name it."""

    endpoint: str
    standing: Standing
    agents: set[str]
    due: float
    checked_at: float = _NEVER
    is_running: bool = False  # a check of it is under way


class Schedule:
    def __init__(self, seconds: float, chance: Callable[[], float]) -> None:
        self._seconds = seconds
        self._chance = chance
        self._watched: dict[str, Watched] = {}
        self._endpoints: dict[str, str] = {}  # by agent
        self._queue: list[tuple[float, str]] = []  # may hold times that no longer count
        self.up = 0  # endpoints that have lived
        self.failing = 0  # those of them that fail now

    def __len__(self) -> int:
        return len(self._watched)

    def __iter__(self) -> Iterator[Watched]:
        return iter(self._watched.values())

    def find(self, agent_id: str) -> str | None:
        """The endpoint of an agent that is watched."""
        return self._endpoints.get(agent_id)

    # --- Agents ----------------------------------------------------------------------------------

    def watch(self, agent_id: str, endpoint: str | None, health: Health | None, due: float) -> None:
        """Check the endpoint of an agent at `due`, or sooner; not sooner than a pause after its last check."""
        if self._endpoints.get(agent_id) != endpoint:
            self.forget(agent_id)
        if endpoint is None:
            return
        watched = self._watched.get(endpoint)
        if watched is None:
            watched = Watched(endpoint=endpoint, standing=standing_of(health), agents=set(), due=float("inf"))
            self._watched[endpoint] = watched
            self._count(watched.standing, 1)
        self._endpoints[agent_id] = endpoint
        watched.agents.add(agent_id)
        due = max(due, watched.checked_at + limits.FETCH_HEALTH_PAUSE_SECONDS)
        if due < watched.due and not watched.is_running:
            self._put(watched, due)

    def forget(self, agent_id: str) -> None:
        endpoint = self._endpoints.pop(agent_id, None)
        watched = self._watched.get(endpoint) if endpoint is not None else None
        if watched is None:
            return
        watched.agents.discard(agent_id)
        if not watched.agents:
            self._drop(watched)

    def drop(self, watched: Watched) -> None:
        """Not checked any more, until an agent names it anew."""
        for agent_id in [*watched.agents]:
            self.forget(agent_id)

    def _drop(self, watched: Watched) -> None:
        if self._watched.get(watched.endpoint) is watched:
            del self._watched[watched.endpoint]
            self._count(watched.standing, -1)

    # --- Time ------------------------------------------------------------------------------------

    def take(self, now: float) -> Watched | None:
        """The next endpoint that is due, if there is one; it is not due again before `done`."""
        while self._queue and self._queue[0][0] <= now:
            due, endpoint = heapq.heappop(self._queue)
            watched = self._watched.get(endpoint)
            if watched is not None and watched.due == due and not watched.is_running:
                watched.is_running, watched.due = True, float("inf")
                return watched
        return None

    def done(self, watched: Watched, standing: Standing, now: float) -> None:
        if self._watched.get(watched.endpoint) is watched:
            self._count(watched.standing, -1)
            self._count(standing, 1)
        watched.standing, watched.checked_at, watched.is_running = standing, now, False
        self._put(watched, now + self._pause(standing))

    def postpone(self, watched: Watched, seconds: float, now: float) -> None:
        """It could not be checked now; nothing is known of it that was not known before."""
        watched.is_running = False
        self._put(watched, now + seconds + self._seconds * limits.HEALTH_JITTER * self._chance())

    def some_time(self, now: float) -> float:
        """A first time for one of many: spread over a whole round."""
        return now + self._seconds * self._chance()

    def _pause(self, standing: Standing) -> float:
        seldom = 1.0
        if standing.state == UNHEALTHY and standing.failures:
            seldom = min(2.0 ** (standing.failures - limits.HEALTH_FAILURES), limits.HEALTH_BACKOFF)
        return self._seconds * seldom * (1.0 + limits.HEALTH_JITTER * (2.0 * self._chance() - 1.0))

    def _put(self, watched: Watched, due: float) -> None:
        watched.due = due
        if self._watched.get(watched.endpoint) is not watched:
            return
        heapq.heappush(self._queue, (due, watched.endpoint))
        if len(self._queue) > 2 * len(self._watched) + 1000:
            self._queue = [(each.due, each.endpoint) for each in self if not each.is_running]
            heapq.heapify(self._queue)

    def _count(self, standing: Standing, number: int) -> None:
        if standing.was_up and standing.state != UNHEALTHY:
            self.up += number
            self.failing += number if standing.failures else 0
