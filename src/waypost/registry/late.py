"""A ranker that is made when it is opened. Until the index has caught up, changes wait here, in order.

A service answers reads of agents before it has loaded what searching needs; whoever searches waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waypost.model.query import Query, Ranking
from waypost.model.registration import Registration
from waypost.registry.ports import Ranker


class LateRanker:
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
