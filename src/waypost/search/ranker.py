"""The ranker: signals asked, fused, ordered. The engine knows it by `registry.ports.Ranker`.

Scores are absolute: `score = S / (S + U)` (see `weighing`), so that 0.1 means that little of what was asked was found,
however it ranks. A deprecated agent keeps half of its score. Order: score to four places, then id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from waypost.model.query import Hit, Query, Ranking
from waypost.model.registration import Registration
from waypost.search.fusion import Signal, fuse
from waypost.search.lexical import LexicalIndex
from waypost.search.question import Found, Question, question_of

_SPARE: Final = 2  # candidates beyond the limit; one shows that nothing unseen ties with the last
_WIDER: Final = 4
_CANDIDATES: Final = 512  # PRO-31: no question looks further than this, or twice its limit
_DEPRECATED: Final = 0.5
_PLACES: Final = 4  # a finer difference is noise, and would part equals


class LexicalRanker:
    """Fielded BM25 with tags. `signals` adds others, each with its weight."""

    def __init__(self, folder: Path | None = None, signals: Sequence[tuple[float, Signal]] = ()) -> None:
        self._signals: list[tuple[float, Signal]] = [(1.0, LexicalIndex(folder)), *signals]

    def open(self) -> int:
        return min(signal.open() for _, signal in self._signals)

    def clear(self) -> None:
        for _, signal in self._signals:
            signal.clear()

    def put(self, registration: Registration) -> None:
        for _, signal in self._signals:
            signal.put(registration)

    def remove(self, agent_id: str) -> None:
        for _, signal in self._signals:
            signal.remove(agent_id)

    @property
    def pending(self) -> int:
        return max(signal.pending for _, signal in self._signals)

    def maintain(self, revision: int) -> None:
        for _, signal in self._signals:
            signal.maintain(revision)

    def follow(self) -> int:
        """This index is shared with nobody."""
        return 0

    def close(self) -> None:
        for _, signal in self._signals:
            signal.close()

    def rank(
        self, query: Query, audience: frozenset[str] | None, *, alive: Callable[[str], bool], now: float
    ) -> Ranking:
        question = question_of(query, audience)
        if not (question.terms or question.required or question.preferred or question.protocols):
            return Ranking(hits=(), warnings=("The query holds no word to search for.",))
        wanted, most = query.limit + _SPARE, max(_CANDIDATES, 2 * query.limit)
        while True:
            found = self._ask(question, wanted)
            hits = _order(found, query.limit, alive)
            if wanted >= most or _is_settled(found, hits, query.limit):
                return Ranking(hits=tuple(hits), warnings=_warnings(found))
            wanted = min(wanted * _WIDER, most)

    def _ask(self, question: Question, limit: int) -> Found:
        return fuse([(weight, signal.search(question, limit)) for weight, signal in self._signals])


def _order(found: Found, limit: int, alive: Callable[[str], bool]) -> list[Hit]:
    scored = [(-_shown(each.score, each.deprecated), each.id) for each in found.scored]
    scored.sort()
    hits: list[Hit] = []
    for score, agent_id in scored:
        if len(hits) == limit:
            break
        if alive(agent_id):
            hits.append(Hit(agent_id, -score))
    return hits


def _shown(score: float, is_deprecated: bool) -> float:
    return round(score * _DEPRECATED if is_deprecated else score, _PLACES)


def _is_settled(found: Found, hits: list[Hit], limit: int) -> bool:
    """True when nothing unseen could take a place in the answer."""
    return found.is_complete or (len(hits) == limit and hits[-1].score > round(found.ceiling, _PLACES))


def _warnings(found: Found) -> tuple[str, ...]:
    if not found.skipped:
        return ()
    return (f"{found.skipped} agents registered a moment ago are not searched yet.",)
