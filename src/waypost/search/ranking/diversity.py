"""Diversity: bound the share of one cluster of near duplicates, or one owner, in each window of results.

Works on scores, owners, registration times and clusters. The order is generated lazily: places behind the first page mostly
cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.search.index.simhash import Hashes, Simhashes, group_duplicates


class DiversityRules(NamedTuple):
    window: int = limits.DIVERSITY_WINDOW
    per_cluster: int = 2
    per_owner: int = 2
    comparable: float = 0.9  # of a score: within this ratio, scores are considered equal
    # A candidate of another owner goes before the third of one owner if it fits too: its score is at least `fits` and three
    # fifths of the other. An owner who writes many agents for a query scores better than honest descriptions.
    fits_too: float = 0.6
    fits: float = 0.25
    few: int = 4  # near duplicates: so many yield to relevance, as agents of one owner do
    original: float = 0.1  # of its best copy's score: below it, the earliest registration is not preferred


DIVERSITY_RULES: Final = DiversityRules()


class RankedCandidates(NamedTuple):
    """Candidates in the order of their ranking, best first."""

    scores: list[float]
    cluster_of: Callable[[int], Sequence[int]]  # the sorted near duplicates of a candidate, including itself
    owners: Sequence[int]  # equal for equal owners
    registered: Sequence[float]  # smaller is earlier: a revision or a time


def diversify_rows(
    scores: npt.NDArray[np.float64],
    fingerprints: Simhashes,
    owners: Hashes,
    since: npt.NDArray[np.float64],
    shared: Hashes,
    limit: int,
    count: int,
    rules: DiversityRules = DIVERSITY_RULES,
) -> list[int] | None:
    """The first `count` places of ranked rows in diversified order; None if the first `limit` are diverse as ranked. Agents
    of `shared` owners (imports, open services) do not count as one owner's."""
    clusters = group_duplicates(fingerprints)
    are_shared = frozenset(shared.tolist())
    names = [-at if owner in are_shared else owner for at, owner in enumerate(owners.tolist(), 1)]
    most = max(Counter(names[:limit]).values(), default=0)
    first = limit + rules.window
    if most <= rules.per_owner and not any(
        len(members) > rules.per_cluster and members[rules.per_cluster] < first for members in clusters
    ):
        return None
    ranked = RankedCandidates(scores.tolist(), clusters.__getitem__, names, since.tolist())
    return [*islice(diversify(ranked, rules), count)]


def diversify(ranked: RankedCandidates, rules: DiversityRules = DIVERSITY_RULES) -> Iterator[int]:
    """Positions in the order to show: in each window at most two of a cluster, and two of an owner while others fit too.

    Of a large cluster, the best member and the earliest registration are shown; the latter follows the best, or precedes it
    if it scores as well. So two hundred copies cannot push out their original, however they were tuned to the query. The
    others come in later windows, or if nothing else is left.
    The bound of an owner yields to relevance: it applies only while candidates of other owners fit too. In a registry of one
    owner, or if no other owner has matching agents, the ranked order stays. The same holds for a few near duplicates: three
    agents that compute the same thing are no flood, and go before others that score much lower.
    """
    ranked = ranked._replace(scores=[*ranked.scores])  # an original gets the score of its best copy
    if len(set(ranked.owners)) == 1:
        rules = rules._replace(per_owner=len(ranked.owners))  # no other owner needs room
    queue = _Queue(ranked, rules)
    coming, waiting, turn = iter(queue), list[int](), 0
    while True:
        window = _Window(ranked, queue, turn, rules)
        waiting = window.fill(waiting, coming)
        yield from window.shown
        if len(window.shown) < rules.window:
            return
        turn += 1


class _Queue:
    """The candidates as ranked, but the original of each large cluster next to its best copy, with the same score. Also the
    first window in which each may be shown: the best and the original, then by rank."""

    def __init__(self, ranked: RankedCandidates, rules: DiversityRules) -> None:
        self._ranked, self._rules = ranked, rules
        self._turns: dict[int, int] = {}
        self._moved: set[int] = set()

    def turn_of(self, at: int) -> int:
        return self._turns.get(at, 0)

    def __iter__(self) -> Iterator[int]:
        beside: list[int] = []  # originals between the previous candidate and this one
        for at in range(len(self._ranked.scores)):
            members = self._ranked.cluster_of(at)
            original, is_as_good = at, False
            if len(members) > self._rules.per_cluster and members[0] == at:
                original, is_as_good = self._find_original(members)
            if is_as_good:
                beside = sorted((*beside, original))
            yield from beside
            if at not in self._moved:
                yield at
            beside = [] if is_as_good or original == at else [original]
        yield from beside

    def _find_original(self, members: Sequence[int]) -> tuple[int, bool]:
        """The original of a large cluster (the earliest eligible member), and whether it goes before the best. Assigns a window
        to every member."""
        scores, best = self._ranked.scores, members[0]
        floor = self._rules.original * scores[best]
        original = min(members, key=lambda at: (scores[at] < floor, self._ranked.registered[at], at))
        is_as_good = original != best and scores[original] >= self._rules.comparable * scores[best]
        waiting = [at for at in members if at != original]
        waiting.insert(0 if is_as_good or original == best else 1, original)
        self._turns.update((at, turn // self._rules.per_cluster) for turn, at in enumerate(waiting))
        if original != best:
            self._moved.add(original)
            scores[original] = scores[best]
        return original, is_as_good


class _Window:
    """One window of results, filled in the order of the queue."""

    def __init__(self, ranked: RankedCandidates, queue: _Queue, turn: int, rules: DiversityRules) -> None:
        self.shown: list[int] = []
        self._ranked, self._queue, self._turn, self._rules = ranked, queue, turn, rules
        self._of_cluster: dict[int, int] = {}
        self._of_owner: dict[int, int] = {}

    def fill(self, waiting: list[int], coming: Iterator[int]) -> list[int]:
        """Fill the window from the leftovers of the previous one and the queue; return the new leftovers."""
        scores, owners = self._ranked.scores, self._ranked.owners
        examined: list[int] = []
        behind: list[int] = []  # beyond the bound of their owner, until the others score too low
        crowded: list[int] = []  # beyond the bound of a small cluster, likewise
        for at in chain(waiting, coming):
            examined.append(at)
            while crowded and scores[at] < self._rules.fits_too * scores[crowded[0]] and self._has_room:
                self.shown.append(crowded.pop(0))
            while behind and not self._fits_too(scores[at], scores[behind[0]]):
                self._take(behind.pop(0))
            if self._of_owner.get(owners[at], 0) >= self._rules.per_owner:
                behind.append(at)
            elif not self._take(at) and len(self._ranked.cluster_of(at)) <= self._rules.few:
                crowded.append(at)
            if not self._has_room:
                break
        for at in behind:
            self._take(at)
        chosen = set(self.shown)
        left = [at for at in examined if at not in chosen] + waiting[len(examined) :]
        missing = self._rules.window - len(self.shown)  # nothing else is left
        self.shown += left[:missing]
        return left[missing:]

    @property
    def _has_room(self) -> bool:
        return len(self.shown) < self._rules.window

    def _take(self, at: int) -> bool:
        """Show a candidate, unless the window is full or its cluster has its share."""
        if not self._has_room or self._queue.turn_of(at) > self._turn:
            return False
        label, owner = self._ranked.cluster_of(at)[0], self._ranked.owners[at]
        count = self._of_cluster.get(label, 0)
        if count >= self._rules.per_cluster:
            return False
        self.shown.append(at)
        self._of_cluster[label] = count + 1
        self._of_owner[owner] = self._of_owner.get(owner, 0) + 1
        return True

    def _fits_too(self, score: float, better: float) -> bool:
        rules = self._rules
        return score >= rules.comparable * better or (score >= rules.fits and score >= rules.fits_too * better)
