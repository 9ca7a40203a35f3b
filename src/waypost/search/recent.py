"""Recent questions and their answers: the same is asked often, and by many. Bounded, and good only until the index changes.

An answer is kept for one audience and one way to tell who lives, and is given again only while all of its agents do. What
depends on the time of day is no finer than an hour.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from waypost.model.query import Query, Ranking

HOUR: Final = 3600.0
_KEPT: Final = 1024
_LARGEST: Final = 100  # a longer answer is somebody's export, not a question


class Recent:
    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[Hashable, Ranking]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def recall(self, key: Hashable, generation: Hashable, alive: Callable[[str], bool]) -> Ranking | None:
        held = self._answers.get(key) if key is not None else None
        if held is None or held[0] != generation or not all(alive(hit.id) for hit in held[1].hits):
            return None
        self._answers.move_to_end(key)
        return held[1]

    def keep(self, key: Hashable, generation: Hashable, ranking: Ranking) -> None:
        if key is None:
            return
        self._answers[key] = (generation, ranking)
        self._answers.move_to_end(key)
        if len(self._answers) > _KEPT:
            self._answers.popitem(last=False)


def key_of(
    query: Query, audience: frozenset[str] | None, alive: Callable[[str], bool], now: float, readiness: Hashable
) -> Hashable:
    """None: not to be remembered. A plain function may test anything; a method tests the same for everybody."""
    told_by = getattr(alive, "__func__", None)
    if told_by is None or query.constraints or query.statuses or query.limit > _LARGEST:
        return None
    asked = (query.text, query.required_tags, query.preferred_tags, query.excluded_tags, query.protocols, query.limit)
    return (*asked, query.include_evidence, query.diversity, audience, told_by, now // HOUR, readiness)
